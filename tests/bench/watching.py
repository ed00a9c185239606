"""Run in a described machine's namespace: the full screen of `watch` while all disks are busy.

Arguments: the hbatune to start, and for how many seconds to look. Prints one JSON object.
"""

import fcntl
import json
import os
import pty
import struct
import sys
import termios
import time
from pathlib import Path
from select import select

from tests.bench.idle import spent

STATS = Path("/proc/diskstats")
WIDTH, HEIGHT = 132, 43
START_S, LOAD_S = 30.0, 1.0


def write_load(lines: list[list[str]], turn: int) -> None:
    """Let all disks have done more: 500 reads with 700 ms of waiting each second."""
    text = ""
    for fields in lines:
        reads, sectors, waited = int(fields[3]), int(fields[5]), int(fields[6])
        counts = (reads + 500 * turn, fields[4], sectors + 4000 * turn, waited + 700 * turn)
        text += " ".join((*fields[:3], *map(str, counts), *fields[7:])) + "\n"
    STATS.write_text(text)


def main() -> None:
    """Start it, wait for its screen, and measure it with a load on all disks."""
    hbatune, seconds = sys.argv[1], float(sys.argv[2])
    lines = [line.split() for line in STATS.read_text().splitlines()]
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm"
        os.execv(hbatune, [hbatune, "watch", "--profile", "oltp"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    began, cpu, turn, output = time.monotonic(), 0.0, 0, b""
    since = began
    while not cpu or time.monotonic() - since < seconds:
        if time.monotonic() - began > turn * LOAD_S:
            turn += 1
            write_load(lines, turn)
        if select([terminal], [], [], 0.1)[0]:
            output += os.read(terminal, 1 << 16)
        if not cpu and time.monotonic() - began > START_S:
            since, cpu = time.monotonic(), spent(pid)
    took = time.monotonic() - since
    share = (spent(pid) - cpu) / took
    os.write(terminal, b"q")
    while select([terminal], [], [], 1.0)[0]:
        try:
            output += os.read(terminal, 1 << 16)
        except OSError:  # EIO: the screen has ended
            break
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    result = {
        "seconds": round(took, 1),
        "cpu_share": round(share, 4),
        "interval_seconds": 2,
        "screen": [WIDTH, HEIGHT],
        "pictures": output.count(b"\x1b[H"),
        "code": code,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
