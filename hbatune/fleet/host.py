"""What an audit keeps of one host: small, whatever the size of its snapshot. Pure but for rules.

Drift and findings of many disks are one entry each, with a count and a few names.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from hbatune.checks.model import Fact, Finding, Severity
from hbatune.checks.registry import run_checks
from hbatune.errors import UsageError
from hbatune.facts.model import GENERATIONS, Adapter, Missing, TargetKind
from hbatune.facts.names import natural_key
from hbatune.fleet.facts import HostFact, adapter_kind, adapter_name, host_facts, short
from hbatune.operations.findings import check_input
from hbatune.operations.snapshot import recorded
from hbatune.plan.rows import Row, State
from hbatune.settings.table import SETTINGS, Value
from hbatune.snapshot.model import Snapshot

NAMES = 4
"""Names of targets that are kept for one entry."""

MOST = 4000
"""Entries that are kept of a host; one with thousands of LUNs has a few hundred."""


class HostDrift(Struct, frozen=True):
    """A setting that drifts on targets of a host, with its values, the rule and the rule's source.

    Values are None where they are a target's own: an interrupt's CPUs.
    """

    setting: str
    current: Value | None
    value: Value | None
    rule: str
    source: str
    count: int
    targets: tuple[str, ...]


class HostFinding(Struct, frozen=True):
    """A check's findings of one severity on a host, one of them in full."""

    count: int
    targets: tuple[str, ...]
    example: Finding

    @property
    def id(self) -> str:
        """The id of the check."""
        return self.example.id

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return self.example.severity


class HostAdapter(Struct, frozen=True):
    """An adapter for the inventory; ``link`` is its link now, as in ``Gen3 x8``, None without."""

    target: str
    family: str
    kind: str
    name: str
    driver: str | None
    firmware: str | None
    link: str | None


class HostSummary(Struct, frozen=True, kw_only=True):
    """A host in one line; ``profile`` is the one that it was compared with, None if none.

    ``taken`` is in seconds since the epoch.
    """

    file: str
    hostname: str
    kernel: str
    taken: int
    hbatune: str
    anonymous: bool
    profile: str | None
    disks: int
    adapters: tuple[HostAdapter, ...]


class HostAudit(HostSummary, frozen=True, kw_only=True):
    """What is kept of a host.

    ``not_understood`` are settings of its rules that this version leaves out.
    """

    drift: tuple[HostDrift, ...]
    findings: tuple[HostFinding, ...]
    facts: tuple[HostFact, ...]
    not_understood: tuple[str, ...] = ()

    @property
    def alike(self) -> tuple[str, ...]:
        """The kinds of its adapters: hosts with the same ones are alike."""
        return tuple(sorted({each.kind for each in self.adapters}))


def audit_host(snapshot: Snapshot, file: str, profile: str | None) -> HostAudit:
    """Return what is kept of a host, compared with ``profile`` or with its own active one.

    UsageError for a profile that neither it nor this machine has, and for more in a snapshot than
    any host has.
    """
    active = snapshot.policy.active
    situation = recorded(snapshot, profile, ()) if profile or active else None
    seen = check_input(snapshot, situation, ())
    made = HostAudit(
        file=file,
        hostname=short(snapshot.machine.hostname),
        kernel=short(snapshot.machine.kernel),
        taken=snapshot.taken,
        hbatune=short(snapshot.hbatune),
        anonymous=snapshot.anonymous,
        profile=None if seen.profile is None else short(seen.profile.name),
        disks=len(snapshot.machine.endpoints),
        adapters=tuple(_adapter(each) for each in snapshot.machine.adapters),
        drift=_drift(seen.rows),
        findings=_findings(run_checks(seen)),
        facts=host_facts(snapshot, names=NAMES),
        not_understood=() if situation is None else situation.not_understood,
    )
    entries = sum(map(len, (made.adapters, made.drift, made.findings, made.not_understood)))
    if entries + sum(len(each.found) for each in made.facts) > MOST:
        raise UsageError(f"more than {MOST} different things in it, which no host has")
    return made


def link_text(adapter: Adapter) -> str | None:
    """Return an adapter's link now, ``Gen3 x8``; None where it has none or is not known."""
    link = adapter.link
    if link is None or isinstance(link.speed, Missing) or isinstance(link.width, Missing):
        return None
    generation = GENERATIONS.get(link.speed)
    return f"Gen{generation} x{link.width}" if generation else f"{link.speed} GT/s x{link.width}"


def _adapter(adapter: Adapter) -> HostAdapter:
    def known(fact: str | Missing) -> str | None:
        return None if isinstance(fact, Missing) else short(fact)

    return HostAdapter(
        target=short(adapter.target),
        family=short(adapter.family),
        kind=short(adapter_kind(adapter)),
        name=adapter_name(adapter),
        driver=known(adapter.driver_version),
        firmware=known(adapter.firmware),
        link=link_text(adapter),
    )


def _drift(rows: Iterable[Row]) -> tuple[HostDrift, ...]:
    groups: dict[tuple[str, Value | None, Value | None, str, str], list[str]] = {}
    for row in rows:
        if row.state is State.DRIFT:
            own = row.setting in SETTINGS and SETTINGS[row.setting].on is TargetKind.VECTOR
            values = (None, None) if own else (_bounded(row.current), _bounded(row.value))
            key = (row.setting, *values, row.rule, row.source)
            groups.setdefault(key, []).append(row.target)
    return tuple(
        HostDrift(*key, count=len(targets), targets=_first(targets))
        for key, targets in groups.items()
    )


def _findings(findings: Iterable[Finding]) -> tuple[HostFinding, ...]:
    groups: dict[tuple[str, Severity], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.id, each.severity), []).append(each)
    return tuple(
        HostFinding(len(group), _first(each.target for each in group), _slim(group[0]))
        for group in groups.values()
    )


def _slim(finding: Finding) -> Finding:
    """Return a finding with evidence as short as that of a real host."""
    told = {name: _evidence(value) for name, value in finding.evidence.items()}
    return replace(finding, target=short(finding.target), evidence=told)


def _evidence(value: Fact) -> Fact:
    if isinstance(value, tuple):
        return tuple(short(each) for each in value[:NAMES])
    return short(value) if isinstance(value, str) else value


def _bounded(value: Value | None) -> Value | None:
    return short(value) if isinstance(value, str) else value


def _first(targets: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(short, sorted(targets, key=natural_key)[:NAMES]))
