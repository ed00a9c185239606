"""The JSON documents of ``list`` and ``diff``.

Every type of the rooms cli, fleet and text with a field ``schema`` is a JSON document. The
build generates its JSON Schema in ``hbatune/schemas``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from hbatune.facts.model import Adapter, Endpoint, Machine, Vector, get_fact
from hbatune.plan.advice import Advice
from hbatune.plan.rows import Plan, Row, SkippedDisk
from hbatune.text import limit_text, plan_tables


class AdapterVersions(Struct, frozen=True):
    """The driver and firmware of an adapter; null if unknown."""

    target: str
    family: str
    driver: str | None
    driver_version: str | None
    firmware: str | None


class Summary(Struct, frozen=True):
    """The number of rows by state and outcome, and their machine.

    ``memory`` is the additional memory for the planned nr_requests, in bytes. ``worse`` counts the
    settings that regressed and were kept on request.
    """

    profile: str
    states: dict[str, int]
    outcomes: dict[str, int]
    memory: int
    hostname: str
    kernel: str
    boot_id: str
    adapters: tuple[AdapterVersions, ...]
    worse: int = 0


# JSON shows sentences instead of reasons. The docstrings are printed in the JSON Schemas.
class PrintedRow(Row, frozen=True):
    """One setting of one target: its current value, profile value, value to set, and reason.

    ``wanted`` is the rule's value and ``value`` the value that hbatune sets. If they differ,
    ``limit`` is the reason. ``found`` is the value read back, if it is not ``value``. If hbatune
    set a value that no rule requires any more, the row has the rule ``baseline``. The original
    value is then restored, unless the setting was changed since.
    """

    limit: str | None
    why: str


class PrintedAdvice(Advice, frozen=True):
    """A vendor's recommendation for one setting of one target.

    ``advised`` is the vendor's value, or None if the setting should stay unchanged. ``value`` is
    the nearest value that this device accepts, or None. If the two differ, ``limit`` is the reason.
    ``planned`` is the value after the plan. If it is in ``conflict`` with the advice, ``against``
    is its rule. ``note`` describes current problems of the advice. ``why``, ``source`` and ``rule``
    belong to the vendor's rule.
    """

    limit: str | None


class PrintedSkippedDisk(SkippedDisk, frozen=True):
    """A disk that no rule may change, with the reason and the evidence.

    ``unread`` is whether this is a failure: the data that identifies the disk could not be read.
    """

    reason: str


P = TypeVar("P")


def with_sentences(kind: type[P], item: Struct) -> P:
    """Return an item as JSON shows it: as a value of this type, with sentences for reasons."""
    fields = msgspec.structs.asdict(item)
    for name, value in fields.items():
        if isinstance(value, limit_text.LimitReason):
            fields[name] = limit_text.describe_limit(value)
    return kind(**fields)


class DiffDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``diff``.

    ``left_alone`` are unclassified disks, which no rule may change. ``advice`` are vendor
    recommendations, if the site's configuration enables them.
    """

    schema: str = "hbatune.plan/1"
    summary: Summary
    rows: tuple[PrintedRow, ...]
    left_alone: tuple[PrintedSkippedDisk, ...] = ()
    advice: tuple[PrintedAdvice, ...] = ()


class ListedEndpoint(Endpoint, frozen=True, kw_only=True):
    """An endpoint with ``mounted`` and ``held`` as fields: JSON shows no properties."""

    mounted: bool  # type: ignore[assignment,misc,unused-ignore]
    held: bool  # type: ignore[assignment,misc,unused-ignore]


class FactsDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``list``."""

    schema: str = "hbatune.facts/1"
    hostname: str
    kernel: str
    adapters: tuple[Adapter, ...]
    endpoints: tuple[ListedEndpoint, ...]
    vectors: tuple[Vector, ...]


def make_facts_document(machine: Machine) -> FactsDocument:
    """Return the document of ``list``: all facts, and whether each endpoint is in use."""
    endpoints = []
    for endpoint in machine.endpoints:
        facts = msgspec.structs.asdict(endpoint)
        endpoints.append(ListedEndpoint(**facts, mounted=endpoint.mounted, held=endpoint.held))
    return FactsDocument(
        hostname=machine.hostname,
        kernel=machine.kernel,
        adapters=machine.adapters,
        endpoints=tuple(endpoints),
        vectors=machine.vectors,
    )


def make_diff_document(
    plan: Plan, rows: Sequence[Row], machine: Machine, advice: Iterable[Advice]
) -> DiffDocument:
    """Return the document of ``diff``: rows, counts and vendor recommendations."""
    summary = Summary(
        profile=plan.profile,
        states=dict(Counter(str(row.state) for row in rows)),
        outcomes=plan_tables.count_outcomes(rows),
        memory=plan.memory.added,
        hostname=machine.hostname,
        kernel=machine.kernel,
        boot_id=machine.boot_id,
        adapters=tuple(map(_get_versions, machine.adapters)),
    )
    return DiffDocument(
        summary=summary,
        rows=tuple(with_sentences(PrintedRow, row) for row in rows),
        left_alone=tuple(with_sentences(PrintedSkippedDisk, disk) for disk in plan.left_alone),
        advice=tuple(with_sentences(PrintedAdvice, item) for item in advice),
    )


def _get_versions(adapter: Adapter) -> AdapterVersions:
    versions = map(get_fact, (adapter.driver, adapter.driver_version, adapter.firmware))
    return AdapterVersions(adapter.target, adapter.family, *versions)
