"""The probe around an apply: real reads, shown side by side, and not one byte written."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.guest.command import configure, hbatune, installed
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import disks, nvme_queues, put

KERNELS = ("6.1",)
READS = ("--readonly", "--rw=randread", "--direct=1", "--iodepth=8", "--ioengine=libaio")
APPLY = ("apply", "--profile", "oltp")


@pytest.fixture(autouse=True)
def _short() -> Iterator[None]:
    """A second for each probe is enough to see that it measures."""
    configure("[probe]\nseconds = 1\n")
    yield
    configure("")
    hbatune("rollback")


def _digest(disk: str) -> str:
    return hashlib.sha256(Path(f"/dev/{disk}").read_bytes()).hexdigest()


def test_before_and_after_stand_side_by_side_and_no_byte_changes() -> None:
    [disk] = scsi_disks("sym53c8xx")
    before = _digest(disk)
    done = hbatune(*APPLY, "--json", disk)
    assert done.code == 0, done.err
    [pair] = done.json["probes"]
    for probe in (pair["before"], pair["after"]):
        figures = probe["figures"]
        assert probe["target"] == disk
        assert probe["workload"]["depth"] == 24
        assert figures["ios"] > 100
        assert 0 < figures["p50_us"] <= figures["p95_us"] <= figures["p99_us"]
        assert figures["p99_us"] <= figures["p999_us"]
        assert figures["cpu_us_per_io"] > 0
    assert _digest(disk) == before


def test_one_disk_of_each_adapter_medium_and_model_is_probed_the_head_for_its_paths() -> None:
    done = hbatune(*APPLY, "--json", "--dry-run")
    drifting = {row["target"] for row in done.rows(state="drift")}
    configure("[probe]\nseconds = 1\n")
    hidden = [disk for disk in nvme_queues() if "c" in disk.removeprefix("nvme")]
    for path in hidden:
        put(path, "queue/scheduler", "mq-deadline")
    try:
        head = next(
            disk for disk in disks() if disk.startswith("nvme") and disk not in nvme_queues()
        )
        done = hbatune(*APPLY, "--json", head, *scsi_disks("megaraid_sas"))
    finally:
        for path in hidden:
            put(path, "queue/scheduler", "none")
    assert done.code == 0, done.err
    probed = [pair["before"]["target"] for pair in done.json["probes"]]
    assert probed.count(head) == 1
    assert not set(probed) & set(hidden)
    assert {disk for disk in scsi_disks("megaraid_sas") if disk in drifting} <= set(probed)
    assert "twice, which takes about" in done.err


def test_the_table_says_what_a_read_probe_cannot_see() -> None:
    [disk] = scsi_disks("sym53c8xx")
    done = hbatune(*APPLY, disk)
    assert done.code == 0, done.err
    for word in ("IOPS", "p99.9", "before", "after", "cannot see how writes queue"):
        assert word in done.out


def test_without_fio_the_apply_is_done_and_says_why_nothing_was_measured(tmp_path: Path) -> None:
    [disk] = scsi_disks("sym53c8xx")
    for name in ("hbatune", "python3"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True)
        (tmp_path / name).symlink_to(found.stdout.strip())
    done = installed(*APPLY, disk, before=("env", f"PATH={tmp_path}"))
    assert done.code == 0, done.err
    assert "fio is not installed" in done.out


def test_a_busy_disk_is_not_probed(scsi_debug: Callable[..., list[str]]) -> None:
    [lun] = scsi_debug(max_luns=1, delay=0, ndelay=2_000_000)
    reader = subprocess.Popen(
        ["fio", "--name=busy", f"--filename=/dev/{lun}", *READS, "--time_based", "--runtime=120"],
        stdout=subprocess.DEVNULL,
    )
    try:
        while Path(f"/sys/block/{lun}/inflight").read_text().split() == ["0", "0"]:
            os.sched_yield()
        done = hbatune(*APPLY, "--json", lun)
    finally:
        reader.terminate()
        reader.wait()
    assert done.code == 0, done.err
    [pair] = done.json["probes"]
    assert pair["before"]["reason"] == "busy"
    assert pair["after"] is None


def test_no_probe_means_none() -> None:
    [disk] = scsi_disks("sym53c8xx")
    done = hbatune(*APPLY, "--no-probe", "--json", disk)
    assert done.json["probes"] == []
