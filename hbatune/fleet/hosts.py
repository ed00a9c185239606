"""Read many snapshots in parallel, and summarise each host for an audit.

A host's summary is small: the drift or findings of many disks are one entry, with a count and a few
names. A separate process with a deadline reads each snapshot, so a problem with one is one result.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from operator import attrgetter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from hbatune.checks.finding import CheckInput, Fact, Finding
from hbatune.checks.registry import run_checks
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.model import Adapter, Machine, Missing, TargetKind
from hbatune.facts.names import group_items, natural_key
from hbatune.fleet import compared_facts
from hbatune.fleet.compared_facts import HostFact, shorten_text
from hbatune.operations.situation import SituationRequest, read_situation
from hbatune.operations.snapshot import make_check_input
from hbatune.plan.rows import Row, State
from hbatune.settings.table import SETTINGS, Value
from hbatune.snapshot.file import Snapshot, load_snapshot
from hbatune.workers import Died, Finished, Pool, Replied, Stuck, Unstarted

MAX_NAMES = 4
"""Maximum number of names stored with a value or a fact."""

MAX_ENTRIES = 4000
"""Maximum number of entries of a host. A host with thousands of LUNs has a few hundred."""

THIS_HOST = "this host"
"""The name instead of a file, for the host that makes the audit."""


class HostState(StrEnum):
    """The result of comparing a host with its profile. Only ``ok`` is good."""

    OK = "ok"
    DRIFT = "drift"
    NOT_SET_UP = "not_set_up"  # no profile is active
    ROLLED_BACK = "rolled_back"  # no profile is active since a rollback of everything
    NOT_COMPARED = "not_compared"  # no setting was compared, or a value could not be read


class HostDrift(Struct, frozen=True):
    """Drift of a setting on a host's targets, with its values, the rule and the rule's source.

    ``kind`` is the protocol and medium of the disks, or the type of other targets. Values are None
    if they differ by target, such as an interrupt's CPUs.
    """

    setting: str
    kind: str
    current: Value | None
    value: Value | None
    rule: str
    source: str
    count: int


class HostFinding(Struct, frozen=True):
    """A check's findings of one severity on a host: their number, and an example."""

    count: int
    example: Finding


class HostAdapter(Struct, frozen=True):
    """An adapter for the inventory. ``link`` is its current link (``Gen3 x8``) or None."""

    target: str
    family: str
    kind: str
    name: str
    driver: str | None
    firmware: str | None
    link: str | None


class HostSummary(Struct, frozen=True, kw_only=True):
    """A host and the profile it was compared with; ``taken`` is in seconds since the epoch."""

    file: str
    hostname: str
    kernel: str
    taken: int
    hbatune: str
    anonymous: bool
    profile: str | None
    state: HostState
    disks: int
    adapters: tuple[HostAdapter, ...]


class HostAudit(HostSummary, frozen=True, kw_only=True):
    """The audited facts of a host; ``not_understood`` are ignored settings in its rules."""

    drift: tuple[HostDrift, ...]
    findings: tuple[HostFinding, ...]
    facts: tuple[HostFact, ...]
    not_understood: tuple[str, ...] = ()

    @property
    def alike(self) -> tuple[str, ...]:
        """The types of its adapters. Hosts with the same types are peers."""
        return tuple(sorted({adapter.kind for adapter in self.adapters}))


