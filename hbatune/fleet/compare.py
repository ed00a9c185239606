"""Compares two hosts, or one host at two times: what differs, and what matters first. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from hbatune.fleet.compared_facts import (
    ORDER,
    FactKind,
    HostFact,
    Valued,
    adapter_names,
    disk_subject,
    paired_facts,
)
from hbatune.probe.history import Record
from hbatune.probe.result import Workload
from hbatune.settings.table import SETTINGS
from hbatune.snapshot.file import Snapshot

_SOURCES = {
    FactKind.PRESENCE: "D2-7",
    FactKind.LINK: "D4-9",
    FactKind.STATE: "K-device-state",
    FactKind.ERRORS: "D0-8",
    FactKind.RATE: "D2-7",
    FactKind.FIRMWARE: "D0-5",
    FactKind.DRIVER: "D1-3",
    FactKind.DEPTH: "D2-1",
    FactKind.INTERRUPTS: "D4-2",
    FactKind.OPTION: "D4-3",
    FactKind.DRIVE: "D1-4",
}
"""Why a kind of fact matters to speed; a setting's source is that of the setting."""

_COUNTED = (FactKind.ERRORS, FactKind.COUNTERS)


class Difference(Struct, frozen=True):
    """A fact in which two hosts differ; what one of them does not have has no values there."""

    kind: FactKind
    subject: str
    what: str
    first: tuple[Valued, ...]
    second: tuple[Valued, ...]
    source: str | None


class MeasuredRates(Struct, frozen=True):
    """What a host measured: I/Os and bytes per second, latencies in µs."""

    iops: float
    bytes_per_s: float
    mean_us: float
    p99_us: float


class ComparedResults(Struct, frozen=True):
    """The newest results of both hosts of one workload on disks of one model."""

    subject: str
    workload: Workload
    first: MeasuredRates
    second: MeasuredRates

    @property
    def p99_ratio(self) -> float:
        """How many times as long the second host takes."""
        return self.second.p99_us / self.first.p99_us if self.first.p99_us else 1.0


class ComparedHost(Struct, frozen=True):
    """One of the two: its name, its kernel, when it was looked at (seconds since the epoch)."""

    name: str
    kernel: str
    taken: int


class HostComparison(Struct, frozen=True):
    """What differs, what matters most first; ``same`` counts the facts that do not.

    ``one_host`` says that both are looks at one host, ``one_boot`` that they are of one boot:
    errors are then those since the first look, otherwise since each boot.
    """

    first: ComparedHost
    second: ComparedHost
    one_host: bool
    one_boot: bool
    differences: tuple[Difference, ...]
    measured: tuple[ComparedResults, ...]
    same: int


def compare_hosts(
    first: Snapshot,
    second: Snapshot,
    results: tuple[Sequence[Record], Sequence[Record]] = ((), ()),
) -> HostComparison:
    """Return how the second host differs from the first; ``results`` are what each measured."""
    own, others = paired_facts(first, second)
    differences, same = _differences(own, others)
    one_host = first.machine.hostname == second.machine.hostname
    return HostComparison(
        first=_compared(first),
        second=_compared(second),
        one_host=one_host,
        one_boot=first.machine.boot_id == second.machine.boot_id,
        differences=tuple(differences),
        measured=tuple(_measured(first, second, results)),
        same=same,
    )


def _compared(snapshot: Snapshot) -> ComparedHost:
    machine = snapshot.machine
    return ComparedHost(machine.hostname, machine.kernel, snapshot.taken)


def _differences(
    own: Iterable[HostFact], others: Iterable[HostFact]
) -> tuple[list[Difference], int]:
    first = {each.key: each for each in own}
    second = {each.key: each for each in others}
    # Of what only one of them has, that it is there says it all.
    both = {key[1] for key in first} & {key[1] for key in second}
    found, same = list[Difference](), 0
    for key in dict.fromkeys((*first, *second)):
        kind, subject, what = key
        one, other = first.get(key), second.get(key)
        if subject not in both and kind is not FactKind.PRESENCE:
            continue
        if one is not None and other is not None and one.values == other.values:
            same += 1
            continue
        sides = (_found(one, kind), _found(other, kind))
        found.append(Difference(kind, subject, what, *sides, _source(kind, what)))
    return sorted(found, key=_place), same


def _found(fact: HostFact | None, kind: FactKind) -> tuple[Valued, ...]:
    if fact is not None:
        return fact.found
    return (Valued(0, 1, ()),) if kind in _COUNTED else ()


def _place(difference: Difference) -> tuple[object, ...]:
    # The depth of the disks before that of the whole host.
    return ORDER[difference.kind], difference.what not in SETTINGS


def _source(kind: FactKind, what: str) -> str | None:
    if kind is FactKind.SETTING and what in SETTINGS:
        return SETTINGS[what].source
    return _SOURCES.get(kind)


def _measured(
    first: Snapshot, second: Snapshot, results: tuple[Sequence[Record], Sequence[Record]]
) -> list[ComparedResults]:
    own, others = _newest(first, results[0]), _newest(second, results[1])
    found = [
        ComparedResults(subject, workload, own[subject, workload], others[subject, workload])
        for subject, workload in own
        # One result, where a host was not measured again since the first look.
        if others.get((subject, workload), own[subject, workload]) != own[subject, workload]
    ]
    return sorted(found, key=lambda each: -each.p99_ratio)


def _newest(
    snapshot: Snapshot, records: Iterable[Record]
) -> dict[tuple[str, Workload], MeasuredRates]:
    """Return the newest figures until the snapshot was taken, by model of disk and workload.

    Results that break Little's law, or are of a disk that answers without reading, are left out.
    """
    called = adapter_names(snapshot.machine)
    disks = {endpoint.id: disk_subject(endpoint, called) for endpoint in snapshot.machine.endpoints}
    found = {}
    for record in _until(records, snapshot.taken):
        result = record.result
        if result is not None and result.doubt is None and record.id in disks:
            it = result.figures
            rates = MeasuredRates(it.iops, it.bandwidth, it.mean_us, it.p99_us)
            found[disks[record.id], result.workload] = rates
    return found


def _until(records: Iterable[Record], moment: int) -> Iterator[Record]:
    return (record for record in sorted(records, key=lambda one: one.time) if record.time <= moment)
