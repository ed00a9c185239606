from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.facts import sampler
from hbatune.facts.model import Missing, Reason
from hbatune.facts.sampler import DiskSample
from hbatune.probe import guard
from hbatune.probe.guard import Clock, find_busy_subjects
from hbatune.probe.result import ProbeResult, Served, Skip, Skipped, Subject, Workload
from hbatune.probe.run import choose_subjects, estimate_seconds, probe_subject
from tests.unit.machines import adapter, attributes, endpoint, machine

RECORDED = Path(__file__).parent / "recorded" / "fio-3.33-1-jobs.json"
Reader = Callable[[str], DiskSample | None]
STILL = Clock(now=lambda: 0.0, sleep=lambda _: None)
SHORT = Workload(ramp=0, runtime=0.1)


def sample_disk(in_flight: int = 0) -> DiskSample:
    """Return a disk's counters with this number of I/Os in flight."""
    return DiskSample("", 0, 0, 0, 0, 0, 0, in_flight, 0)


def idle(_: str) -> DiskSample | None:
    """Say of every device that nobody uses it."""
    return sample_disk()


@pytest.fixture(autouse=True)
def sampled_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Reader], None]:
    """Sample with no time and no device: every disk is idle, or as the reader says."""

    def sample(read: Reader) -> None:
        monkeypatch.setattr(sampler, "read_disk_sample", read)

    monkeypatch.setattr(guard, "find_busy_subjects", partial(find_busy_subjects, clock=STILL))
    sample(idle)
    return sample


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Subject]:
    """Return three subjects, and put a fio on PATH that cannot read the third."""
    script = tmp_path / "fio"
    script.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo fio-3.33; exit; fi\n'
        "job=$(cat)\n"
        f"echo run >>{tmp_path}/runs\n"
        'case "$job" in *sdc*) echo broken >&2; exit 1 ;; esac\n'
        f"cat '{RECORDED}' >out\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    subjects = []
    for name in ("sda", "sdb", "sdc"):
        (tmp_path / name).touch()
        disk = endpoint(target=name, device_node=str(tmp_path / name))
        subjects.append(Subject(disk, adapters=(adapter(),)))
    return subjects


def test_unreadable_disk_fails(disks: list[Subject]) -> None:
    outcomes = [probe_subject(disk, SHORT) for disk in disks]
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "ProbeResult",
        "ProbeResult",
        "Failed",
    ]


def test_result_names_driver_and_firmware(
    disks: list[Subject],
) -> None:
    result = probe_subject(disks[0], SHORT)
    assert isinstance(result, ProbeResult)
    served = adapter()
    assert (result.id, result.workload, result.fio_version) == (disks[0].endpoint.id, SHORT, "3.33")
    assert result.served == (
        Served(served.target, served.driver, served.driver_version, served.firmware, served.link),
    )


def test_small_blocks_are_not_run(disks: list[Subject], tmp_path: Path) -> None:
    """Also in a file, whose disk it is."""
    large = attributes(queue__logical_block_size="4096")
    disks[0] = replace(disks[0], endpoint=replace(disks[0].endpoint, attributes=large))
    file = replace(disks[0].endpoint, device_node=str(tmp_path / "file"), size=1 << 30)
    subjects = [*disks[:2], replace(disks[0], endpoint=file)]
    small = replace(SHORT, block_size=1024)
    first, second, filed = (probe_subject(subject, small) for subject in subjects)
    assert first == filed == Skipped("sda", Skip.BLOCK_SIZE, detail="1024")
    assert isinstance(second, ProbeResult)
    assert isinstance(probe_subject(disks[0], SHORT), ProbeResult)
    assert (tmp_path / "runs").read_text().split() == ["run"] * 2


def test_busy_disk_is_skipped(
    disks: list[Subject], tmp_path: Path, sampled_by: Callable[[Reader], None]
) -> None:
    def read(sysfs: str) -> DiskSample | None:
        return sample_disk(4 if sysfs.endswith("sda") else 0)

    sampled_by(read)
    first, second = probe_subject(disks[0], SHORT), probe_subject(disks[1], SHORT)
    assert isinstance(first, Skipped)
    assert first.reason is Skip.BUSY
    assert isinstance(second, ProbeResult)
    assert (tmp_path / "runs").read_text().splitlines() == ["run"]


def test_missing_fio_skips_subjects(
    disks: list[Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert probe_subject(disks[0], SHORT) == Skipped("sda", Skip.NO_FIO)


def test_unsafe_name_is_skipped(disks: list[Subject], tmp_path: Path) -> None:
    hostile = Subject(endpoint(device_node="/dev/sda\nrw=randwrite"))
    outcome = probe_subject(hostile, SHORT)
    assert outcome == Skipped("sda", Skip.UNSAFE_NAME, detail="/dev/sda\nrw=randwrite")
    assert not (tmp_path / "runs").exists()


def test_idle_disk_precedes_busy(sampled_by: Callable[[Reader], None]) -> None:
    def read(sysfs: str) -> DiskSample | None:
        return sample_disk(0 if sysfs.endswith("sdb") else 4)

    host = machine(endpoint(target="sda"), endpoint(target="sdb"))
    sampled_by(read)
    selection = choose_subjects(host, {"sda", "sdb"})
    assert [subject.target for subject in selection.subjects] == ["sdb"]


def test_unprobeable_disk_is_not_sampled(sampled_by: Callable[[Reader], None]) -> None:
    def read(_: str) -> DiskSample | None:
        raise AssertionError("was sampled")

    hung = endpoint(state=Missing(Reason.UNREADABLE))
    sampled_by(read)
    selection = choose_subjects(machine(hung), {"sda"})
    assert [skipped.reason for skipped in selection.skipped] == [Skip.UNREADABLE]


def test_estimate_adds_up_workloads() -> None:
    assert estimate_seconds() == 0
    assert estimate_seconds(*3 * [Workload()]) == pytest.approx(3 * estimate_seconds(Workload()))
    longer = estimate_seconds(Workload(runtime=60)) - estimate_seconds(Workload(runtime=3))
    assert longer == pytest.approx(57)
