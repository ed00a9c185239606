"""Workloads by name: their figures against a known truth, and what must never be written to."""

import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.known import DEPTH, SERVICE_NS, deep
from tests.lab.guest.values import disks

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


def held(node: str, stack: ExitStack) -> None:
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
    "held": held,
    "partitioned": partitioned,
    "signed": signed,
}


@pytest.mark.parametrize("state", STATES)
def test_a_disk_that_holds_something_is_not_written_to(
    state: str, scsi_debug: Callable[..., list[str]]
) -> None:
    [disk] = scsi_debug(max_luns=1, dev_size_mb=16)
    node = f"/dev/{disk}"
    with ExitStack() as stack:
        STATES[state](node, stack)
        run("sync")
        before = digest(disk)
        done = hbatune(*WRITING, disk)
        assert done.code == 1, done.out + done.err
        [outcome] = [each["outcome"] for each in done.json["runs"]]
        assert (outcome["type"], outcome["reason"]) == ("skipped", state)
        assert digest(disk) == before
    run("wipefs", "--all", "--quiet", node)


def test_an_empty_disk_is_written_to_only_where_that_was_asked_for(
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
    there = [disk for disk in disks() if Path(f"/dev/{disk}").exists()]
    before = {disk: digest(disk) for disk in there}
    yield
    assert {disk: digest(disk) for disk in there} == before


@pytest.mark.deadline(900)
def test_commands_that_only_read_change_no_byte(contents: None, tmp_path: Path) -> None:
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


@pytest.mark.deadline(600)
def test_rates_obey_littles_law(scsi_debug: Callable[..., list[str]]) -> None:
    """scsi_debug serves each command in 20 ms, and 64 of them at once: no more is to be had.

    How near a rate comes to that hangs on the emulated CPU, and on what else runs beside it.
    """
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS)
    deep(disk)
    done = hbatune("probe", "depth-sweep", "--runtime", "1", "--json", disk)
    assert done.code == 0, done.out + done.err
    assert len(done.json["runs"]) == 9
    for each in done.json["runs"]:
        depth, figures = each["workload"]["depth"], each["outcome"]["figures"]
        most = min(depth, DEPTH) / (SERVICE_NS / 1e9)
        # In flight when the second began, and completed in it: as many as were asked for, at most.
        assert figures["iops"] < 1.02 * most + depth, f"depth {depth}"
        assert figures["p50_us"] > 0.98 * SERVICE_NS / 1e3, f"depth {depth}"
        in_flight = figures["iops"] * figures["mean_us"] / 1e6
        assert in_flight < 1.05 * depth, f"depth {depth}"
