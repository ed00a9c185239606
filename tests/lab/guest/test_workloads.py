"""Workloads by name: their figures against a known truth, and what must never be written to."""

import os
import signal
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.guest.command import Forked, hbatune
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.known import DEPTH, SERVICE_NS, deep
from tests.lab.guest.values import cat, disks, put

KERNELS = ("6.12",)
TOPOLOGY = "probed"
MARGIN = 1.1
"""How far a rate may be above the truth."""
OWN = Path("/etc/hbatune/workloads/littles-law.toml")
EACH_SIDE_OF_A_QUEUE = """
title = "less and more in flight than a LUN's queue is deep"
sources = ["site"]

[[run]]
pattern = "randread"
block_size = 8192
depth = [4, 16, 128]
queue_depth = [8, 64]
runtime = 1
"""
"""Six of the forty runs of `queue-depth`, which ``make soak`` makes for longer."""
WRITING = ("probe", "mix-sweep", "--destructive", "--runtime", "0.5", "--json")


def digest(disk: str) -> int:
    """Return a checksum of all that is on a disk: an emulated CPU is slow at better ones."""
    return zlib.crc32(Path(f"/dev/{disk}").read_bytes())


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def mounted(node: str, stack: ExitStack) -> None:
    run("mkfs.ext4", "-q", node)
    run("mount", "-o", "ro,noload", node, "/mnt")  # or the filesystem itself would write
    stack.callback(run, "umount", "/mnt")


def swap(node: str, stack: ExitStack) -> None:
    run("mkswap", node)
    run("swapon", node)
    stack.callback(run, "swapoff", node)


def add_mapping(node: str, stack: ExitStack) -> None:
    subprocess.run(
        ["dmsetup", "create", "over"],
        input=f"0 8192 linear {node} 0\n".encode(),
        check=True,
        capture_output=True,
    )
    stack.callback(run, "dmsetup", "remove", "--retry", "over")


def partitioned(node: str, stack: ExitStack) -> None:
    run("sgdisk", "--new=1:2048:+4M", node)
    run("udevadm", "settle")


def signed(node: str, stack: ExitStack) -> None:
    run("mkfs.ext4", "-q", node)


STATES = {
    "mounted": mounted,
    "swap": swap,
    "held": add_mapping,
    "partitioned": partitioned,
    "signed": signed,
}


@pytest.mark.parametrize("state", STATES)
def test_occupied_disk_is_not_written(state: str, scsi_debug: Callable[..., list[str]]) -> None:
    [disk] = scsi_debug(max_luns=1, dev_size_mb=16)
    node = f"/dev/{disk}"
    with ExitStack() as stack:
        STATES[state](node, stack)
        run("sync")
        before = digest(disk)
        done = hbatune(*WRITING, disk)
        assert done.code == 1, done.out + done.err
        [outcome] = [probe_run["outcome"] for probe_run in done.json["runs"]]
        assert (outcome["type"], outcome["reason"]) == ("skipped", state)
        assert digest(disk) == before
    run("wipefs", "--all", "--quiet", node)


def test_empty_disk_writes_need_destructive(
    scsi_debug: Callable[..., list[str]],
) -> None:
    [disk] = scsi_debug(max_luns=1, dev_size_mb=16)
    before = digest(disk)
    refused = hbatune("probe", "mix-sweep", "--runtime", "0.5", disk)
    assert refused.code == 2
    by_adapter = hbatune(*WRITING, Path(f"/sys/block/{disk}").resolve().parts[-5])
    assert by_adapter.code in (1, 2)
    assert digest(disk) == before
    done = hbatune(*WRITING, disk)
    assert done.code == 0, done.out + done.err
    assert [run["workload"]["reads"] for run in done.json["runs"]] == [100, 70, 50, 0]
    assert digest(disk) != before


@pytest.fixture
def contents() -> Iterator[None]:
    """No byte of any disk differs afterwards; a hidden path has no node to write to."""
    present_disks = [disk for disk in disks() if Path(f"/dev/{disk}").exists()]
    before = {disk: digest(disk) for disk in present_disks}
    yield
    assert {disk: digest(disk) for disk in present_disks} == before


