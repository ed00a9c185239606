"""Information about processes in /proc, with as few imports as `hbatune status` requires."""

import os
import time
from pathlib import Path


def read_process_state(pid: int) -> tuple[int, bool] | None:
    """Return a process's start in clock ticks since boot, and whether it is a zombie, or None."""
    fields = _read_fields(pid)  # proc(5): fields 22 and 3 of /proc/PID/stat
    return (int(fields[19]), fields[0] in b"ZX") if fields else None


def find_parent(pid: int) -> int:
    """Return the parent of a process, or 0 if there is no such process."""
    fields = _read_fields(pid)
    return int(fields[1]) if fields else 0


def read_age(pid: int) -> float:
    """Return the seconds since a process began, or -1 if there is no such process."""
    state = read_process_state(pid)
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    return uptime - state[0] / os.sysconf("SC_CLK_TCK") if state else -1.0


def _read_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the second one, or none if it cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def has_living_author(path: Path) -> bool:
    """Return whether the process that wrote its pid and start time into this file still runs."""
    try:
        with path.open("rb", buffering=0) as file:
            pid, start_time = map(int, file.read(64).split())
    except (OSError, ValueError):
        return False
    return is_alive(pid, start_time)


def is_alive(pid: int, start_time: int) -> bool:
    """Return whether the process with this pid and start time still runs; a zombie does not."""
    # A zombie has left the kernel: its write has taken effect or never will.
    return read_process_state(pid) == (start_time, False)


def describe_process(pid: int) -> str:
    """Return a process's command and local start time as text, or an empty text if unknown."""
    if (age := read_age(pid)) < 0:
        return ""
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            words = file.read(4096).decode(errors="replace").split("\0")
    except OSError:
        return ""
    # Without the interpreter, and without the program's directory.
    first = 1 if "python" in words[0] and len(words) > 1 else 0
    command = " ".join([words[first].rpartition("/")[2], *words[first + 1 :]]).strip()
    printable = "".join(filter(str.isprintable, command))[:60]
    since = time.localtime(time.time() - age)
    return f"`{printable}`, started {time.strftime('%Y-%m-%d %H:%M:%S', since)}"


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped the process (proc(5): state T)."""
    return _read_fields(pid)[:1] == [b"T"]


def read_clock_id() -> str:
    """Return an id of CLOCK_MONOTONIC: of the boot, and of the time namespace if there is one.

    Times of two processes are comparable if their ids are equal (time_namespaces(7)).
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    try:
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:  # a kernel without time namespaces
        return boot