def audit_host(snapshot: Snapshot, file: str, profile: str | None) -> HostAudit:
    """Compare a host with ``profile`` or its own profile. UsageError if the profile is unknown."""
    situation = None
    if profile or snapshot.policy.active:
        situation = read_situation(SituationRequest(profile=profile, snapshot=snapshot))
    inputs = make_check_input(snapshot, situation, ())
    audit = HostAudit(
        file=file,
        hostname=shorten_text(snapshot.machine.hostname),
        kernel=shorten_text(snapshot.machine.kernel),
        taken=snapshot.taken,
        hbatune=shorten_text(snapshot.hbatune),
        anonymous=snapshot.anonymous,
        profile=None if inputs.profile is None else shorten_text(inputs.profile.name),
        state=_judge_host(snapshot, inputs),
        disks=len(snapshot.machine.endpoints),
        adapters=tuple(map(_summarise_adapter, snapshot.machine.adapters)),
        drift=_group_drift(inputs.rows, snapshot.machine),
        findings=_group_findings(run_checks(inputs)),
        facts=compared_facts.GatheredFacts(snapshot, MAX_NAMES).list_facts(),
        not_understood=() if situation is None else situation.not_understood,
    )
    entries = sum(map(len, (audit.adapters, audit.drift, audit.findings, audit.not_understood)))
    if entries + sum(len(fact.found) for fact in audit.facts) > MAX_ENTRIES:
        raise UsageError(f"more than {MAX_ENTRIES} different things in it, which no host has")
    return audit


def _judge_host(snapshot: Snapshot, inputs: CheckInput) -> HostState:
    if inputs.profile is None:
        return HostState.ROLLED_BACK if snapshot.policy.rolled_back_all else HostState.NOT_SET_UP
    states = {row.state for row in inputs.rows}
    if State.DRIFT in states:
        return HostState.DRIFT
    if State.UNREADABLE in states or not states & {State.OK, State.PENDING}:
        return HostState.NOT_COMPARED
    return HostState.OK


def _format_link(adapter: Adapter) -> str | None:
    link = adapter.link
    if link is None or isinstance(link.speed, Missing) or isinstance(link.width, Missing):
        return None
    speed = f"{link.speed} GT/s" if link.generation is None else f"Gen{link.generation}"
    return f"{speed} x{link.width}"


def _summarise_adapter(adapter: Adapter) -> HostAdapter:
    driver, firmware = adapter.driver_version, adapter.firmware
    return HostAdapter(
        target=shorten_text(adapter.target),
        family=shorten_text(adapter.family),
        kind=shorten_text(compared_facts.format_adapter_type(adapter)),
        name=compared_facts.format_adapter_name(adapter),
        driver=None if isinstance(driver, Missing) else shorten_text(driver),
        firmware=None if isinstance(firmware, Missing) else shorten_text(firmware),
        link=_format_link(adapter),
    )


def _group_drift(rows: Iterable[Row], machine: Machine) -> tuple[HostDrift, ...]:
    counts: Counter[tuple[str, str, Value | None, Value | None, str, str]] = Counter()
    kinds = {disk.target: (disk.protocol, disk.medium) for disk in machine.endpoints}
    for row in rows:
        if row.state is not State.DRIFT:
            continue
        current, value = _shorten_value(row.current), _shorten_value(row.value)
        on = SETTINGS[row.setting].on if row.setting in SETTINGS else "module option"
        if on is TargetKind.VECTOR:
            current = value = None  # they differ by target
        kind = " ".join(dict.fromkeys(kinds.get(row.target, (on,))))
        counts[row.setting, kind, current, value, row.rule, row.source] += 1
    return tuple(HostDrift(*key, count) for key, count in counts.items())


def _group_findings(findings: Iterable[Finding]) -> tuple[HostFinding, ...]:
    entries = []
    for first, *others in group_items(findings, attrgetter("id", "severity")).values():
        facts = {name: _shorten_fact(fact) for name, fact in asdict(first.evidence).items()}
        evidence = replace(first.evidence, **facts)
        example = replace(first, target=shorten_text(first.target), evidence=evidence)
        entries.append(HostFinding(1 + len(others), example))
    return tuple(entries)


def _shorten_fact(fact: Fact) -> Fact:
    if isinstance(fact, tuple):
        return tuple(map(shorten_text, fact[:MAX_NAMES]))
    return shorten_text(fact) if isinstance(fact, str) else fact


