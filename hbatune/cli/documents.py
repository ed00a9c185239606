"""The documents that --json prints. Their schemas lie in ``hbatune/schemas``."""

from collections import Counter
from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Struct, UnsetType

from hbatune.facts.model import Adapter, Machine, Missing
from hbatune.plan import Plan, Row
from hbatune.probe.model import Outcome as ProbeOutcome

PLAN = "hbatune.plan/1"
FACTS = "hbatune.facts/1"


class AdapterVersions(Struct, frozen=True):
    """Which driver and firmware an adapter had; null where nothing tells."""

    target: str
    family: str
    driver: str | None
    driver_version: str | None
    firmware: str | None


class Summary(Struct, frozen=True):
    """The rows counted by state and outcome, and what they were planned for.

    ``memory`` is what the planned nr_requests cost beyond today's, in bytes.
    """

    profile: str
    states: dict[str, int]
    outcomes: dict[str, int]
    memory: int
    hostname: str
    kernel: str
    boot_id: str
    adapters: tuple[AdapterVersions, ...]


class ProbePair(Struct, frozen=True):
    """A probe before the change and the one after it, where there was one."""

    before: ProbeOutcome
    after: ProbeOutcome | None


class PlanDocument(Struct, frozen=True):
    """What ``diff`` and ``apply`` print."""

    summary: Summary
    rows: tuple[Row, ...]
    probes: tuple[ProbePair, ...] | UnsetType = UNSET
    schema: str = PLAN


class FactsDocument(Struct, frozen=True):
    """What ``list`` prints."""

    hostname: str
    kernel: str
    adapters: tuple[Adapter, ...]
    endpoints: tuple[dict[str, object], ...]
    schema: str = FACTS


def facts(machine: Machine) -> FactsDocument:
    """Return what ``list`` prints: every fact, and of each endpoint whether it is in use."""
    endpoints = tuple(
        {**msgspec.structs.asdict(each), "mounted": each.mounted, "held": each.held}
        for each in machine.endpoints
    )
    return FactsDocument(machine.hostname, machine.kernel, machine.adapters, endpoints)


def summary(plan: Plan, rows: Iterable[Row], machine: Machine) -> Summary:
    """Count the rows and say what they were planned for."""
    every = tuple(rows)
    return Summary(
        profile=plan.profile,
        states=dict(Counter(str(row.state) for row in every)),
        outcomes=dict(Counter(str(row.outcome) for row in every if row.outcome)),
        memory=plan.memory,
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
