"""Trace the block layer in a private instance of tracefs, and pair its events."""

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.tracefs import NO_FILTER, TraceInstance

CAPTURE_EVENTS = (
    "block_bio_queue",
    "block_split",
    "block_bio_backmerge",
    "block_bio_frontmerge",
    "block_rq_merge",
    "block_rq_complete",
)
"""The events for the I/Os of one disk. All have its number, also on a partition."""
_THREAD_PRIORITY = 49
CPU_FILTERS = {
    "irq/softirq_raise": "vec == 4 || vec == 5",
    "sched/sched_switch": f"prev_prio < {_THREAD_PRIORITY} || next_prio < {_THREAD_PRIORITY}",
}
"""The events that show a completion's wait for a CPU, with their filters.

A completion waits for the softirq BLOCK or IRQ_POLL (include/linux/interrupt.h), or for the thread
of its interrupt, which waits for tasks with a higher priority than its own (a lower number;
kernel/sched/syscalls.c: sched_set_fifo).
"""
STAGE_EVENTS = (*CAPTURE_EVENTS, "block_getrq", "block_rq_issue", "block_rq_requeue", *CPU_FILTERS)
"""The events for the stages of one disk's requests, and for their waits for CPUs."""
LATENCY_EVENTS = (*CAPTURE_EVENTS, "block_bio_remap")
"""The events for latencies from the entry into the block layer to the completion."""
MAX_EVENTS = 20_000
"""Events to read of one trace, the earliest first."""
# include/trace/events/block.h. The name of a process is too short to contain a match.
_HEAD = r"-(\d+) +\[(\d+)\] ..(.)\S* +(\d+)\.(\d{6}): "
_EVENT = re.compile(
    _HEAD + r"(block_\w+): (\d+,\d+) ([A-Z]+) (?:\d+ )?(?:\(.*?\) )?(\d+) [+/] (\d+)"
    r"(?: <- \((\d+,\d+)\) (\d+))?"
)
_CPU_EVENT = re.compile(
    _HEAD + r"(?:softirq_raise|sched_switch: .* next_pid=(\d+) next_prio=(-?\d+)$)"
)

Position = tuple[str, int]
"""A device, ``8,0``, and a sector."""


class BlockEvent(Struct, frozen=True, gc=False):
    """An event of the block layer, at ``time_us`` of the monotonic clock.

    ``operation`` is the kernel's, such as ``WS``. ``sectors`` is the size, or the second sector of
    a split. ``source`` is the position before a remap. On ``cpu``, the code with this event waited
    between the two times of ``wait`` at most.
    """

    name: str
    time_us: int
    position: Position
    operation: str
    sectors: int
    source: Position | None
    cpu: int = 0
    wait: tuple[int, int] = (0, 0)


class TracedRequest(Struct, gc=False):
    """A completed request of an I/O: its ``operation``, and its times in microseconds.

    ``got`` and ``sent`` are when the I/O got its request, and the driver the command, or 0 without
    such events. ``allocated`` is the maximum of the disk's requests while the I/O waited for one,
    ``issued`` of the commands in the driver while the request waited for its issue. ``sector`` and
    ``sectors`` are its place on the device and its size. Its completion ``waited`` for ``cpu``.
    """

    device: str
    operation: str
    queued: int
    got: int = 0
    sent: int = 0
    completed: int = 0
    allocated: int = 0
    issued: int = 0
    sector: int = 0
    sectors: int = 0
    waited: int = 0
    cpu: int = 0

    @property
    def stages(self) -> tuple[int, int, int]:
        """The microseconds to the request, to its issue and to its completion."""
        return self.got - self.queued, self.sent - self.got, self.completed - self.sent


