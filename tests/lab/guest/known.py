"""Disks and profiles whose verdict is known in advance: scsi_debug serves each I/O in a fixed time.

By Little's law IOPS are depth / time, whatever the machine, as long as its CPU keeps up.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.lab.guest.command import Done, configure, hbatune
from tests.lab.guest.kit import set_service_time, wait_a_moment
from tests.lab.guest.values import cat, put

SERVICE_NS = 20_000_000
"""Long enough for emulated CPUs to keep 64 of them in flight."""
DEPTH = 64

PROFILES = Path("/etc/hbatune/profiles")
SHORT = "[probe]\nverify_seconds = 0.5\n"

_PROFILE = """\
title = "one setting, for a verdict that is known"

[probe]
pattern = "randread"
block_size = "4k"
depth = {depth}

[[rule]]
name = "the-change"
setting = "{setting}"
value = {value}
because = "its effect is known"
source = "site"
"""


def profile(name: str, setting: str, value: int, depth: int = DEPTH) -> tuple[str, ...]:
    """Write a profile of one rule; return the words that choose it."""
    PROFILES.mkdir(parents=True, exist_ok=True)
    text = _PROFILE.format(depth=depth, setting=setting, value=value)
    (PROFILES / f"{name}.toml").write_text(text)
    configure(SHORT)
    return ("--profile", name, "--once")


COST_LOAD, COST_DEPTH = 20, 17
"""At this load, by Little's law, this depth costs 15 % of the IOPS."""


def cut_depth(
    lun: str, depth: int = COST_DEPTH, prepare: Callable[[], None] = lambda: None
) -> Done:
    """Apply a queue depth below the load of the profile."""
    set_service_time("ndelay", 2 * SERVICE_NS)
    words = ("apply", *profile("cut", "queue_depth", depth, COST_LOAD), "--json", lun)
    return hbatune(*words, prepare=prepare)


def allow_slow_runs() -> None:
    """Let a comparison and its confirmation finish on a host that is slow for other reasons."""
    from hbatune.operations import verify

    verify.SLOW_LIMIT_S = 900


def double_read_ahead(lun: str) -> Done:
    """Apply a change without any effect: read-ahead is not for direct I/O."""
    kilobytes = 2 * int(cat(lun, "queue/read_ahead_kb"))
    return hbatune("apply", *profile("same", "read_ahead_kb", kilobytes, 24), "--json", lun)


def raise_depth_for_bursts(lun: str, prepare: Callable[[], None] = lambda: None) -> Done:
    """Apply a depth of 128 instead of 32, which only a load deeper than 24 reaches."""
    set_service_time("ndelay", 2 * SERVICE_NS)
    put(lun, "device/queue_depth", "32")
    words = ("apply", *profile("deep", "queue_depth", 128, 24), "--json", lun)
    return hbatune(*words, prepare=prepare)


def forget(name: str) -> None:
    """Take the profile and its configuration away."""
    (PROFILES / f"{name}.toml").unlink(missing_ok=True)
    configure("")


def deep(disk: str) -> str:
    """Give the disk the depth that the cut begins at, and return the disk."""
    put(disk, "device/queue_depth", str(DEPTH))
    return disk


def few_pairs() -> None:
    """Have two pairs: for a test of which disks are compared, not of what comes of it."""
    from hbatune.operations import verify

    verify.DEFAULT_PAIRS = 2  # type: ignore[attr-defined]


def measure_nothing(note: Callable[[], None] = lambda: None) -> None:
    """Have each probe call ``note`` and return figures without any I/O: switching is tested."""
    from hbatune.probe import run
    from hbatune.probe.result import Figures, ProbeResult, Subject, Workload

    figures = Figures(1e3, 4e6, 1e3, 1e3, 1e3, 1e3, 1e3, 1.0, 1000, 1.0, (1e3,))

    def probe(subject: Subject, workload: Workload, **options: Any) -> ProbeResult:
        options["prepare"]()
        note()
        return ProbeResult(subject.target, subject.endpoint.id, workload, figures, "3.33", ())

    run.probe_subject = probe


def neighbour(disk: str) -> "subprocess.Popen[bytes]":
    """Start somebody else who reads the disk; return once it does."""
    reads = ("--readonly", "--rw=randread", "--direct=1", "--iodepth=8", "--ioengine=libaio")
    started = subprocess.Popen(
        ["fio", "--name=busy", f"--filename=/dev/{disk}", *reads, "--time_based", "--runtime=600"],
        stdout=subprocess.DEVNULL,
    )
    while Path(f"/sys/block/{disk}/inflight").read_text().split() == ["0", "0"]:
        wait_a_moment()
    return started
