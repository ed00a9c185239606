"""Run in a described machine's namespace: the daemon, and thousands of disks that come.

Argument: how many. Each is announced as a disk that the kernel has never numbered so before, with
a value to be set, once the last one is dealt with; udev is the script itself. Prints one JSON
object: the KiB of each process of the service after each tenth of them, open descriptors, and how
many values were set.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hbatune.agent import status
from hbatune.agent.events import DeviceEvent
from hbatune.cli.commands import daemon
from tests.bench.events import memory, tree

BLOCK = Path("/sys/class/block")
CONFIGURATION = """
profile = "oltp"
[act]
memory_share = 1.0
[daemon]
audit_seconds = 30
[watch]
interval_seconds = 1
counters_seconds = 5
"""


class Arrivals:
    """A source of events in the place of udev's: one disk after another. Readable as one comes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._disks = sorted(path.name for path in BLOCK.iterdir())
        self._come = -1
        self._reader, self._writer = os.pipe()
        self.seen: list[dict[str, Any]] = []

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reader

    def take(self) -> tuple[tuple[DeviceEvent, ...], bool]:
        """Return the disk that has come."""
        os.read(self._reader, 1)
        return (DeviceEvent(self._disk),), False

    def after_pass(self, passes: int) -> None:
        """Let the next disk come, or the daemon stop after the last."""
        if passes <= self._come + 1:
            return  # the status was saved for another reason
        self._come += 1
        if self._come and self._come % (self._count // 10) == 0:
            self.seen.append(service())
        if self._come == self._count:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        (BLOCK / self._disk / "diskseq").write_text(f"{1000 + self._come}\n")
        (BLOCK / self._disk / "queue/nr_requests").write_text("100\n")
        os.write(self._writer, b"!")

    @property
    def _disk(self) -> str:
        return self._disks[self._come % len(self._disks)]


def service() -> dict[str, Any]:
    """Return what the processes of this service have in memory, and the daemon's descriptors."""
    rss = {pid: memory(pid)["Rss"] for pid in tree(os.getpid())}
    daemon_rss = rss.pop(os.getpid())
    files = len(os.listdir("/proc/self/fd"))
    return {"daemon": daemon_rss, "others": list(rss.values()), "descriptors": files}


def main(count: int) -> None:
    """Be the daemon until all have come."""
    for folder in ("/etc/hbatune", "/var/lib/hbatune"):
        Path(folder).mkdir(exist_ok=True)
    Path("/etc/hbatune/hbatune.toml").write_text(CONFIGURATION)
    arrivals, save, last = Arrivals(count), status.save, list[status.Status]()

    def save_and_go_on(path: Path, current: status.Status) -> None:
        save(path, current)
        last[:] = [current]
        arrivals.after_pass(current.passes)

    setattr(status, "save", save_and_go_on)  # noqa: B010  (mypy: it is a function's name)
    setattr(daemon, "UdevMonitor", lambda buffer: arrivals)  # noqa: B010
    standard = os.dup(1)
    os.dup2(2, 1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # the daemon says what it has set
    daemon.run(SimpleNamespace())  # type: ignore[arg-type]
    results = {"events": count, "written": last[0].written, "tenths": arrivals.seen}
    os.write(standard, json.dumps(results).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
