"""The watch against fio, and alerts that real causes raise and their end clears."""

import json
import os
import shutil
import signal
import subprocess
import sys
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
from hbatune.render import render_template
from tests.lab.guest.command import configure, hbatune, objective
from tests.lab.guest.kit import SCSI_DEBUG, set_service_time
from tests.lab.guest.values import put

KERNELS = ("6.12",)
LATENCY = Path("/run/hbatune/latency.json")
HISTORY = Path("/var/lib/hbatune/history.json")
UNIT = Path("/run/systemd/system/hbatune-latency.service")

SLOW_NS, QUICK_NS = 20_000_000, 1_000_000
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


@contextmanager
def measured(disk: str) -> Iterator[None]:
    """Let bpftrace measure, and go on once it has: an emulated CPU takes its time to compile."""
    configure("[watch]\nlatency_seconds = 5\n")
    collecting = subprocess.Popen([shutil.which("hbatune") or "hbatune", "watch", "--collect"])
    try:
        until_there(collecting)
        yield
    finally:
        collecting.send_signal(signal.SIGTERM)
        assert collecting.wait(60) == 0
    assert not LATENCY.exists()


def until_there(collecting: subprocess.Popen[bytes], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not LATENCY.exists():
        assert collecting.poll() is None, "it ended before it had measured anything"
        assert time.monotonic() < deadline, "nothing was measured"
        readings("--interval", "1", "--count", "1")


def fio(disk: str, depth: int, seconds: float) -> subprocess.Popen[bytes]:
    """Begin to read at random."""
    return subprocess.Popen(
        [
            *("fio", "--name=load", f"--filename=/dev/{disk}", "--readonly", "--rw=randread"),
            *("--bs=4k", "--direct=1", "--ioengine=libaio", f"--iodepth={depth}"),
            *("--time_based", f"--runtime={seconds}", "--output-format=json"),
            *("--lat_percentiles=1", "--percentile_list=99:99.9"),
        ],
        stdout=subprocess.PIPE,
    )


def load(disk: str, depth: int, seconds: float) -> dict[str, Any]:
    """Read at random for so long, and return what fio says of it."""
    out, _ = fio(disk, depth, seconds).communicate()
    report: dict[str, Any] = json.loads(out[out.index(b"{") :])
    return report


@pytest.mark.deadline(900)
def test_p99_matches_fio(scsi_debug: Callable[..., list[str]]) -> None:
    """A queue that is twice full: from issue to completion is half of what fio waits."""
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SLOW_NS)
    put(disk, "device/queue_depth", "32")
    with measured(disk):
        running = fio(disk, 64, 60)
        readings("--interval", "6", "--count", "1")  # its start, and the interval that has it
        [document] = readings("--interval", "20", "--count", "1", disk)
        out, _ = running.communicate()
    read_report = json.loads(out[out.index(b"{") :])["jobs"][0]["read"]
    [reading] = document["readings"]
    assert reading["p99_ms"] > 1.8 * SLOW_NS / 1e6
    assert reading["p99_ms"] == pytest.approx(
        read_report["lat_ns"]["percentile"]["99.000000"] / 1e6, rel=0.10
    )
    # By Little's law. fio counts a read until it has seen it complete, the kernel until it is
    # complete: on a busy host an emulated CPU takes a fifth of the time in between.
    in_flight = read_report["iops"] * read_report["lat_ns"]["mean"] / 1e9
    assert 0.75 * in_flight < reading["in_flight"] < 1.02 * in_flight


class Watching:
    """`hbatune watch` in the background, to be interrupted as by Ctrl-C."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        with log.open("wb") as out:
            self._running = subprocess.Popen(
                [shutil.which("hbatune") or "hbatune", "watch", "--json", *words], stdout=out
            )

    def events(self) -> list[dict[str, Any]]:
        """End it, and return all that became of alerts."""
        self._running.send_signal(signal.SIGINT)
        assert self._running.wait(60) == 0
        documents = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [event for document in documents for event in document["events"]]


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


@pytest.mark.deadline(600)
def test_latency_service_respects_limits() -> None:
    configure("[watch]\nlatency_seconds = 2\n")
    command = shutil.which("hbatune") or sys.executable
    template = f"{UNIT.name}.j2"
    UNIT.write_text(render_template("systemd", template, executable=command, at_home=False))
    systemctl("daemon-reload")
    systemctl("start", UNIT.name)
    try:
        deadline = time.monotonic() + 240
        while not LATENCY.exists():
            state = show_property("ActiveState")
            assert state == "active", journal()
            assert time.monotonic() < deadline, journal()
            readings("--interval", "1", "--count", "1")
        assert LATENCY.stat().st_mode & 0o777 == 0o600
        assert int(show_property("MemoryCurrent")) < 256 << 20
    finally:
        systemctl("stop", UNIT.name)
        result = show_property("Result")
        UNIT.unlink()
        systemctl("daemon-reload")
    assert result == "success"
    assert not LATENCY.exists()


def systemctl(*words: str) -> None:
    subprocess.run(["systemctl", *words], check=True)


def show_property(name: str) -> str:
    done = subprocess.run(
        ["systemctl", "show", "--value", "--property", name, UNIT.name],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def journal() -> str:
    done = subprocess.run(
        ["journalctl", "--no-pager", "-u", UNIT.name], capture_output=True, text=True, check=False
    )
    return done.stdout
