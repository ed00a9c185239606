"""What /proc says of a process, read with as little as `hbatune status` may import."""

import os


def start_and_end(pid: int) -> tuple[int, bool] | None:
    """Return a process's start time in clock ticks since boot, and whether it is a zombie.

    proc(5): fields 22 and 3 of /proc/PID/stat; the second may contain blanks and parentheses. None
    where there is no such process.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19]), fields[0] in b"ZX"


def lives(pid: int, start_time: int) -> bool:
    """Whether the process with this pid and start time still runs; a zombie does not."""
    # A zombie has left the kernel: its write has landed or never will.
    return start_and_end(pid) == (start_time, False)


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process (proc(5): state T)."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def clock_id() -> str:
    """Return an id of CLOCK_MONOTONIC: of the boot, and of the time namespace if there is one.

    Times of two processes are comparable if their ids are equal (time_namespaces(7)).
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    try:
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:  # a kernel without time namespaces
        return boot
