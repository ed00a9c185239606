"""Capture the I/Os of a disk for a replay: their times and places, without any data.

Nothing is written to a device, and no I/O is started.
"""

import time
from collections.abc import Callable, Collection, Iterator

from hbatune.act.block_trace import CAPTURE_EVENTS, BlockEvent, BlockTrace, pair_requests
from hbatune.errors import HbatuneError
from hbatune.facts.attributes import get_text
from hbatune.facts.machine import gather_machine
from hbatune.facts.model import Endpoint, Missing
from hbatune.operations.why import choose_traced_disk, removed_at_end
from hbatune.probe.trace_file import Trace, TraceBuilder, TraceHeader

_INSTANCE, _NUMBER = "hbatune-capture", "dev"
_PAUSE_S = 0.02
"""Seconds between two looks at the kernel's buffers. At 100,000 I/Os per second on one CPU, its
buffer of 512 KiB is full after 30 ms."""


def capture_ios(names: Collection[str], seconds: int, advance: Callable[[str], None]) -> Trace:
    """Record the I/Os of the disk with these names that begin and complete within the seconds.

    It ends early if the file would be too large. ``advance`` is called after each second. The
    caller holds the lock of traces. Raises UsageError unless the names mean one disk, and
    HbatuneError if the kernel does not allow a trace.
    """
    disk = choose_traced_disk(gather_machine((_NUMBER,)), names, "capture")
    device = get_text(disk.attributes, _NUMBER)
    if isinstance(device, Missing) or isinstance(disk.size, Missing):
        raise HbatuneError(f"{disk.target} was removed")
    trace = BlockTrace(_INSTANCE, CAPTURE_EVENTS, device)
    with removed_at_end(trace, disk.target):
        trace.start()
        return _record(trace, disk, seconds, advance)


def _record(
    trace: BlockTrace, disk: Endpoint, seconds: int, advance: Callable[[str], None]
) -> Trace:
    begin, moment, builder = time.monotonic(), time.time(), TraceBuilder()
    begin_us, length = round(begin * 1_000_000), float(seconds)
    for request in pair_requests(_follow(trace, begin, seconds, lambda: advance(disk.target))):
        if request.queued >= begin_us:
            builder.add(request, begin_us)
        if builder.is_full:
            length = request.completed / 1_000_000 - begin
            break
    header = TraceHeader(
        target=disk.target,
        disk_bytes=0 if isinstance(disk.size, Missing) else disk.size,
        seconds=length,
        events=trace.count_read(),
        lost=trace.count_lost(),
        time=moment,
    )
    return builder.build(header)


def _follow(
    trace: BlockTrace, begin: float, seconds: int, advance: Callable[[], None]
) -> Iterator[BlockEvent]:
    """Yield the events until the time is over, and call ``advance`` after each second."""
    end_us, shown = (begin + seconds) * 1_000_000, 0
    while shown < seconds:
        elapsed = int(time.monotonic() - begin)  # before reading, so the last look misses nothing
        for event in trace.read():
            if event.time_us > end_us:
                break  # more events may arrive than can be read
            yield event
        while shown < min(elapsed, seconds):
            shown += 1
            advance()
        time.sleep(_PAUSE_S)
