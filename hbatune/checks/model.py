"""What checks see, and what they find."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from hbatune.facts.families import family_named
from hbatune.facts.family import Family
from hbatune.facts.health import AdapterHealth, Counted, DiskHealth, Health
from hbatune.facts.model import Adapter, Endpoint, Machine, Missing, Reason
from hbatune.plan.rows import Row
from hbatune.policy.config import Site
from hbatune.policy.model import Profile

Fact = bool | int | float | str | tuple[str, ...] | None

MACHINE = "machine"
"""The target of findings that are about none of the adapters and endpoints."""


class Severity(StrEnum):
    """How much a finding matters; what is above ``info`` makes a machine not clean."""

    INFO = "info"  # worth knowing
    ADVICE = "advice"  # could be better
    WARNING = "warning"  # costs performance or safety now
    CRITICAL = "critical"  # data or the device are in danger


class Finding(Struct, frozen=True):
    """One thing found on one target: typed evidence, and the id of what it stands on.

    ``id`` tells which text to show; None in ``evidence`` is what is not known.
    """

    id: str
    severity: Severity
    target: str
    adapter: str | None
    evidence: dict[str, Fact]
    source: str


class Seen(Struct, frozen=True, dict=True):
    """A machine with its health, and those of its adapters and endpoints that were asked for.

    ``rows`` are the plan of ``profile``, none where no profile was chosen. ``counted`` is what has
    been counted of errors, and ``earlier`` what had been before, where that is known.
    """

    machine: Machine
    health: Health
    adapters: tuple[Adapter, ...]
    endpoints: tuple[Endpoint, ...]
    site: Site
    profile: Profile | None = None
    rows: tuple[Row, ...] = ()
    counted: Counted | None = None
    earlier: Counted | None = None

    def of_adapter(self, adapter: Adapter) -> AdapterHealth | None:
        """Return how an adapter fares."""
        return self.health.adapters.get(adapter.target)

    def of_disk(self, endpoint: Endpoint) -> DiskHealth | None:
        """Return how an endpoint fares."""
        return self.health.disks.get(endpoint.target)

    @cached_property
    def planned(self) -> dict[tuple[str, str], Row]:
        """The rows by the endpoint's id and the setting."""
        return {(row.id, row.setting): row for row in self.rows}


class Check(Struct, frozen=True):
    """One check: the finding that it may make, what it stands on, and how it looks."""

    id: str
    source: str
    look: Callable[["Check", Seen], Iterable[Finding]]

    def found(
        self, severity: Severity, on: Adapter | Endpoint | str, /, **evidence: Fact
    ) -> Finding:
        """Return this check's finding on an adapter, an endpoint, or the machine."""
        if isinstance(on, str):
            target, adapter = on, None
        else:
            target = on.target
            adapter = on.adapter if isinstance(on, Endpoint) else on.target
        return Finding(self.id, severity, target, adapter, evidence, self.source)


def family_of(adapter: Adapter) -> Family:
    """Return what is known of the adapter's family."""
    return family_named(adapter.family)


def known(fact: int | str | bool | float | Missing) -> int | str | bool | float | None:
    """Return the fact, None where it is missing."""
    return None if isinstance(fact, Missing) else fact


def unread(fact: object) -> bool:
    """Whether a fact is there and could not be had; one that is absent is not."""
    return isinstance(fact, Missing) and fact.reason is not Reason.ABSENT
