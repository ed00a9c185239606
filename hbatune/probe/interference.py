"""What a bulk writer on the same disk costs a reader, by scheduler, from the records. Pure.

A lone reader says nothing about a scheduler; a reader beside a writer does (I-schedulers).
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from hbatune.probe.history import Record
from hbatune.probe.model import ProbeResult

_SCHEDULER = "scheduler"


class Interference(Struct, frozen=True):
    """A reader ``alone`` and ``beside`` a bulk writer, with the scheduler in force.

    ``scheduler`` is None where it is not known; ``record`` is that of the run beside the writer.
    """

    alone: ProbeResult
    beside: ProbeResult
    scheduler: str | None
    record: Record


def find_interference(records: Iterable[Record]) -> list[Interference]:
    """Return the newest pair of each disk, scheduler and load, the newest first.

    Both runs of a pair are of one command and one time, and differ in the writer alone.
    """
    lone: dict[object, ProbeResult] = {}
    found: dict[object, Interference] = {}
    # Of runs at one time the one without the writer first, which the other is paired with.
    for record in sorted(records, key=lambda each: (each.time, _writes_beside(each))):
        result = record.result
        if result is None or record.proof is not None:
            continue
        load = replace(result.workload, writer=None)
        pair = (record.id, record.boot_id, record.command, record.time, load)
        if result.workload.writer is None:
            lone[pair] = result
        elif (alone := lone.get(pair)) is not None:
            scheduler = _scheduler(result)
            key = (record.id, scheduler, result.workload)
            # Removed first, since a dict keeps the place of an old key: the newest go last.
            found.pop(key, None)
            found[key] = Interference(alone, result, scheduler, record)
    return list(reversed(found.values()))


def _writes_beside(record: Record) -> bool:
    return record.result is not None and record.result.workload.writer is not None


def _scheduler(result: ProbeResult) -> str | None:
    own = (each for each in result.settings if each.setting == _SCHEDULER)
    return next((str(each.value) for each in own if each.target == result.target), None)
