"""Read many snapshots in parallel, and keep the audited facts of each host.

What an audit keeps of one host: small, whatever the size of its snapshot. Pure but for rules.

Drift and findings of many disks are one entry each, with a count and a few names.

Reads many snapshots in parallel, each in a process that can be given up.

What is wrong with one file is one result and no end: that it is no snapshot, that a file system
does not answer, or that it brought its process down.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.checks.finding import Fact, Finding, Severity
from hbatune.checks.registry import run_checks
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.model import GENERATIONS, Adapter, Missing, TargetKind
from hbatune.facts.names import natural_key
from hbatune.fleet.compared_facts import HostFact, adapter_kind, adapter_name, host_facts, short
from hbatune.operations.situation import situation_in
from hbatune.operations.snapshot import check_input
from hbatune.plan.rows import Row, State
from hbatune.settings.table import SETTINGS, Value
from hbatune.snapshot.file import Snapshot, load
from hbatune.workers import Died, Finished, Pool, Replied, Stuck, Unstarted

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
        return tuple(sorted({adapter.kind for adapter in self.adapters}))


def audit_host(snapshot: Snapshot, file: str, profile: str | None) -> HostAudit:
    """Return what is kept of a host, compared with ``profile`` or with its own active one.

    UsageError for a profile that neither it nor this machine has, and for more in a snapshot than
    any host has.
    """
    active = snapshot.policy.active
    situation = situation_in(snapshot, profile, ()) if profile or active else None
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
        adapters=tuple(_adapter(adapter) for adapter in snapshot.machine.adapters),
        drift=_drift(seen.rows),
        findings=_findings(run_checks(seen)),
        facts=host_facts(snapshot, names=NAMES),
        not_understood=() if situation is None else situation.not_understood,
    )
    entries = sum(map(len, (made.adapters, made.drift, made.findings, made.not_understood)))
    if entries + sum(len(fact.found) for fact in made.facts) > MOST:
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
    for finding in findings:
        groups.setdefault((finding.id, finding.severity), []).append(finding)
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


SUFFIXES = (".snap", ".snapshot")
"""How the names of those files of a folder end that are looked at."""

DEADLINE = 60.0
"""Seconds for one snapshot: the largest takes a few."""

PROCESSES = 8
"""Processes at most: the largest snapshot takes 256 MiB while it is read."""


class UnusableSnapshot(Struct, frozen=True):
    """A file that could not be audited, and why."""

    file: str
    reason: str


class _Task(Struct, frozen=True):
    file: str
    profile: str | None


def snapshot_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files to read: those named, and the snapshots in and below the folders named.

    Each file once. UsageError for a folder without any, or one that cannot be read.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            found[path] = None
            continue
        inside = sorted(_snapshots_below(path), key=lambda each: natural_key(str(each)))
        if not inside:
            endings = " or ".join(SUFFIXES)
            raise UsageError(
                f"no file in {str(path)!r} has a name that ends in {endings}",
                hint="name the files themselves, or take them with `hbatune snapshot HOST.snap`",
            )
        found.update(dict.fromkeys(inside))
    return tuple(found)


def _snapshots_below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename!r} cannot be read: {error.strerror}") from error

    for place, _, files in os.walk(folder, onerror=refuse):
        yield from (Path(place, name) for name in files if name.endswith(SUFFIXES))


def read_hosts(
    files: Sequence[Path], profile: str | None, *, processes: int | None = None
) -> Iterator[HostAudit | UnusableSnapshot]:
    """Yield what is kept of each host, or why its file is of no use, in the order of their ends.

    Each is compared with ``profile``, or with its own active one.
    """
    size = processes or min(PROCESSES, len(os.sched_getaffinity(0)))
    tasks = (_Task(str(file), profile) for file in files)
    known: dict[HostFact, HostFact] = {}
    with Pool[_Task, HostAudit | UnusableSnapshot](_read, size=size, deadline=DEADLINE) as pool:
        for event in pool.run(tasks):
            match event:
                case Replied(_, HostAudit() as host):
                    yield _sharing(host, known)
                case Replied(_, unusable):
                    yield unusable
                case Stuck(task, _):
                    yield UnusableSnapshot(task.file, f"not read within {DEADLINE:.0f} seconds")
                case Died(task, status):
                    yield UnusableSnapshot(task.file, _end(status))
                case Unstarted(task, error):
                    yield UnusableSnapshot(task.file, f"no process for it: {os.strerror(error)}")
                case Finished():
                    pass


def _sharing(host: HostAudit, known: dict[HostFact, HostFact]) -> HostAudit:
    """Return the host with the facts of earlier hosts in the place of equal ones.

    Alike hosts have most of them in common: a thousand take little more memory than one.
    """
    from msgspec.structs import replace

    return replace(host, facts=tuple(known.setdefault(fact, fact) for fact in host.facts))


def _end(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"the process that read it was ended by signal {os.WTERMSIG(status)}"
    return "a fault of hbatune came up as it was read"


def _read(task: _Task) -> Iterator[HostAudit | UnusableSnapshot]:
    """Audit one snapshot, in a worker."""
    try:
        yield audit_host(load(Path(task.file)), task.file, task.profile)
    except HbatuneError as error:
        # The reason alone: the message names the file first.
        yield UnusableSnapshot(task.file, error.message.removeprefix(f"{task.file!r}: "))
    except MemoryError:
        yield UnusableSnapshot(task.file, "takes more memory than there is")