@pytest.mark.deadline(900)
def test_read_only_commands_change_nothing(contents: None, tmp_path: Path) -> None:
    disk = next(disk for disk in disks() if disk.startswith("sd"))
    for words in (
        ("list",),
        ("diff", "--profile", "oltp"),
        ("check",),
        ("profiles", "oltp"),
        ("explain", disk, "nr_requests", "--profile", "oltp"),
        ("snapshot", str(tmp_path / "host.snapshot")),
        ("apply", "--profile", "oltp", "--dry-run"),
        ("probe", "qd1", "--runtime", "0.5", disk),
        ("history",),
    ):
        done = hbatune(*words)
        assert done.code in (0, 1), done.err


def test_oltp3_has_documented_mix(scsi_debug: Callable[..., list[str]]) -> None:
    [disk] = scsi_debug(max_luns=1, dev_size_mb=64)
    before = counted(disk)
    # Long enough, on a slow machine too, that the look whether the disk is empty is lost in it.
    done = hbatune("probe", "oltp3", "--destructive", "--runtime", "10", "--json", disk)
    assert done.code == 0, done.out + done.err
    reads, writes = (after - then for after, then in zip(counted(disk), before, strict=True))
    assert 0.68 < reads / (reads + writes) < 0.72
    [run] = done.json["runs"]
    assert run["doubt"] is None


def counted(disk: str) -> tuple[int, int]:
    """Return the reads and the writes that a disk has completed."""
    fields = cat(disk, "stat").split()
    return int(fields[0]), int(fields[4])


@pytest.mark.deadline(600)
def test_rates_obey_littles_law(scsi_debug: Callable[..., list[str]]) -> None:
    """scsi_debug serves each command in 20 ms, and as many at once as the LUN's queue is deep.

    How near a rate comes to that hangs on the emulated CPU, and on what else runs beside it.
    """
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS, virtual_gb=64)
    put(deep(disk), "queue/scheduler", "none")  # nothing sorts, next to nothing is merged
    OWN.parent.mkdir(parents=True, exist_ok=True)
    OWN.write_text(EACH_SIDE_OF_A_QUEUE)
    done = hbatune("probe", OWN.stem, "--json", disk)
    OWN.unlink()
    assert done.code == 0, done.out + done.err
    assert cat(disk, "device/queue_depth") == str(DEPTH), "its own depth is back"
    assert len(done.json["runs"]) == 6
    for probe_run in done.json["runs"]:
        workload, figures = probe_run["workload"], probe_run["outcome"]["figures"]
        depth, queue = workload["depth"], workload["queue_depth"]
        where = f"depth {depth} of {queue}"
        served, waited, took = SERVICE_NS / 1e9, figures["mean_us"] / 1e6, figures["runtime"]
        # What is in flight at an end of the run counts in full there, or not at all.
        assert figures["iops"] < (MARGIN + served / took) * min(depth, queue) / served, where
        assert figures["p50_us"] > 0.98 * SERVICE_NS / 1e3, where
        assert figures["iops"] * waited < (MARGIN + waited / took) * depth, where
        settings = {entry["setting"]: entry["value"] for entry in probe_run["outcome"]["settings"]}
        assert settings["queue_depth"] == queue


def test_rollback_recovers_killed_depth_probe(
    scsi_debug: Callable[..., list[str]],
) -> None:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS)
    deep(disk)
    probing = Forked("probe", "queue-depth", disk)
    while cat(disk, "device/queue_depth") != "8":
        wait_a_moment()  # the harness ends a test that takes too long
    os.kill(probing.pid, signal.SIGKILL)
    assert probing.wait().killed
    assert cat(disk, "device/queue_depth") == "8"
    assert hbatune("rollback").code == 0
    assert cat(disk, "device/queue_depth") == str(DEPTH)


def test_nvme_probe_reports_temperature() -> None:
    disk = next(disk for disk in disks() if disk.startswith("nvme") and "c" not in disk[4:])
    done = hbatune("probe", "qd1", "--runtime", "0.5", "--json", disk)
    [first, _] = [run["outcome"] for run in done.json["runs"]]
    assert 0 < first["temperature"] < 120
    # A kernel without a steady clock, as under emulation, counts none (CONFIG_IRQ_TIME_ACCOUNTING).
    assert first["figures"]["interrupt_us_per_io"] >= 0
