"""What /proc says of a process, read with as little as `hbatune status` may import."""

from pathlib import Path


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


def author_lives(path: Path) -> bool:
    """Whether the process that wrote its pid and start time into this file still runs."""
    try:
        with path.open("rb", buffering=0) as file:
            pid, start_time = map(int, file.read(64).split())
    except (OSError, ValueError):
        return False
    return lives(pid, start_time)


def lives(pid: int, start_time: int) -> bool:
    """Whether the process with this pid and start time still runs; a zombie does not."""
    # A zombie has left the kernel: its write has landed or never will.
    return start_and_end(pid) == (start_time, False)
