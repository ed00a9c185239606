"""The watch against fio, and alerts that real causes raise and their end clears."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbatune.probe import history
from hbatune.probe.history import Record
from hbatune.probe.knee import Knee
from hbatune.probe.result import Pattern, Workload
from tests.lab.guest.command import configure, hbatune, objective
from tests.lab.guest.kit import SCSI_DEBUG, set_service_time, wait_a_moment
from tests.lab.guest.values import put

KERNELS = ("6.12",)
INSTANCES = Path("/sys/kernel/tracing/instances")
HISTORY = Path("/var/lib/hbatune/history.json")

SLOW_NS, QUICK_NS = 200_000_000, 1_000_000
"""Compared with the slow one, the delays of fio on an emulated CPU are small."""
TIMEOUT = 4  # drivers/scsi/scsi_debug.c: SDEBUG_OPT_TIMEOUT


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    configure("")
    HISTORY.unlink(missing_ok=True)


def readings(*words: str) -> list[dict[str, Any]]:
    """Return the documents that `watch` prints."""
    done = hbatune("watch", "--json", *words)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def fio(disk: str, depth: int, seconds: float, *words: str) -> subprocess.Popen[bytes]:
    """Begin to read at random."""
    return subprocess.Popen(
        [
            *("fio", "--name=load", f"--filename=/dev/{disk}", "--readonly", "--rw=randread"),
            *("--bs=4k", "--direct=1", "--ioengine=libaio", f"--iodepth={depth}"),
            *("--time_based", f"--runtime={seconds}", "--output-format=json", *words),
        ],
        stdout=subprocess.PIPE,
    )


@contextmanager
def reading(disk: str, depth: int, *words: str) -> Iterator[None]:
    """Read at random for as long as the caller wants."""
    before = Path(f"/sys/block/{disk}/stat").read_text().split()[0]
    running = fio(disk, depth, 3600, *words)
    try:
        while Path(f"/sys/block/{disk}/stat").read_text().split()[0] == before:
            wait_a_moment()
        yield
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate()


def load(disk: str, depth: int, seconds: float) -> None:
    """Read at random for so long."""
    fio(disk, depth, seconds).communicate()


def list_percentiles(log: Path, first: float, last: float) -> list[float]:
    """Return the p99 in ms of fio's reads in each 2 s between two times."""
    reads = []
    for line in log.read_text().splitlines():
        milliseconds, ns, *_ = map(int, line.split(","))
        if first <= milliseconds / 1000 <= last:
            reads.append((milliseconds / 1000, ns / 1e6))
    percentiles = []
    for tenth in range(int((last - first - 2) * 10) + 1):
        begin = first + tenth / 10
        sample = sorted(took for time, took in reads if begin <= time < begin + 2)
        percentiles.append(sample[len(sample) * 99 // 100])
    return percentiles


@pytest.mark.deadline(900)
def test_p99_matches_fio(scsi_debug: Callable[..., list[str]], tmp_path: Path) -> None:
    """A queue that is twice full: from issue to completion is half of what fio waits."""
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SLOW_NS)
    put(disk, "device/queue_depth", "32")
    log = (f"--write_lat_log={tmp_path}/fio", "--log_unix_epoch=1", "--disable_clat=1")
    with reading(disk, 64, *log):
        begin = time.time()
        [document] = readings("--interval", "10", "--count", "1", disk)
        end = time.time()
    [shown] = document["readings"]
    assert shown["p99_sampled"]
    assert shown["p99_ms"] > 1.8 * SLOW_NS / 1e6
    percentiles = list_percentiles(tmp_path / "fio_lat.1.log", begin, end)
    nearest = min(percentiles, key=lambda p99: abs(p99 - shown["p99_ms"]))
    assert shown["p99_ms"] == pytest.approx(nearest, rel=0.10), percentiles
    # By Little's law. fio counts a read until it has seen it complete, the kernel until it is
    # complete: on a busy host an emulated CPU takes a fifth of the time in between.
    assert 0.75 * 64 < shown["in_flight"] < 1.02 * 64


class Watching:
    """`hbatune watch` in the background, to be interrupted as by Ctrl-C."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        with log.open("wb") as out:
            self._running = subprocess.Popen(
                [shutil.which("hbatune") or "hbatune", "watch", "--json", *words], stdout=out
            )
        while not log.stat().st_size:  # until it watches
            assert self._running.poll() is None
            wait_a_moment()

    def kill(self) -> None:
        """End it without a chance to clean up."""
        self._running.kill()
        self._running.wait(60)

    def events(self) -> list[dict[str, Any]]:
        """End it, and return all that became of alerts."""
        self._running.send_signal(signal.SIGINT)
        assert self._running.wait(60) == 0
        documents = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [event for document in documents for event in document["events"]]


def list_traces() -> list[str]:
    return sorted(path.name for path in INSTANCES.glob("hbatune-watch-*"))


@pytest.mark.deadline(600)
def test_killed_watch_leaves_trace_only_to_next(
    scsi_debug: Callable[..., list[str]], tmp_path: Path
) -> None:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=QUICK_NS)
    assert list_traces() == []
    with reading(disk, 4):
        watching = Watching(tmp_path / "log", "--interval", "1", disk)
        traces = list_traces()
        assert len(traces) == 1
        # A second watch measures as well, and removes only its own trace.
        [document] = readings("--count", "1", disk)
        assert document["readings"][0]["p99_ms"] > QUICK_NS / 1e6
        assert list_traces() == traces
        watching.kill()
        assert list_traces() == traces
        readings("--interval", "0.1", "--count", "1", disk)
        assert list_traces() == []


@pytest.mark.deadline(600)
def test_remedy_for_missing_tracefs_works(scsi_debug: Callable[..., list[str]]) -> None:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=QUICK_NS)
    command = f"hbatune watch --json --count 1 {disk}"
    script = f"umount /sys/kernel/tracing && {command} 2>note && $(grep -o 'mount -t [^`]*' note)"
    with reading(disk, 4):
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", f"cd /run && {script} && {command}"],
            capture_output=True,
            text=True,
            check=True,
        )
    without, measured = (json.loads(line)["readings"][0] for line in done.stdout.splitlines())
    assert without["p99_ms"] is None
    assert measured["p99_ms"] > QUICK_NS / 1e6


def changes(events: list[dict[str, Any]], disk: str) -> Counter[tuple[str, str]]:
    """Return how often each alert of the disk was raised, and how often cleared."""
    return Counter(
        (event["alert"]["condition"], event["change"])
        for event in events
        if event["alert"]["target"] == disk
    )


def with_a_knee(disk: str, depth: int) -> None:
    """Let the history hold two sweeps of this disk: its knee is at ``depth`` for oltp's probe.

    The later one, of large writes, found it full at depth 1, which says nothing of a database.
    """
    endpoints = hbatune("list", "--json").json["endpoints"]
    [id] = [endpoint["id"] for endpoint in endpoints if endpoint["target"] == disk]
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    sweeps = (depth, Workload()), (1, Workload(Pattern.WRITE, 1 << 20))
    history.append(
        HISTORY,
        [
            Record(
                *(time.time(), "probe", os.uname().release, boot, None, disk, id, None),
                knee=Knee(full, full, full, 2 * full, 0.0, 1.0, None),
                workload=workload,
            )
            for full, workload in sweeps
        ],
    )


@pytest.mark.deadline(600)
def test_load_raises_and_clears_alerts(
    scsi_debug: Callable[..., list[str]], tmp_path: Path
) -> None:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SLOW_NS)
    configure("[watch]\nwindow_seconds = 6\n")
    with_a_knee(disk, 8)
    with objective(12):
        watching = Watching(tmp_path / "log", "--profile", "oltp", "--interval", "2", disk)
        load(disk, 24, 30)
        set_service_time("ndelay", QUICK_NS)
        load(disk, 1, 1)
        readings("--interval", "20", "--count", "1")
        alert_changes = changes(watching.events(), disk)
    wanted = ("p99", "utilisation", "depth-past-knee")
    assert alert_changes == Counter(
        (alert, change) for alert in wanted for change in ("raised", "cleared")
    )


@pytest.mark.deadline(600)
def test_timeouts_raise_one_alert(scsi_debug: Callable[..., list[str]], tmp_path: Path) -> None:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=QUICK_NS)
    configure("[watch]\nwindow_seconds = 6\n")
    put(disk, "device/timeout", "2")
    watching = Watching(tmp_path / "log", "--interval", "2", disk)
    readings("--interval", "5", "--count", "1")  # its first sample is taken by then
    (SCSI_DEBUG / "every_nth").write_text("200\n")
    (SCSI_DEBUG / "opts").write_text(f"{TIMEOUT}\n")
    try:
        load(disk, 4, 8)  # the kernel tries again, so fio sees none of it
    finally:
        (SCSI_DEBUG / "every_nth").write_text("0\n")
        (SCSI_DEBUG / "opts").write_text("0\n")
    readings("--interval", "20", "--count", "1")
    events = [e for e in watching.events() if e["alert"]["condition"] == "counters-rising"]
    assert [(e["change"], e["alert"]["detail"]) for e in events] == [
        ("raised", "timeouts"),
        ("cleared", "timeouts"),
    ]