def _shorten_value(value: Value | None) -> Value | None:
    return shorten_text(value) if isinstance(value, str) else value


SNAPSHOT_SUFFIXES = (".snap", ".snapshot")

SNAPSHOT_TIMEOUT_S = 60.0
"""Seconds allowed for one snapshot. The largest takes a few seconds."""

MAX_PROCESSES = 8
"""Maximum number of processes. Reading the largest snapshot takes 256 MiB."""


class ReadFailure(StrEnum):
    """The reason why a snapshot could not be audited."""

    INVALID = "invalid"  # the error
    TIMED_OUT = "timed out"  # seconds
    KILLED = "killed"  # the signal
    CRASHED = "crashed"
    UNSTARTED = "unstarted"  # the kernel's error
    NO_MEMORY = "no memory"


class UnusableSnapshot(Struct, frozen=True):
    """A file that could not be audited; ``detail`` is the fact of its ``failure``."""

    file: str
    failure: ReadFailure
    detail: str | int = ""


def list_snapshot_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return files, and the snapshots in directories. UsageError if a directory lacks snapshots."""
    files: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            files[path] = None
            continue
        snapshots = sorted(_find_snapshots(path), key=lambda file: natural_key(str(file)))
        if not snapshots:
            endings = " or ".join(SNAPSHOT_SUFFIXES)
            problem = f"no file in {str(path)!r} has a name that ends in {endings}"
            hint = "name the files themselves, or take them with `hbatune snapshot HOST.snap`"
            raise UsageError(problem, hint=hint)
        files.update(dict.fromkeys(snapshots))
    return tuple(files)


def _find_snapshots(directory: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename!r} cannot be read: {error.strerror}") from error

    for parent, _, files in os.walk(directory, onerror=refuse):
        for name in files:
            if name.endswith(SNAPSHOT_SUFFIXES):
                yield Path(parent, name)


def read_hosts(
    files: Sequence[Path], profile: str | None, *, processes: int | None = None
) -> Iterator[HostAudit | UnusableSnapshot]:
    """Yield each host's audit, or the reason why its file is unusable, in order of completion."""
    size = processes or min(MAX_PROCESSES, len(os.sched_getaffinity(0)))
    shared_facts: dict[HostFact, HostFact] = {}
    with Pool[str, HostAudit | UnusableSnapshot](
        partial(_read_host, profile), size=size, deadline=SNAPSHOT_TIMEOUT_S
    ) as pool:
        for event in pool.run(map(str, files)):
            match event:
                case Replied(_, HostAudit() as host):
                    # Peers have most facts in common: a thousand hosts take little more memory
                    # than one if equal facts are one object.
                    facts = tuple(shared_facts.setdefault(fact, fact) for fact in host.facts)
                    yield replace(host, facts=facts)
                case Replied(_, unusable):
                    yield unusable
                case Stuck(file, _):
                    yield UnusableSnapshot(file, ReadFailure.TIMED_OUT, round(SNAPSHOT_TIMEOUT_S))
                case Died(file, status) if os.WIFSIGNALED(status):
                    yield UnusableSnapshot(file, ReadFailure.KILLED, os.WTERMSIG(status))
                case Died(file):
                    yield UnusableSnapshot(file, ReadFailure.CRASHED)
                case Unstarted(file, error):
                    yield UnusableSnapshot(file, ReadFailure.UNSTARTED, os.strerror(error))
                case Finished():
                    pass


def _read_host(profile: str | None, file: str) -> Iterator[HostAudit | UnusableSnapshot]:
    """Audit one snapshot, in a worker."""
    try:
        yield audit_host(load_snapshot(Path(file)), file, profile)
    except HbatuneError as error:
        # Keep only the reason: the message starts with the file.
        yield UnusableSnapshot(file, ReadFailure.INVALID, error.message.removeprefix(f"{file!r}: "))
    except MemoryError:
        yield UnusableSnapshot(file, ReadFailure.NO_MEMORY)
