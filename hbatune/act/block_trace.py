"""Trace the block layer in a private instance of tracefs, and pair its events.

No other user of tracefs sees an instance or its events. The kernel records nothing more once a
buffer is full, so a busy host has a shorter trace, not a more expensive one.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from hbatune.facts import sampler

LATENCY_EVENTS = (
    "block_bio_queue",
    "block_bio_remap",
    "block_split",
    "block_bio_backmerge",
    "block_bio_frontmerge",
    "block_rq_merge",
    "block_rq_complete",
)
"""The events for latencies from the entry into the block layer to the completion."""
MAX_EVENTS = 20_000
"""Events to read of one trace, the earliest first."""
# include/trace/events/block.h. The name of a process is too short to contain a match.
_EVENT = re.compile(
    r" (\d+)\.(\d{6}): (block_\w+): (\d+,\d+) ([A-Z]+) (?:\d+ )?(?:\(.*?\) )?(\d+) [+/] (\d+)"
    r"(?: <- \((\d+,\d+)\) (\d+))?"
)

Position = tuple[str, int]
"""A device, ``8,0``, and a sector."""


class BlockEvent(Struct, frozen=True, gc=False):
    """An event of the block layer, at ``time_us`` of the monotonic clock.

    ``operation`` is the kernel's, such as ``WS``. ``sectors`` is the size, or the second sector of
    a split. ``source`` is the position before a remap.
    """

    name: str
    time_us: int
    position: Position
    operation: str
    sectors: int
    source: Position | None


class BlockTrace:
    """A trace of ``events`` in the instance ``name``. The instance stays until ``remove``."""

    def __init__(self, name: str, events: Collection[str]) -> None:
        self._folder = Path(sampler.TRACEFS, "instances", name)
        self._events = events

    def start(self) -> None:
        """Record from now on. Raises OSError if there is no tracefs or the kernel forbids it."""
        if not self._folder.is_dir():
            self._folder.mkdir()
            self._write("tracing_on", "0")
            # Of each CPU. All of them get at most 8 MiB up to 256 CPUs.
            kib = min(512, max(32, 8192 // (os.cpu_count() or 1)))
            self._write("buffer_size_kb", str(kib))
            self._write("trace_clock", "mono")  # the default clock differs between CPUs
            self._write("options/overwrite", "0")
        self._write("trace", "")  # empties the buffers
        for event in self._events:
            self._write(f"events/block/{event}/enable", "1")
        self._write("tracing_on", "1")

    def stop(self) -> Iterator[BlockEvent]:
        """Stop recording, and yield the events by time. Raises OSError."""
        self._write("tracing_on", "0")
        self._write("events/block/enable", "0")
        # Without waiting for more: the reader ends after the last event.
        descriptor = os.open(self._folder / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as lines:
            yield from parse_events(islice(lines, MAX_EVENTS))

    def remove(self) -> None:
        """Remove the instance, also one that a killed process has left."""
        with suppress(OSError):
            self._folder.rmdir()

    def _write(self, name: str, value: str) -> None:
        (self._folder / name).write_text(value)


def parse_events(lines: Iterable[bytes]) -> Iterator[BlockEvent]:
    """Yield the events of a trace as tracefs prints it. Other lines are skipped."""
    for line in lines:
        if found := _EVENT.search(line.decode("ascii", "replace")):
            second, micros, name, device, operation, sector, sectors, *before = found.groups()
            time_us, position, source = int(second + micros), (device, int(sector)), None
            if before[0]:
                source = before[0], int(before[1])
            yield BlockEvent(name, time_us, position, operation, int(sectors), source)


def pair_events(events: Iterable[BlockEvent]) -> Iterator[tuple[str, int]]:
    """Yield the device, ``8:0``, and the microseconds of each I/O that began and ended in a trace.

    As in templates/latency.bt.j2, flushes and discards are excluded, a merged I/O counts with its
    request, and each part of a split I/O has the start of the whole.
    """
    starts: dict[Position, int] = {}
    for event in events:
        position, (device, sector) = event.position, event.position
        if event.name == "block_bio_queue" and event.sectors and event.operation[0] != "D":
            starts[position] = event.time_us
        elif event.name == "block_split" and position in starts:
            starts[device, event.sectors] = starts[position]
        elif event.name in ("block_bio_remap", "block_bio_frontmerge"):
            start = starts.pop(event.source or (device, sector + event.sectors), None)
            if start is not None:
                starts[position] = start
        elif event.name in ("block_bio_backmerge", "block_rq_merge", "block_rq_complete"):
            start = starts.pop(position, None)
            if start is not None and event.name == "block_rq_complete":
                yield device.replace(",", ":"), event.time_us - start
