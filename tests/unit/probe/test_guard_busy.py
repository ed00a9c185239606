from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbatune.facts import sampler
from hbatune.facts.model import Attribute, Kind
from hbatune.facts.sampler import DiskSample, read_disk_sample
from hbatune.probe.guard import Clock, find_busy_subjects
from hbatune.probe.result import Load, Skip, Skipped, Subject
from tests.unit.machines import endpoint

Reader = Callable[[str], DiskSample | None]
STAT = "  5040 11 300962 1130 2291 400 60232 3000 2 1860 4130 0 0 0 0 12 100\n"


def device(directory: Path, stat: str = STAT) -> Path:
    """Make the file with the counters of a block device."""
    (directory / "stat").write_text(stat)
    return directory


def test_counters_are_read(tmp_path: Path) -> None:
    assert read_disk_sample(device(tmp_path)) == DiskSample(
        tmp_path.name, 5040, 300962 * 512, 1130, 2291, 60232 * 512, 3000, in_flight=2, busy_ms=1860
    )


def test_removed_device_has_no_counters(tmp_path: Path) -> None:
    assert read_disk_sample(tmp_path / "sda") is None


def test_unreadable_file_has_no_counters(tmp_path: Path) -> None:
    (tmp_path / "stat").mkdir()
    assert read_disk_sample(tmp_path) is None


@pytest.mark.parametrize("stat", ["1 2 3", "", STAT.replace("1860", "x")])
def test_invalid_counters_are_not_used(tmp_path: Path, stat: str) -> None:
    assert read_disk_sample(device(tmp_path, stat)) is None


def replay(**series: list[DiskSample | None]) -> Reader:
    """Return a reader that answers with these samples, by the last part of the directory."""
    waiting: dict[str, Iterator[DiskSample | None]] = {k: iter(v) for k, v in series.items()}
    return lambda directory: next(waiting[Path(directory).name])


def samples(*ticks: int, in_flight: tuple[int, ...] = (0, 0, 0, 0)) -> list[DiskSample | None]:
    """Return samples of a device with these busy times, in milliseconds since boot."""
    return [
        DiskSample("", 0, 0, 0, 0, 0, 0, pending, used)
        for used, pending in zip(ticks, in_flight, strict=True)
    ]


class FakeTime:
    """A clock that moves only when slept on."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def clock(self) -> Clock:
        """Return it as the sampling wants it."""
        return Clock(now=lambda: self.seconds, sleep=self._pass)

    def _pass(self, seconds: float) -> None:
        self.seconds += seconds


def sample(read: Reader, *subjects: Subject) -> tuple[dict[str, Skipped], float]:
    """Sample the subjects in no time; return why they are busy, and the seconds it would take."""
    time = FakeTime()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sampler, "read_disk_sample", read)
        return find_busy_subjects(subjects, time.clock()), time.seconds - 1000


def verdict(read: Reader, subject: Subject) -> Skipped | None:
    """Sample one subject in no time."""
    return sample(read, subject)[0].get(subject.target)


DISK = Subject(endpoint())


def test_idle_disk_is_probed() -> None:
    assert verdict(replay(sda=samples(100, 100, 100, 100)), DISK) is None


def test_background_io_is_tolerated() -> None:
    read = replay(sda=samples(100, 100, 120, 120, in_flight=(0, 1, 0, 0)))
    assert verdict(read, DISK) is None


def test_utilization_above_tenth_is_busy() -> None:
    skipped = verdict(replay(sda=samples(100, 120, 140, 160)), DISK)
    assert skipped is not None
    assert skipped.reason is Skip.BUSY
    assert skipped.load == Load(pytest.approx(0.2), 0)  # type: ignore[arg-type]


def test_hanging_io_is_busy() -> None:
    skipped = verdict(replay(sda=samples(100, 100, 100, 100, in_flight=(3, 3, 3, 3))), DISK)
    assert skipped is not None
    assert (skipped.reason, skipped.load) == (Skip.BUSY, Load(0.0, 3))


def test_disabled_counters_give_no_verdict() -> None:
    disk = Subject(endpoint(attributes={"queue/iostats": Attribute("0", True)}))
    skipped = verdict(replay(sda=samples(100, 100, 100, 100)), disk)
    assert skipped == Skipped("sda", Skip.NOT_COUNTED)


def test_unreadable_counters_give_no_verdict() -> None:
    readings: list[DiskSample | None] = [*samples(1, 1, 1, 1)[:3], None]
    assert verdict(replay(sda=readings), DISK) == Skipped("sda", Skip.UNREADABLE)


def test_busy_path_makes_map_busy() -> None:
    paths = tuple(endpoint(target=name, kind=Kind.PATH) for name in ("sdb", "sdc"))
    uncounted = {"queue/iostats": Attribute("0", True)}
    for attributes in ({}, uncounted):
        top = Subject(endpoint(target="dm-0", kind=Kind.MAP, attributes=attributes), paths)
        idle = samples(100, 100, 100, 100)
        read = replay(**{"dm-0": idle, "sdb": idle, "sdc": samples(0, 90, 190, 290)})
        skipped = verdict(read, top)
        assert skipped is not None
        assert (skipped.target, skipped.reason) == ("dm-0", Skip.BUSY)
        assert verdict(replay(**{"dm-0": idle, "sdb": idle, "sdc": idle}), top) is None


def test_disks_are_sampled_together() -> None:
    disks = [Subject(endpoint(target=f"sd{letter}")) for letter in "abcdefgh"]
    read = replay(**{disk.target: samples(0, 0, 0, 0) for disk in disks})
    busy, seconds = sample(read, *disks)
    assert busy == {}
    assert seconds == pytest.approx(0.3)
