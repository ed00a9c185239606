"""Old results as they look today: the change since the one before, and why one is stale. Pure.

A stale result is still shown; it is never removed here.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.model import Adapter, Machine, Missing
from hbatune.probe.history import Record
from hbatune.probe.model import ProbeResult, Served


class Stale(StrEnum):
    """The cause of staleness: a change of driver moved results by up to half (D1-3)."""

    DRIVER = "driver"
    FIRMWARE = "firmware"
    KERNEL = "kernel"
    GONE = "gone"  # the disk itself, or the adapter it was measured behind


class StaleReason(Struct, frozen=True):
    """One reason why a result is stale; None where the value was or is unknown."""

    what: Stale
    then: str | None = None
    now: str | None = None


class ChangeSince(Struct, frozen=True):
    """The ratios of a result to the one before it, of the same disk and workload."""

    iops: float
    mean: float
    p99: float


class HistoryEntry(Struct, frozen=True):
    """A record as it looks today; ``stale`` is empty where it is still valid."""

    record: Record
    since: ChangeSince | None
    stale: tuple[StaleReason, ...]


def history_entries(records: Iterable[Record], machine: Machine) -> list[HistoryEntry]:
    """Return the records, the oldest first, as they look on the machine as it is now."""
    last: dict[object, ProbeResult] = {}
    found = []
    # The file is in order of writing; after a change of the clock that is not order of time.
    for record in sorted(records, key=lambda record: record.time):
        since, result = None, record.result
        if result is not None:
            key = (record.id, result.workload)
            before = last.get(key)
            since = None if before is None else _since(before, result)
            last[key] = result
        found.append(HistoryEntry(record, since, tuple(_stale(record, machine))))
    return found


def _since(before: ProbeResult, after: ProbeResult) -> ChangeSince | None:
    first, second = before.figures, after.figures
    # An edited or damaged record must not stop the list of all others.
    if min(first.iops, first.mean_us, first.p99_us) <= 0:
        return None
    return ChangeSince(
        iops=second.iops / first.iops,
        mean=second.mean_us / first.mean_us,
        p99=second.p99_us / first.p99_us,
    )


def _stale(record: Record, machine: Machine) -> Iterator[StaleReason]:
    if record.kernel != machine.kernel:
        yield StaleReason(Stale.KERNEL, record.kernel, machine.kernel)
    # With the disk gone its adapter may be anything: driver and firmware are no longer comparable.
    if not any(each.id == record.id for each in machine.endpoints):
        yield StaleReason(Stale.GONE)
        return
    if record.result is not None:
        adapters = {adapter.target: adapter for adapter in machine.adapters}
        for served in record.result.served:
            yield from _changed(served, adapters.get(served.adapter))


def _changed(then: Served, now: Adapter | None) -> Iterator[StaleReason]:
    if now is None:
        yield StaleReason(Stale.GONE)
        return
    drivers = tuple(_words(each.driver, each.driver_version) for each in (then, now))
    if drivers[0] != drivers[1]:
        yield StaleReason(Stale.DRIVER, *drivers)
    firmware = tuple(_words(each.firmware) for each in (then, now))
    if firmware[0] != firmware[1]:
        yield StaleReason(Stale.FIRMWARE, *firmware)


def _words(*facts: str | Missing) -> str | None:
    return " ".join(fact for fact in facts if isinstance(fact, str)) or None
