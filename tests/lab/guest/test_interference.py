"""A reader beside a bulk writer, and disks of one adapter at once, on real queues."""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.known import PROFILES, forget
from tests.lab.guest.values import everything

KERNELS = ("6.12",)
TOPOLOGY = "probed"
SERVICE_NS = 5_000_000


def test_reader_is_measured_beside_writer(
    scsi_debug: Callable[..., list[str]],
) -> None:
    [disk] = scsi_debug(max_luns=1, dev_size_mb=64, delay=0, ndelay=SERVICE_NS)
    done = hbatune("probe", "interference", "--destructive", "--runtime", "2", "--json", disk)
    assert done.code == 0, done.out + done.err
    alone, beside = (run["outcome"]["figures"] for run in done.json["runs"])
    assert alone["written_beside"] is None
    assert beside["written_beside"] > 1e6
    # Four in flight, whatever the writer does: its I/Os are not among them.
    for figures in (alone, beside):
        assert figures["iops"] * figures["mean_us"] / 1e6 < 5
    refused = hbatune("probe", "interference", disk)
    assert refused.code == 2


def test_adapter_disks_load_together(scsi_debug: Callable[..., list[str]]) -> None:
    luns = scsi_debug(max_luns=2, delay=0, ndelay=4 * SERVICE_NS)
    done = hbatune("probe", "reference-short", *luns, "--together", "--json", "--runtime", "2")
    assert done.code == 0, done.out + done.err
    [together] = done.json["together"]
    assert sorted(together["targets"]) == sorted(luns)
    assert len(together["figures"]["job_iops"]) == 2
    total = sum(run["outcome"]["figures"]["iops"] for run in done.json["runs"])
    assert together["share"] == pytest.approx(together["figures"]["iops"] / total)


def test_joint_writes_need_empty_disks(
    scsi_debug: Callable[..., list[str]],
) -> None:
    luns = scsi_debug(max_luns=2, dev_size_mb=64, delay=0, ndelay=SERVICE_NS)
    words = ("probe", "--mix", "0", "--runtime", "1", "--together", "--json", *luns)
    assert hbatune(*words).code == 2
    done = hbatune(*words, "--destructive")
    assert done.code == 0, done.out + done.err
    [together] = done.json["together"]
    assert together["workload"]["pattern"] == "randwrite"
    assert len(together["figures"]["job_iops"]) == 2
    subprocess.run(("mkswap", f"/dev/{luns[1]}"), check=True, capture_output=True)
    signed = hbatune(*words, "--destructive")
    assert signed.code == 1
    # LUNs of scsi_debug have one store: what is written to one is on the other as well.
    assert {run["outcome"]["reason"] for run in signed.json["runs"]} == {"signed"}
    assert signed.json["together"] == []


@pytest.fixture
def mounted(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    """Return a disk with a filesystem at /mnt, and a profile without an objective."""
    [disk] = scsi_debug(max_luns=1, dev_size_mb=128, delay=0, ndelay=SERVICE_NS)
    PROFILES.mkdir(parents=True, exist_ok=True)
    (PROFILES / "free.toml").write_text('title = "no objective"\n')
    # Or the kernel would go on initialising tables, which is not idle.
    options = "lazy_itable_init=0,lazy_journal_init=0"
    for words in (
        ("mkfs.ext4", "-q", "-E", options, f"/dev/{disk}"),
        ("mount", f"/dev/{disk}", "/mnt"),
    ):
        subprocess.run(words, check=True, capture_output=True)
    yield disk
    subprocess.run(("umount", "/mnt"), check=True)
    hbatune("rollback")
    forget("free")


def _short() -> None:
    """Have few short probes and a small file: how sure the answer is, is simulated."""
    from functools import partial

    from hbatune.operations import disk_probes, verify
    from hbatune.probe.guard import make_scratch_file
    from hbatune.search import depth, tournament
    from hbatune.search.tournament import Candidate

    verify.make_scratch_file = partial(  # type: ignore[attr-defined]
        make_scratch_file, smallest=4 << 20
    )
    list_candidates = tournament.list_write_candidates
    tournament.list_read_candidates = lambda endpoint, rows: (Candidate({}),)
    # The current values, the profile's, and one more scheduler.
    tournament.list_write_candidates = lambda endpoint, rows: list_candidates(endpoint, rows)[:3]
    tournament.COMPARISON_PAIRS = (2,)  # type: ignore[assignment]
    tournament.LAST_ROUNDS = 2
    # On emulated CPUs a bulk writer takes a processor for as long as it writes.
    tournament.PROBE_S = depth.MIN_PROBE_S = 0.5
    depth.MIN_IOS = 100
    disk_probes.PREFERRED_S = dict.fromkeys(disk_probes.PREFERRED_S, 0.5)


@pytest.mark.deadline(900)
def test_schedulers_are_tried_and_restored(mounted: str) -> None:
    before = everything()
    done = hbatune(
        *("autotune", mounted, "--profile", "free", "--file", "/mnt", "--json"), prepare=_short
    )
    [disk] = done.json["disks"]
    assert (disk["ended"], disk["outcome"], done.code) == (None, None, 0), done.err
    assert everything() == before
    schedulers = disk["schedulers"]
    assert schedulers["interference"]
    tried = {candidate["values"].get("scheduler") for candidate in schedulers["candidates"]}
    assert "mq-deadline" in tried or "none" in tried
    assert all(rate > 0 for rate in schedulers["written"])
    assert len(schedulers["scores"]) == schedulers["answer"]["probes"]
