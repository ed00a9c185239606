"""The input of checks, and their findings. Values only."""

import errno
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from hbatune.facts.families import family_named
from hbatune.facts.family import Family
from hbatune.facts.health import AdapterHealth, DiskHealth, ErrorCounters, Health
from hbatune.facts.model import Adapter, Endpoint, Machine, Missing, Reason
from hbatune.plan.advice import Advice
from hbatune.plan.rows import Row
from hbatune.policy.config import Site
from hbatune.policy.library import ArrayModel
from hbatune.policy.profile import Profile

Fact = bool | int | float | str | tuple[str, ...] | None

MACHINE_TARGET = "machine"
"""The target of findings about no single adapter or endpoint."""


class Severity(StrEnum):
    """The severity of a finding. A machine is clean if no finding is above ``info``."""

    INFO = "info"  # for information
    ADVICE = "advice"  # could be better
    WARNING = "warning"  # costs performance or safety now
    CRITICAL = "critical"  # puts data or the device in danger


class Finding(Struct, frozen=True):
    """One finding on one target, with typed evidence and the id of its source.

    ``id`` is the id of the check and selects the text. None in ``evidence`` means unknown.
    """

    id: str
    severity: Severity
    target: str
    adapter: str | None
    evidence: dict[str, Fact]
    source: str


class CheckInput(Struct, frozen=True, dict=True):
    """A machine with its health, and the adapters and endpoints to check.

    ``rows`` are the plan of ``profile``, and empty without a profile. ``counted`` are the current
    error counters, ``earlier`` the counters of an earlier check, if known. ``arrays`` are the known
    array models. ``advice`` contains vendor recommendations if the configuration enables them.
    """

    machine: Machine
    health: Health
    adapters: tuple[Adapter, ...]
    endpoints: tuple[Endpoint, ...]
    site: Site
    profile: Profile | None = None
    rows: tuple[Row, ...] = ()
    counted: ErrorCounters | None = None
    earlier: ErrorCounters | None = None
    arrays: tuple[ArrayModel, ...] = ()
    advice: tuple[Advice, ...] = ()

    def of_adapter(self, adapter: Adapter) -> AdapterHealth | None:
        """Return the health of an adapter."""
        return self.health.adapters.get(adapter.target)

    def of_disk(self, endpoint: Endpoint) -> DiskHealth | None:
        """Return the health of an endpoint."""
        return self.health.disks.get(endpoint.target)

    @cached_property
    def planned(self) -> dict[tuple[str, str], Row]:
        """The rows by endpoint id and setting."""
        return {(row.id, row.setting): row for row in self.rows}


class Check(Struct, frozen=True):
    """One check: the id and source of its findings, and the function that finds them."""

    id: str
    source: str
    look: Callable[["Check", CheckInput], Iterable[Finding]]

    def found(
        self, severity: Severity, subject: Adapter | Endpoint | str, /, **evidence: Fact
    ) -> Finding:
        """Return this check's finding on an adapter, an endpoint, or the machine."""
        if isinstance(subject, str):
            target, adapter = subject, None
        else:
            target = subject.target
            adapter = subject.adapter if isinstance(subject, Endpoint) else subject.target
        return Finding(self.id, severity, target, adapter, evidence, self.source)


def get_family(adapter: Adapter) -> Family:
    """Return the description of an adapter's family."""
    return family_named(adapter.family)


def get_value(fact: int | str | bool | float | Missing) -> int | str | bool | float | None:
    """Return the fact, or None if it is missing."""
    return None if isinstance(fact, Missing) else fact


def is_denied(fact: object) -> bool:
    """Return whether only root can read a fact that this user could not read."""
    return isinstance(fact, Missing) and fact.errno in (errno.EACCES, errno.EPERM)


def make_root_evidence(inputs: CheckInput) -> dict[str, Fact]:
    """Return the evidence that only root can read the kernel log."""
    return {"denied": "log"} if is_denied(inputs.health.log) else {}


def is_unread(fact: object) -> bool:
    """Return whether a fact exists but could not be read. An absent fact does not count."""
    return isinstance(fact, Missing) and fact.reason is not Reason.ABSENT
