"""The JSON documents of ``list`` and ``diff``.

Every type of ``hbatune.cli`` and ``hbatune.text`` with a field ``schema`` is a JSON document. The
build generates its JSON Schema in ``hbatune/schemas``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from hbatune.facts.model import Adapter, Endpoint, Machine, Vector, get_fact
from hbatune.plan.advice import Advice
from hbatune.plan.rows import Plan, Row, SkippedDisk


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


class DiffDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``diff``.

    ``left_alone`` are unclassified disks, which no rule may change. ``advice`` are vendor
    recommendations, if the site's configuration enables them.
    """

    schema: str = "hbatune.plan/1"
    summary: Summary
    rows: tuple[Row, ...]
    left_alone: tuple[SkippedDisk, ...] = ()
    advice: tuple[Advice, ...] = ()


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
    return DiffDocument(
        summary=make_summary(plan, rows, machine),
        rows=tuple(rows),
        left_alone=plan.left_alone,
        advice=tuple(advice),
    )


def make_summary(plan: Plan, rows: Sequence[Row], machine: Machine) -> Summary:
    """Return the counts of the rows, and their machine."""
    return Summary(
        profile=plan.profile,
        states=dict(Counter(str(row.state) for row in rows)),
        outcomes=dict(Counter(str(row.outcome) for row in rows if row.outcome)),
        memory=plan.memory.added,
        hostname=machine.hostname,
        kernel=machine.kernel,
        boot_id=machine.boot_id,
        adapters=tuple(map(_get_versions, machine.adapters)),
    )


def _get_versions(adapter: Adapter) -> AdapterVersions:
    return AdapterVersions(
        target=adapter.target,
        family=adapter.family,
        driver=get_fact(adapter.driver),
        driver_version=get_fact(adapter.driver_version),
        firmware=get_fact(adapter.firmware),
    )
