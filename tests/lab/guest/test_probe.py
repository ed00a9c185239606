"""The probes of an apply: real reads, compared in pairs, and not one byte written."""

import hashlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbatune.probe.verdict import DEFAULT_PAIRS, MIN_PAIRS
from tests.lab.guest.command import configure, hbatune, installed
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.known import few_pairs, neighbour
from tests.lab.guest.values import disks, nvme_queues, put

KERNELS = ("6.1",)
TOPOLOGY = "probed"
APPLY = ("apply", "--profile", "oltp")


@pytest.fixture(autouse=True)
def _short() -> Iterator[None]:
    """Half a second for each run is enough to see that it measures."""
    configure("[probe]\nverify_seconds = 0.5\n")
    yield
    configure("")
    hbatune("rollback")


def _digest(disk: str) -> str:
    return hashlib.sha256(Path(f"/dev/{disk}").read_bytes()).hexdigest()


@pytest.mark.deadline(600)
def test_verdict_pairs_write_nothing() -> None:
    [disk] = scsi_disks("sym53c8xx")
    before = _digest(disk)
    done = hbatune(*APPLY, "--json", disk)
    assert done.code == 0, done.err
    [proof, *_] = done.json["verdicts"]
    assert (proof["target"], proof["outcome"]) == (disk, None)
    # A slow host has no time for all pairs.
    assert MIN_PAIRS <= proof["verdict"]["runs"] <= DEFAULT_PAIRS
    assert proof["last"]["workload"]["depth"] == 24, "the load that oltp states"
    figures = proof["last"]["figures"]
    assert figures["ios"] > 100
    assert 0 < figures["p50_us"] <= figures["p95_us"] <= figures["p99_us"] <= figures["p999_us"]
    assert figures["cpu_us_per_io"] > 0
    assert _digest(disk) == before


@pytest.mark.deadline(900)
def test_probe_picks_one_per_model() -> None:
    hidden = [disk for disk in nvme_queues() if "c" in disk.removeprefix("nvme")]
    for path in hidden:
        put(path, "queue/scheduler", "mq-deadline")
    try:
        done = hbatune(*APPLY, "--json", "--dry-run")
        drifting = {row["target"] for row in done.rows(state="drift")}
        head = next(
            disk for disk in disks() if disk.startswith("nvme") and disk not in nvme_queues()
        )
        chosen = (head, *scsi_disks("megaraid_sas"))
        done = hbatune(*APPLY, "--json", *chosen, prepare=few_pairs)
    finally:
        for path in hidden:
            put(path, "queue/scheduler", "none")
    assert done.code in (0, 1), done.err
    measured = {proof["target"] for proof in done.json["verdicts"]}
    assert not measured & set(hidden)
    raid = {disk for disk in scsi_disks("megaraid_sas") if disk in drifting}
    assert {head, *raid} == measured
    assert "with and without the change, for about" in done.err


@pytest.mark.deadline(600)
def test_verdict_names_unexercised_settings() -> None:
    [disk] = scsi_disks("sym53c8xx")
    put(disk, "queue/scheduler", "none")  # what the profile changes then
    done = hbatune(*APPLY, disk, prepare=few_pairs)
    assert done.code == 0, done.out + done.err
    for text in (
        "IOPS",
        "p99",
        "Right is better",
        "scheduler: not exercised: the probe only reads",
    ):
        assert text in done.out


def test_missing_fio_is_reported(tmp_path: Path) -> None:
    [disk] = scsi_disks("sym53c8xx")
    for name in ("hbatune", "python3"):
        located = subprocess.run(["which", name], capture_output=True, text=True, check=True)
        (tmp_path / name).symlink_to(located.stdout.strip())
    done = installed(*APPLY, disk, before=("env", f"PATH={tmp_path}"))
    assert done.code == 0, done.err
    assert "fio is not installed" in done.out


@pytest.mark.usefixtures("virtual_disks_wanted")
def test_busy_disk_is_not_probed(scsi_debug: Callable[..., list[str]]) -> None:
    [lun] = scsi_debug(max_luns=1, delay=0, ndelay=2_000_000)
    reader = neighbour(lun)
    try:
        done = hbatune(*APPLY, "--json", lun)
    finally:
        reader.terminate()
        reader.wait()
    assert done.code == 0, done.err
    [pair] = done.json["probes"]
    assert (pair["before"]["reason"], pair["after"]) == ("busy", None)
    assert done.json["verdicts"] == []


def test_no_probe_option_skips_probes() -> None:
    [disk] = scsi_disks("sym53c8xx")
    done = hbatune(*APPLY, "--no-probe", "--json", disk)
    assert (done.json["probes"], done.json["verdicts"]) == ([], [])
