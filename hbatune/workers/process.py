"""A process identified by more than its pid, which the kernel uses again."""

import os
from functools import lru_cache

from msgspec import Struct

from hbatune import processes


class Process(Struct, frozen=True):
    """A process, told from a later one with the same pid by its start time."""

    pid: int
    start_time: int

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        return processes.lives(self.pid, self.start_time)


def this_process() -> Process:
    """Return the process that runs this code."""
    return _own(os.getpid())


@lru_cache(maxsize=1)
def _own(pid: int) -> Process:
    return process(pid)


# A fork may get the pid that a process before its parent had.
os.register_at_fork(after_in_child=_own.cache_clear)


def process(pid: int) -> Process:
    """Return the process that has this pid now, with start time 0 where there is none."""
    found = processes.start_and_end(pid)
    return Process(pid, found[0] if found else 0)
