"""The documents of ``list``, ``diff`` and ``apply``, as --json prints them.

Every type of ``hbatune.cli`` with a field ``schema`` is such a document: its JSON Schema in
``hbatune/schemas`` comes from it by ``make docs``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hbatune.facts.model import Adapter, Endpoint, Machine, Missing, Vector
from hbatune.plan.rows import LeftAlone, Plan, Row
from hbatune.probe.comparison import Standing
from hbatune.probe.model import ProbePair
from hbatune.probe.prove import Proof

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

    ``memory`` is the additional memory for the planned nr_requests, in bytes.
    """

    profile: str
    states: dict[str, int]
    outcomes: dict[str, int]
    memory: int
    hostname: str
    kernel: str
    boot_id: str
    adapters: tuple[AdapterVersions, ...]


class PlanDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``diff`` and ``apply``.

    ``left_alone`` are the disks that no rule may touch, since it is not known what they are.
    ``standings`` compare the last result of each target with the documents.
    """

    schema: str = PLAN

    summary: Summary
    rows: tuple[Row, ...]
    left_alone: tuple[LeftAlone, ...] = ()
    # Left out, not null, where the command does not measure.
    probes: tuple[ProbePair, ...] | UnsetType = UNSET
    verdicts: tuple[Proof, ...] | UnsetType = UNSET
    standings: dict[str, Standing] | UnsetType = UNSET


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
            ListedEndpoint(**msgspec.structs.asdict(each), mounted=each.mounted, held=each.held)
            for each in machine.endpoints
        ),
        vectors=machine.vectors,
    )


def document(
    plan: Plan,
    rows: Sequence[Row],
    machine: Machine,
    probes: Iterable[ProbePair] | None = None,
    verdicts: Iterable[Proof] | None = None,
    standings: dict[str, Standing] | None = None,
) -> PlanDocument:
    """Return the document of ``diff`` and ``apply``: rows, counts, and what an apply measured."""
    return PlanDocument(
        summary=_summary(plan, rows, machine),
        rows=tuple(rows),
        left_alone=plan.left_alone,
        probes=UNSET if probes is None else tuple(probes),
        verdicts=UNSET if verdicts is None else tuple(verdicts),
        standings=UNSET if standings is None else standings,
    )


def _summary(plan: Plan, rows: Sequence[Row], machine: Machine) -> Summary:
    return Summary(
        profile=plan.profile,
        states=dict(Counter(str(row.state) for row in rows)),
        outcomes=dict(Counter(str(row.outcome) for row in rows if row.outcome)),
        memory=plan.memory.added,
        hostname=machine.hostname,
        kernel=machine.kernel,
        boot_id=machine.boot_id,
        adapters=tuple(_versions(adapter) for adapter in machine.adapters),
    )


def _versions(adapter: Adapter) -> AdapterVersions:
    return AdapterVersions(
        target=adapter.target,
        family=adapter.family,
        driver=known(adapter.driver),
        driver_version=known(adapter.driver_version),
        firmware=known(adapter.firmware),
    )


def known(fact: str | Missing) -> str | None:
    """Return the fact, or None where it is missing."""
    return None if isinstance(fact, Missing) else fact
