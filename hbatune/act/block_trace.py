"""Trace the block layer or writes to sysfs in a private instance of tracefs; pair block events.

No other user of tracefs sees an instance or its events. The kernel records no more block events
once a buffer is full, so a busy host has a shorter trace, not a more expensive one.
"""

import os
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from glob import glob
from io import BufferedReader
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import sampler

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
_WRITE = re.compile(  # a process's name may contain line breaks
    r'(?s)-(\d+) +\[\d+\] \S+ +([\d.]+): write: \S+ a=(\d+) b=(\d+) name="(.*?)" comm="(.{,15}?)"\n'
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


class SettingWrite(Struct, frozen=True, order=True, gc=False):
    """A write of a thread to an attribute in sysfs, in seconds of the monotonic clock."""

    time: float
    pid: int
    inode: int
    attribute: str
    comm: str = ""


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


class BlockTrace:
    """A trace of ``events`` in the instance ``name``. The instance stays until ``remove``.

    With a ``device``, ``8:0``, only the block events of this disk and its partitions are recorded.
    """

    # Of each CPU. All of them get at most 8 MiB up to 256 CPUs.
    _overwrite, _kib = "0", min(512, max(32, 8192 // (os.cpu_count() or 1)))

    def __init__(self, name: str, events: Collection[str], device: str | None = None) -> None:
        self._folder = Path(sampler.TRACEFS, "instances", name)
        self._open: BufferedReader | None = None
        device_filter = "0"  # no filter
        if device is not None:
            major, minor = map(int, device.split(":"))
            device_filter = f"dev == {major << 20 | minor}"  # include/linux/kdev_t.h: MKDEV
        self._filters = {}
        for event in events:
            path = event if "/" in event else f"block/{event}"
            self._filters[path] = CPU_FILTERS.get(event, device_filter)

    def start(self) -> None:
        """Record from now on. Raises OSError if there is no tracefs or the kernel forbids it."""
        if self._open is None:
            self._folder.mkdir(exist_ok=True)
            self._write("tracing_on", "0")
            # The kernel removes no instance with an open file (kernel/trace/trace.c:
            # __remove_instance), so another process removes only leftovers.
            self._open = (self._folder / "tracing_on").open("rb")
            self._write("buffer_size_kb", str(self._kib))
            self._write("trace_clock", "mono")  # the default clock differs between CPUs
            self._write("options/overwrite", self._overwrite)
        self._write("trace", "")  # empties the buffers
        for event, event_filter in self._filters.items():
            self._write(f"events/{event}/filter", event_filter)
            self._write(f"events/{event}/enable", "1")
        self._write("tracing_on", "1")

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

    def count_lost(self) -> int:
        """Return the number of events since ``start`` for which a buffer was full."""
        return self._sum_counter("dropped events")

    def count_read(self) -> int:
        """Return the number of events since ``start`` that were read."""
        return self._sum_counter("read events")

    def _sum_counter(self, name: str) -> int:
        return sum(int(stats.partition(f"{name}: ")[2].split()[0]) for stats in self._read_stats())

    def _read_stats(self) -> Iterator[str]:
        return map(Path.read_text, self._folder.glob("per_cpu/cpu*/stats"))

    def remove(self) -> None:
        """Remove the instance, also one that a killed process has left."""
        if self._open is not None:
            self._open.close()
            self._open = None
        remove_leftovers(self._folder.name)

    def _write(self, name: str, value: str, mode: str = "wb") -> None:
        with open(self._folder / name, mode, buffering=0) as file:
            file.write(value.encode())


class WriteTrace(BlockTrace):
    """The latest writes to sysfs, also of other network namespaces. They wake up no process."""

    _overwrite, _kib = "1", min(64, max(8, 1024 // (os.cpu_count() or 1)))

    def start(self) -> None:
        """Record from now on. Raises OSError if the kernel forbids it."""
        self.remove()
        # struct kernfs_node has ``name`` there, then ``id`` and ``priv`` in either order.
        fields = "a=+96(+0($arg1)):u64 b=+104(+0($arg1)):u64 name=+0(+16(+0($arg1))):string"
        self._change_kprobes(f"p:hbatune/write sysfs_kf_write {fields} comm=$comm")
        super().start()

    def read_writes(self, since: float) -> tuple[list[SettingWrite], bool]:
        """Return the writes after this time, and whether none is missing. Raises OSError."""
        begin, writes, gap = time.monotonic(), [], 0.0
        with open(sampler.TEST_FILE, "wb", buffering=0) as file:
            file.write(b"")  # calls no driver (fs/sysfs/file.c: sysfs_kf_write)
            test = os.getpid(), os.fstat(file.fileno()).st_ino, Path(file.name).name
        lines = (self._folder / "trace").read_text(errors="replace")
        for pid, seconds, a, b, *names in _WRITE.findall(lines):
            # ``priv`` is a pointer, and larger.
            writes.append(SettingWrite(float(seconds), int(pid), min(int(a), int(b)), *names))
        # Another namespace has other pids or times, and an unusual kernel other structures.
        tests = (w.time for w in writes if (w.pid, w.inode, w.attribute) == test)
        if not any(-1e-6 <= at - begin <= 1 for at in tests):
            raise OSError("writes to sysfs are not recorded")
        for stats in self._read_stats():
            if "\noverrun: 0\n" not in stats:  # the oldest ones are lost
                gap = max(gap, float(stats.partition("event ts: ")[2].split()[0]))
        return [write for write in writes if write.time > max(since, gap)], gap < since

    def remove(self) -> None:
        """Remove the instance and the kprobe, also those that a killed process has left."""
        super().remove()
        with suppress(OSError):  # there is none
            self._change_kprobes("-:hbatune/write")

    def _change_kprobes(self, command: str) -> None:
        # Truncation would remove all kprobes (kernel/trace/trace_kprobe.c: probes_open).
        self._write(f"{sampler.TRACEFS}/kprobe_events", command, "r+b")


def remove_leftovers(pattern: str) -> None:
    """Remove the instances that killed processes have left, by a pattern of their names."""
    instances = Path(sampler.TRACEFS, "instances")
    for name in glob(pattern, root_dir=instances):  # none if it is not readable
        with suppress(OSError):  # a process uses it
            (instances / name).rmdir()


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
