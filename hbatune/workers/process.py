"""A process identified by more than its pid, which the kernel uses again."""

import os

from msgspec import Struct


class Process(Struct, frozen=True):
    """A process, told from a later one with the same pid by its start time."""

    pid: int
    start_time: int

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        found = _stat(self.pid)
        # A zombie has left the kernel: its write has landed or never will.
        return found is not None and found == (self.start_time, False)


def this_process() -> Process:
    """Return the process that runs this code."""
    return process(os.getpid())


def process(pid: int) -> Process:
    """Return the process that has this pid now, with start time 0 where there is none."""
    found = _stat(pid)
    return Process(pid, found[0] if found else 0)


def _stat(pid: int) -> tuple[int, bool] | None:
    """Return a process's start time in clock ticks since boot, and whether it is a zombie.

    proc(5): fields 22 and 3 of /proc/PID/stat; the second may contain blanks and parentheses.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19]), fields[0] in b"ZX"