class BlockTrace(TraceInstance):
    """A trace of ``events`` of the block layer, which ends once a buffer is full.

    So a busy host has a shorter trace, not a more expensive one. With a ``device``, ``8:0``, only
    the block events of this disk and its partitions are recorded.
    """

    def __init__(self, name: str, events: Collection[str], device: str | None = None) -> None:
        device_filter = NO_FILTER
        if device is not None:
            major, minor = map(int, device.split(":"))
            device_filter = f"dev == {major << 20 | minor}"  # include/linux/kdev_t.h: MKDEV
        filters = {}
        for event in events:
            path = event if event in CPU_FILTERS else f"block/{event}"
            filters[path] = CPU_FILTERS.get(event, device_filter)
        # All CPUs together get at most 8 MiB up to 256 CPUs.
        super().__init__(name, filters, min(512, max(32, 8192 // (os.cpu_count() or 1))))

    def stop(self) -> Iterator[BlockEvent]:
        """Stop recording, and yield the events by time. Raises OSError."""
        self._write("tracing_on", "0")
        self._write("events/enable", "0")
        return self.read(MAX_EVENTS)

    def read(self, most: int | None = None) -> Iterator[BlockEvent]:
        """Yield the events that are recorded and not yet read, by time. Raises OSError."""
        # Without waiting for more: the reader ends after the last event.
        descriptor = os.open(self._folder / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as lines:
            yield from islice(parse_events(lines), most)


class _CpuWaits:
    """The latest waits for CPUs: of softirqs by CPU, and of tasks by process id. Mutable."""

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}
        self._waits: dict[tuple[int | str, str], tuple[int, int]] = {}

    def add_softirq(self, pid: str, cpu: int, context: str, time_us: int) -> None:
        """Begin the wait of a softirq. It includes the wait of the thread that raised it."""
        begin, end = self._waits.pop((pid, context), (0, 0))
        self._waits[cpu, "s"] = time_us - (end - begin), 0

    def add_switch(self, cpu: int, time_us: int, pid: str, priority: int) -> None:
        """Begin the wait for a task with this priority, or end the wait of this process."""
        if priority < _THREAD_PRIORITY:
            self._taken.setdefault(cpu, time_us)
        else:
            self._waits[pid, "."] = self._taken.pop(cpu, time_us), time_us

    def find(self, pid: str, cpu: int, context: str, time_us: int) -> tuple[int, int]:
        """Return the wait that ended before an event in this context, or at the first event."""
        key = (cpu if context == "s" else pid), context
        begin, end = self._waits.get(key, (0, 0))
        if begin and not end:
            end = time_us
            self._waits[key] = begin, end
        return begin, end


def parse_events(lines: Iterable[bytes]) -> Iterator[BlockEvent]:
    """Yield the block events of a trace as tracefs prints it. Other lines are skipped."""
    waits = _CpuWaits()
    for line in lines:
        text = line.decode("ascii", "replace")
        if parts := _EVENT.search(text):
            pid, cpu, context, second, micros, *block = parts.groups()
            name, device, operation, sector, sectors, *before = block
            time_us, position, source = int(second + micros), (device, int(sector)), None
            if before[0]:
                source = before[0], int(before[1])
            wait = waits.find(pid, int(cpu), context, time_us)
            values = (name, time_us, position, operation, int(sectors), source)
            yield BlockEvent(*values, int(cpu), wait)
        elif parts := _CPU_EVENT.search(text):
            pid, cpu, context, second, micros, next_pid, priority = parts.groups()
            if next_pid is None:
                waits.add_softirq(pid, int(cpu), context, int(second + micros))
            else:
                waits.add_switch(int(cpu), int(second + micros), next_pid, int(priority))


class _Usage:
    """The number of requests, or of commands in the driver, during a trace, if ``needed``."""

    def __init__(self, *, needed: bool) -> None:
        self._needed = needed
        self._begun: set[Position] = set()
        self._older = 0
        self._times, self._counts = [0], [0]

    def count(self, position: Position, time_us: int, change: int) -> None:
        """Add a request (1), or remove one (-1), which is older than the trace if never added."""
        if not self._needed:
            return
        if change > 0:
            self._begun.add(position)
        elif position not in self._begun:
            self._older += 1
        self._times.append(time_us)
        self._counts.append(self._counts[-1] + change)

    def find_peak(self, begin_us: int, end_us: int) -> int:
        """Return the maximum between two times, once all events have been counted."""
        first = max(0, bisect_left(self._times, begin_us) - 1)
        # The clocks of two CPUs can differ. Then the end can be before the begin.
        last = max(first + 1, bisect_right(self._times, end_us))
        return self._older + max(self._counts[first:last])


def pair_requests(events: Iterable[BlockEvent]) -> Iterator[TracedRequest]:
    """Yield the requests of I/Os that began and completed in a trace, when they complete.

    Flushes and discards are excluded, a merged I/O counts with its request, and each part of a
    split I/O has the start of the complete I/O.
    """
    return _pair_requests(events, _Usage(needed=False), _Usage(needed=False))


def trace_requests(events: Iterable[BlockEvent]) -> list[TracedRequest]:
    """Return the requests like ``pair_requests``, with ``allocated`` and ``issued``."""
    requests, commands = _Usage(needed=True), _Usage(needed=True)
    completed = list(_pair_requests(events, requests, commands))
    for io in completed:
        if io.got and io.sent:
            io.allocated = requests.find_peak(io.queued, io.got)
            io.issued = commands.find_peak(io.got, io.sent)
    return completed


def _pair_requests(
    events: Iterable[BlockEvent], requests: _Usage, commands: _Usage
) -> Iterator[TracedRequest]:
    pending: dict[Position, TracedRequest] = {}
    for event in events:
        position, (device, sector), time = event.position, event.position, event.time_us
        if not event.sectors or event.operation[0] == "D":
            continue
        io = pending.get(position)
        match event.name:
            case "block_bio_queue":
                pending[position] = TracedRequest(device, event.operation, time)
            case "block_split" if io:
                pending[device, event.sectors] = replace(io)
            case "block_bio_remap" | "block_bio_frontmerge":
                moved = event.source or (device, sector + event.sectors)
                if moved in pending:
                    io = pending[position] = pending.pop(moved)
                    if io.got:
                        requests.count(moved, time, -1)
                        requests.count(position, time, 1)
            case "block_getrq":
                requests.count(position, time, 1)
                if io:
                    io.got = time
            case "block_rq_issue":
                commands.count(position, time, 1)
                if io:
                    io.sent = time
            case "block_rq_requeue" if io and io.sent:
                commands.count(position, time, -1)
                io.sent = 0
            case "block_bio_backmerge" | "block_rq_merge":
                pending.pop(position, None)
                if event.name == "block_rq_merge":
                    requests.count(position, time, -1)
            case "block_rq_complete":
                requests.count(position, time, -1)
                commands.count(position, time, -1)
                if io:
                    io.device, io.completed = device, time
                    io.sector, io.sectors = sector, event.sectors
                    begin, end = event.wait
                    io.cpu, io.waited = event.cpu, max(0, end - max(begin, io.sent))
                    yield pending.pop(position)
