"""The documents of ``list`` and ``diff``, as --json prints them.

Every type of ``hbatune.cli`` and ``hbatune.text`` with a field ``schema`` is such a document. The
build makes its JSON Schema in ``hbatune/schemas`` from it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from hbatune.facts.model import Adapter, Endpoint, Machine, Vector, known
from hbatune.plan.advice import Advice
from hbatune.plan.rows import LeftAlone, Plan, Row

PLAN = "hbatune.plan/1"
FACTS = "hbatune.facts/1"


class AdapterVersions(Struct, frozen=True):
    """The driver and firmware of an adapter; null where unknown."""

    target: str
    family: str
    driver: str | None
    driver_version: str | None
    firmware: str | None


class Summary(Struct, frozen=True):
    """The rows counted by state and outcome, and the machine they are for.

    ``memory`` is the additional memory for the planned nr_requests, in bytes. ``worse`` counts the
    settings that were shown to be worse and stay, as asked.
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

    ``left_alone`` are the disks that no rule may touch, since it is not known what they are.
    ``advice`` is what vendors ask for, where the site wants to see it.
    """

    schema: str = PLAN

    summary: Summary
    rows: tuple[Row, ...]
    left_alone: tuple[LeftAlone, ...] = ()
    advice: tuple[Advice, ...] = ()


class ListedEndpoint(Endpoint, frozen=True, kw_only=True):
    """An endpoint with ``mounted`` and ``held`` as fields: JSON shows no properties."""

    mounted: bool  # type: ignore[assignment,misc,unused-ignore]
    held: bool  # type: ignore[assignment,misc,unused-ignore]


class FactsDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``list``."""

    schema: str = FACTS

    hostname: str
    kernel: str
    adapters: tuple[Adapter, ...]
    endpoints: tuple[ListedEndpoint, ...]
    vectors: tuple[Vector, ...]


def facts(machine: Machine) -> FactsDocument:
    """Return the document of ``list``: every fact, and for each endpoint whether it is in use."""
    return FactsDocument(
        hostname=machine.hostname,
        kernel=machine.kernel,
        adapters=machine.adapters,
        endpoints=tuple(
            ListedEndpoint(
                **msgspec.structs.asdict(endpoint), mounted=endpoint.mounted, held=endpoint.held
            )
            for endpoint in machine.endpoints
        ),
        vectors=machine.vectors,
    )


def diff_document(
    plan: Plan, rows: Sequence[Row], machine: Machine, advice: Iterable[Advice]
) -> DiffDocument:
    """Return the document of ``diff``: rows, counts, and what vendors advise."""
    return DiffDocument(
        summary=summary(plan, rows, machine),
        rows=tuple(rows),
        left_alone=plan.left_alone,
        advice=tuple(advice),
    )


def summary(plan: Plan, rows: Sequence[Row], machine: Machine) -> Summary:
    """Return the counts of the rows, and the machine that they are for."""
    return Summary(
        profile=plan.profile,
        states=dict(Counter(str(row.state) for row in rows)),
        outcomes=dict(Counter(str(row.outcome) for row in rows if row.outcome)),
        memory=plan.memory.added,
        hostname=machine.hostname,
        kernel=machine.kernel,
        boot_id=machine.boot_id,
        adapters=tuple(_get_versions(adapter) for adapter in machine.adapters),
    )


def _get_versions(adapter: Adapter) -> AdapterVersions:
    return AdapterVersions(
        target=adapter.target,
        family=adapter.family,
        driver=known(adapter.driver),
        driver_version=known(adapter.driver_version),
        firmware=known(adapter.firmware),
    )
