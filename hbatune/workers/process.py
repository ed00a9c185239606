"""Processes with a unique identity: the kernel reuses pids."""

import os
from functools import lru_cache

from msgspec import Struct

from hbatune import processes


class Process(Struct, frozen=True):
    """A process, distinguished from a later one with the same pid by its start time."""

    pid: int
    start_time: int

    def alive(self) -> bool:
        """Return whether it still runs; a zombie does not."""
        return processes.is_alive(self.pid, self.start_time)


def find_this_process() -> Process:
    """Return the process that runs this code."""
    return _get_current(os.getpid())


@lru_cache(maxsize=1)
def _get_current(pid: int) -> Process:
    return find_process(pid)


# A fork may get the pid of a process before its parent, whose start time is cached.
os.register_at_fork(after_in_child=_get_current.cache_clear)


def find_process(pid: int) -> Process:
    """Return the process that has this pid now, with start time 0 if there is no such process."""
    times = processes.read_process_state(pid)
    return Process(pid, times[0] if times else 0)
