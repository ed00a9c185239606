"""Find out whether commands hang at a disk's queue. All files read here answer if they do.

A write to a queue waits, uninterruptibly, until all commands in flight have ended (block/blk-mq.c:
blk_mq_freeze_queue_wait). If the kernel locks the adapter for it, no disk of the adapter can be
added, removed or set until then (block/blk-sysfs.c: queue_requests_store).
"""

import os
import re
import time
from pathlib import Path

from msgspec import Struct

from hbatune.facts.attributes import read_text

DEBUGFS = Path("/sys/kernel/debug/block")

OBSERVATION_S = 1.0
"""Seconds without a completed command after which the outstanding ones count as hanging."""
_FIRST_PAUSE_S = 0.001
_MAX_PAUSE_S = 0.05

_RUNNING = {
    "device": ("running", "live"),
    "host": ("running",),
    "port": ("Online",),
    "session": ("LOGGED_IN",),
    "map": ("0",),
}
"""By subject, the states in which commands are executed; of a map, whether it is suspended."""
_HOST, _PORT, _SESSION = re.compile(r"host\d+"), re.compile(r"rport-[\d:-]+"), re.compile("session")
_AGE = re.compile(r"allocated\s(\d+)\.")
# Documentation/block/stat.rst: completed reads, writes, discards and flushes.
_COMPLETED = (0, 4, 11, 15)


class QueueLoad(Struct, frozen=True):
    """The number of ``outstanding`` commands, and the number of ``completed`` ones since boot."""

    outstanding: int = 0
    completed: int = 0  # read only if commands are outstanding
    state: str | None = None  # of a device, host, port or map that executes no commands now


class Hang(Struct, frozen=True):
    """The number of commands that hang, and the minimum age of the oldest in s."""

    commands: int
    age: int
    state: str | None = None  # of a device, host, port or map that executes no commands


class CommandCounters:
    """The counters and states of one disk, by the directory of its block device, without links."""

    def __init__(self, sysfs: str) -> None:
        self._sysfs = sysfs
        files = _list_state_files(sysfs)
        self._states = [(subject, path) for subject, path in files if os.path.exists(path)]

    def read(self) -> QueueLoad:
        """Return the present load."""
        # Without commands of user space (SG_IO), and zero with iostats 0 (block/genhd.c:
        # part_inflight_show).
        in_flight = sum(self._read_numbers("inflight"))
        # All commands of the LUN (drivers/scsi/scsi_sysfs.c: sdev_show_device_busy). The difference
        # of iorequest_cnt and iodone_cnt is no such number: older kernels never count a command
        # that timed out as done (drivers/scsi/scsi_error.c: scsi_timeout).
        outstanding = max(in_flight, sum(self._read_numbers("device/device_busy")))
        completed = 0
        if outstanding:
            completed = sum(self._read_numbers("device/iodone_cnt"))
            statistics = self._read_numbers("stat")
            for position in _COMPLETED:
                completed += sum(statistics[position : position + 1])
        return QueueLoad(outstanding, completed, self._find_state())

    def read_age(self) -> int | None:
        """Return the age in s of the oldest outstanding command, or None."""
        ages = [0]  # only of SCSI commands (drivers/scsi/scsi_debugfs.c: scsi_show_rq)
        for path in (DEBUGFS / os.path.basename(self._sysfs)).glob("hctx*/busy"):
            ages += map(int, _AGE.findall(read_text(str(path))))
        return max(ages) or None

    def _read_numbers(self, name: str) -> list[int]:
        """Return the numbers in a file, which may be hexadecimal with a prefix, or none."""
        try:
            return [int(word, 0) for word in read_text(f"{self._sysfs}/{name}").split()]
        except ValueError:
            return []

    def _find_state(self) -> str | None:
        for subject, path in self._states:
            state = read_text(path).strip()
            if state and state not in _RUNNING[subject]:
                return f"the {subject} is {'suspended' if subject == 'map' else state}"
        return None


def find_hang(counters: CommandCounters, seconds: float = OBSERVATION_S) -> Hang | None:
    """Return the commands for which a write to the queue would wait too long, or None.

    Returns immediately if nothing is outstanding, and otherwise within the ``seconds``. A command
    that completes until then is slow and does not hang.
    """
    began, pause = time.monotonic(), _FIRST_PAUSE_S
    first = load = counters.read()
    while load.state or (load.outstanding and load.completed == first.completed):
        if time.monotonic() - began >= seconds:
            return Hang(load.outstanding, max(counters.read_age() or 0, int(seconds)), load.state)
        time.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_S)
        load = counters.read()
    return None


def _list_state_files(sysfs: str) -> list[tuple[str, str]]:
    """Return the files with the states of a disk's device and of the devices above it."""
    files = [("device", f"{sysfs}/device/state"), ("map", f"{sysfs}/dm/suspended")]
    directory = sysfs
    while (parent := os.path.dirname(directory)) != directory:
        name = os.path.basename(directory)
        if _HOST.fullmatch(name):
            files.append(("host", f"{directory}/scsi_host/{name}/state"))
        elif _PORT.fullmatch(name):
            files.append(("port", f"{directory}/fc_remote_ports/{name}/port_state"))
        elif _SESSION.match(name):
            files.append(("session", f"{directory}/iscsi_session/{name}/state"))
        directory = parent
    return files
