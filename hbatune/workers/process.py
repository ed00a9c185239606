"""Processes with a unique identity: the kernel reuses pids."""

import os

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
    return find_process(os.getpid())


def find_process(pid: int) -> Process:
    """Return the process that has this pid now, with start time 0 if there is no such process."""
    times = processes.read_process_state(pid)
    return Process(pid, times[0] if times else 0)
