"""Private instances of tracefs, and a trace of the writes to sysfs in one.

No other user of tracefs sees an instance or its events.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import glob
from io import BufferedReader
from pathlib import Path

from msgspec import Struct

from hbatune.facts import sampler

NO_FILTER = "0"
_WRITE = re.compile(  # a process's name may contain line breaks
    r'(?s)-(\d+) +\[\d+\] \S+ +([\d.]+): write: \S+ a=(\d+) b=(\d+) name="(.*?)" comm="(.{,15}?)"\n'
)


class TraceInstance:
    """A trace of events in the instance ``name``, which stays until ``remove``.

    ``filters`` has the filter of each event, by its path. Each CPU has a buffer of ``kib``. The
    kernel records nothing more once a buffer is full, or with ``overwrite`` only the latest events.
    """

    def __init__(
        self, name: str, filters: Mapping[str, str], kib: int, *, overwrite: bool = False
    ) -> None:
        self._folder = Path(sampler.TRACEFS, "instances", name)
        self._open: BufferedReader | None = None
        self._filters, self._kib, self._overwrite = filters, kib, overwrite

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
            self._write("options/overwrite", str(int(self._overwrite)))
        self._write("trace", "")  # empties the buffers
        for event, event_filter in self._filters.items():
            self._write(f"events/{event}/filter", event_filter)
            self._write(f"events/{event}/enable", "1")
        self._write("tracing_on", "1")

    def count_lost(self) -> int:
        """Return the number of events since ``start`` for which a buffer was full."""
        return self._sum_counter("dropped events")

    def count_read(self) -> int:
        """Return the number of events since ``start`` that were read."""
        return self._sum_counter("read events")

    def remove(self) -> None:
        """Remove the instance, also one that a killed process has left."""
        if self._open is not None:
            self._open.close()
            self._open = None
        remove_leftovers(self._folder.name)

    def _sum_counter(self, name: str) -> int:
        return sum(int(stats.partition(f"{name}: ")[2].split()[0]) for stats in self._read_stats())

    def _read_stats(self) -> Iterator[str]:
        return map(Path.read_text, self._folder.glob("per_cpu/cpu*/stats"))

    def _write(self, name: str, value: str, mode: str = "wb") -> None:
        with open(self._folder / name, mode, buffering=0) as file:
            file.write(value.encode())


def remove_leftovers(pattern: str) -> None:
    """Remove the instances that killed processes have left, by a pattern of their names."""
    instances = Path(sampler.TRACEFS, "instances")
    for name in glob(pattern, root_dir=instances):  # none if it is not readable
        with suppress(OSError):  # a process uses it
            (instances / name).rmdir()


class SettingWrite(Struct, frozen=True, order=True, gc=False):
    """A write of a thread to an attribute in sysfs, in seconds of the monotonic clock."""

    time: float
    pid: int
    inode: int
    attribute: str
    comm: str = ""


class WriteTrace(TraceInstance):
    """The latest writes to sysfs, also of other network namespaces. They wake up no process."""

    def __init__(self) -> None:
        kib = min(64, max(8, 1024 // (os.cpu_count() or 1)))
        super().__init__("hbatune-writes", {"hbatune/write": NO_FILTER}, kib, overwrite=True)

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
        """Remove the instance and the kprobe, also after the process that made them was killed."""
        super().remove()
        with suppress(OSError):  # no kprobe exists
            self._change_kprobes("-:hbatune/write")

    def _change_kprobes(self, command: str) -> None:
        # Truncation would remove all kprobes (kernel/trace/trace_kprobe.c: probes_open).
        self._write(f"{sampler.TRACEFS}/kprobe_events", command, "r+b")
