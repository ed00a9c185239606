"""How often a sampler reads what needs a file each."""

from pathlib import Path

import pytest

from hbatune.facts import sampler as sampler_module
from hbatune.facts.model import Protocol
from hbatune.facts.sampler import (
    SampledPlaces,
    Sampler,
    find_sampled_places,
    parse_disk_sample,
    read_reset_counts,
)
from tests.unit.machines import endpoint, machine


def test_counters_follow_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "_BLOCK", str(tmp_path))
    disk = endpoint()
    (tmp_path / disk.target / "device").mkdir(parents=True)
    counter = tmp_path / disk.target / "device/ioerr_cnt"
    counter.write_text("0x1\n")
    sampler = Sampler(find_sampled_places(machine(disk, adapters=())), every=60)
    counts = []
    for time_s in (0.0, 10.0, 59.0, 60.0, 70.0):
        counts.append(sampler.sample(time_s, time_s).counters[disk.id]["errors"])
        counter.write_text("0x1f\n")
    assert counts == [1, 1, 1, 31, 31]


def test_nvme_disk_may_have_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 7.2 no NVMe disk has them."""
    monkeypatch.setattr(sampler_module, "_BLOCK", str(tmp_path))
    disk = endpoint(target="nvme0n1", address=None, protocol=Protocol.NVME)
    host = machine(disk, adapters=())
    assert find_sampled_places(host).counter_disks == ()
    (tmp_path / disk.target / "diag").mkdir(parents=True)
    (tmp_path / disk.target / "diag/command_retries_count").write_text("31\n")
    sampler = Sampler(find_sampled_places(host))
    assert sampler.sample(0.0, 0.0).counters[disk.id] == {"command_retries_count": 31}


def test_idle_disk_reuses_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of them would otherwise take their memory twice."""
    stats = tmp_path / "diskstats"
    monkeypatch.setattr(sampler_module, "_DISKSTATS", str(stats))
    disk = endpoint(address=None)
    sampler = Sampler(find_sampled_places(machine(disk, adapters=())))
    line = f"8 0 {disk.target} 1500 20 12000 3000 500 3 4000 1500 7 2000 4507\n"
    samples = []
    for text in (line, line, line.replace("1500 20", "1501 20")):
        stats.write_text(text)
        samples.append(sampler.sample(0.0, 0.0).disks[disk.id])
    assert samples[0] is samples[1]
    assert [sample.reads for sample in samples] == [1500, 1500, 1501]


def test_update_replaces_named_disks(tmp_path: Path) -> None:
    sampler = Sampler(SampledPlaces({"sda": "a", "sdb": "b"}, ("sda", "sdb")))
    sampler.update(SampledPlaces({"sdb": "c", "sdc": "d"}, ("sdc",)))
    assert sampler.places == SampledPlaces({"sda": "a", "sdb": "c", "sdc": "d"}, ("sda", "sdc"))


@pytest.mark.parametrize("line", ["", "8 0 sda", "8 0 sda 1 2 3 4 5 6 7 8 nine", "8 0 sda 1 2"])
def test_invalid_line_raises(line: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|invalid literal"):
        parse_disk_sample("8:0", line.split()[3:], None)


def test_resets_are_counted_by_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "_CLASSES", str(tmp_path))
    for name, text in {"nvme0": "3\n", "nvme1": "what\n"}.items():
        (tmp_path / "nvme" / name / "diag").mkdir(parents=True)
        (tmp_path / "nvme" / name / "diag/reset_count").write_text(text)
    (tmp_path / "nvme/nvme2").mkdir()  # before Linux 7.2
    assert read_reset_counts() == {"nvme0": 3}
    monkeypatch.setattr(sampler_module, "_CLASSES", str(tmp_path / "missing"))
    assert read_reset_counts() == {}
