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


def command_and_start(pid: int) -> str:
    """Return a process's command and local start time as text, or an empty text if unknown."""
    import time  # not for `hbatune status`

    found = start_and_end(pid)
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:
            words = file.read(4096).decode(errors="replace").split("\0")
        with open("/proc/uptime", "rb", buffering=0) as file:
            uptime = float(file.read().split()[0])
    except (OSError, ValueError):
        return ""
    if found is None:
        return ""
    # Without the interpreter, and with the program's name alone.
    first = 1 if "python" in words[0] and len(words) > 1 else 0
    command = " ".join([words[first].rpartition("/")[2], *words[first + 1 :]]).strip()
    printable = "".join(letter for letter in command if letter.isprintable())[:60]
    ticks = os.sysconf("SC_CLK_TCK")
    since = time.localtime(time.time() - uptime + found[0] / ticks)
    return f": `{printable}`, started {time.strftime('%Y-%m-%d %H:%M:%S', since)}"
