"""The input of checks, their findings, and the form of their evidence. Values only."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property

from msgspec import UNSET, Struct, UnsetType

from hbatune.facts.health import AdapterHealth, ErrorCounters, Health
from hbatune.facts.model import Adapter, Endpoint, Machine, Missing, get_fact
from hbatune.plan.advice import Advice
from hbatune.plan.rows import Row
from hbatune.policy import config, library
from hbatune.policy.profile import Profile
from hbatune.shipped import load_texts

Fact = bool | int | float | str | tuple[str, ...] | None

MACHINE_TARGET = "machine"
"""The target of findings about no single adapter or endpoint."""


class Severity(StrEnum):
    """The severity of a finding. A machine is clean if no finding is above ``info``."""

    INFO = "info"  # for information
    ADVICE = "advice"  # could be better
    WARNING = "warning"  # costs performance or safety now
    CRITICAL = "critical"  # puts data or the device in danger


_FACT = r"\{(\w+)\}"
_OPTIONAL_PART = rf"\[([^\[\]{{}}]*{_FACT}[^\[\]]*)\]"
"""A part of a text in square brackets, with at least one fact in braces."""


class CheckEvidence(Struct, frozen=True):
    """The evidence of one type of finding, with its two sentences.

    The fields of a subclass are facts, which JSON publishes under their names. None means unknown.
    JSON omits a field that is UNSET. The texts are in templates/findings.toml, in the table with
    the name of the subclass. In a text, a name in braces stands for the fact in this field, and
    ``{target}`` for the target of the finding. The text omits a part in square brackets if a fact
    in it is unknown or empty. If there are several texts, the first whose other facts are all known
    applies, or the last.
    """

    def describe(self) -> str:
        """Return the evidence as text."""
        return self._fill_text("description")

    def advise(self, target: str) -> str:
        """Return the advice for the target of the finding."""
        return self._fill_text("advice", target=target)

    def _fill_text(self, part: str, **texts: str) -> str:
        """Return the text of this ``part`` of the table, filled with the facts and ``texts``."""
        shipped = load_texts("findings.toml")[type(self).__name__.removeprefix("_")][part]
        *preferred, last = [shipped] if isinstance(shipped, str) else shipped
        fitting = (text for text in preferred if self._has_facts(re.sub(_OPTIONAL_PART, "", text)))
        text = next(fitting, last)
        for name in self.__struct_fields__:
            texts[name] = format_fact(getattr(self, name))
        return re.sub(
            _OPTIONAL_PART, lambda match: match[1] if self._has_facts(match[1]) else "", text
        ).format_map(texts)

    def _has_facts(self, template: str) -> bool:
        # The target is always known. It is not a field.
        facts = [getattr(self, name, "") for name in re.findall(_FACT, template)]
        return not any(fact in (None, (), UNSET) for fact in facts)


class Finding(Struct, frozen=True):
    """One finding of the check ``id`` on one target, with typed evidence and its source's id."""

    id: str
    severity: Severity
    target: str
    adapter: str | None
    evidence: CheckEvidence
    source: str


class CheckInput(Struct, frozen=True, dict=True):
    """A machine with its health, and the adapters and endpoints to check.

    ``rows`` are the plan of ``profile``, and empty without a profile. ``counted`` are the current
    error counters, ``earlier`` the counters of an earlier check, if known, ``looks`` the counters
    of all earlier checks. ``arrays`` are the known array models. ``advice`` contains vendor
    recommendations if the configuration enables them.
    """

    machine: Machine
    health: Health
    adapters: tuple[Adapter, ...]
    endpoints: tuple[Endpoint, ...]
    site: config.Site
    profile: Profile | None = None
    rows: tuple[Row, ...] = ()
    counted: ErrorCounters | None = None
    earlier: ErrorCounters | None = None
    looks: tuple[ErrorCounters, ...] = ()
    arrays: tuple[library.ArrayModel, ...] = ()
    advice: tuple[Advice, ...] = ()

    def get_cache(self, endpoint: Endpoint) -> str | None:
        """Return the type of a disk's write cache, or None if unknown."""
        health = self.health.disks.get(endpoint.target)
        return get_fact(health.cache) if health else None

    def list_adapter_health(self) -> Iterator[tuple[Adapter, AdapterHealth]]:
        """Yield the adapters whose health is known, with it."""
        for adapter in self.adapters:
            if (health := self.health.adapters.get(adapter.target)) is not None:
                yield adapter, health

    def is_over(self, key: str, counters: Iterable[str] | None = None) -> bool:
        """Return whether none of these counters has risen since an earlier check.

        ``key`` is the endpoint's id or the adapter's name. By default, all its counters count.
        """
        if self.counted is None or self.earlier is None:
            return False
        current, earlier = self.counted.values.get(key, {}), self.earlier
        names = current if counters is None else counters
        return all(current.get(name, 0) <= earlier.value(key, name) for name in names)

    @property
    def denied_log(self) -> str | UnsetType:
        """The name of the kernel log if only root can read it."""
        log = self.health.log
        return "log" if isinstance(log, Missing) and log.is_denied else UNSET

    @cached_property
    def planned(self) -> dict[tuple[str, str], Row]:
        """The rows by endpoint id and setting."""
        return {row.key: row for row in self.rows}


class Check(Struct, frozen=True):
    """One check: the id and source of its findings, and the function that finds them."""

    id: str
    source: str
    look: Callable[["Check", CheckInput], Iterable[Finding]]

    def report(
        self, severity: Severity, subject: Adapter | Endpoint | str, evidence: CheckEvidence
    ) -> Finding:
        """Return this check's finding on an adapter, an endpoint, or a target of this name."""
        if isinstance(subject, str):
            return Finding(self.id, severity, subject, None, evidence, self.source)
        adapter = subject.adapter if isinstance(subject, Endpoint) else subject.target
        return Finding(self.id, severity, subject.target, adapter, evidence, self.source)

    def report_targets(
        self, severity: Severity, targets: Sequence[str], evidence: CheckEvidence
    ) -> Finding:
        """Return this check's finding on one target, or on the machine for several."""
        return self.report(severity, targets[0] if len(targets) == 1 else MACHINE_TARGET, evidence)

    def report_machine(self, severity: Severity, evidence: CheckEvidence) -> Finding:
        """Return this check's finding on the machine."""
        return self.report(severity, MACHINE_TARGET, evidence)


def format_fact(fact: Fact) -> str:
    """Return a fact as text; ``-`` if it is unknown."""
    if fact is None or fact == ():
        return "-"
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, tuple):
        return ", ".join(fact)
    return f"{fact:g}" if isinstance(fact, float) else str(fact)
