"""What old results say today: each against the one before it, and what has made it stale. Pure."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.model import Adapter, Machine, Missing
from hbatune.probe.history import Record
from hbatune.probe.model import Result, Served


class Stale(StrEnum):
    """What has changed since: a change of driver moved results by up to half (D1-3)."""

    DRIVER = "driver"
    FIRMWARE = "firmware"
    KERNEL = "kernel"
    GONE = "gone"  # the disk itself, or the adapter it was measured behind


class Reason(Struct, frozen=True):
    """One thing that makes a result stale; None where it was or is not known."""

    what: Stale
    then: str | None = None
    now: str | None = None


class Since(Struct, frozen=True):
    """The ratios of a result to the one before it, of the same disk and workload."""

    iops: float
    mean: float
    p99: float


class Entry(Struct, frozen=True):
    """A record with what it is today; ``stale`` is empty where it still stands."""

    record: Record
    since: Since | None
    stale: tuple[Reason, ...]


def past(records: Iterable[Record], machine: Machine) -> list[Entry]:
    """Return the records, the oldest first, as they look on the machine as it is now."""
    last: dict[object, Result] = {}
    found = []
    for record in sorted(records, key=lambda record: record.time):
        since, result = None, record.result
        if result is not None:
            key = (record.id, result.workload)
            before = last.get(key)
            since = None if before is None else _since(before, result)
            last[key] = result
        found.append(Entry(record, since, tuple(_stale(record, machine))))
    return found


def _since(before: Result, after: Result) -> Since | None:
    first, second = before.figures, after.figures
    if min(first.iops, first.mean_us, first.p99_us) <= 0:
        return None
    return Since(
        iops=second.iops / first.iops,
        mean=second.mean_us / first.mean_us,
        p99=second.p99_us / first.p99_us,
    )


def _stale(record: Record, machine: Machine) -> Iterator[Reason]:
    if record.kernel != machine.kernel:
        yield Reason(Stale.KERNEL, record.kernel, machine.kernel)
    if not any(each.id == record.id for each in machine.endpoints):
        yield Reason(Stale.GONE)
        return
    if record.result is not None:
        adapters = {adapter.target: adapter for adapter in machine.adapters}
        for served in record.result.served:
            yield from _changed(served, adapters.get(served.adapter))


def _changed(then: Served, now: Adapter | None) -> Iterator[Reason]:
    if now is None:
        yield Reason(Stale.GONE)
        return
    drivers = tuple(_words(each.driver, each.driver_version) for each in (then, now))
    if drivers[0] != drivers[1]:
        yield Reason(Stale.DRIVER, *drivers)
    firmware = tuple(_words(each.firmware) for each in (then, now))
    if firmware[0] != firmware[1]:
        yield Reason(Stale.FIRMWARE, *firmware)


def _words(*facts: str | Missing) -> str | None:
    return " ".join(fact for fact in facts if isinstance(fact, str)) or None
