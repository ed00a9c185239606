"""How often a sampler reads what needs a file each."""

from pathlib import Path

import pytest

from hbatune.facts.sampler import Sampler, disk
from tests.unit.factory import endpoint, machine


def test_counters_are_read_again_when_their_time_has_come(tmp_path: Path) -> None:
    (tmp_path / "device").mkdir()
    counter = tmp_path / "device/ioerr_cnt"
    counter.write_text("0x1\n")
    found = endpoint(sysfs=str(tmp_path))
    sampler = Sampler(machine(found, adapters=()), every=60)
    counts = []
    for now in (0.0, 10.0, 59.0, 60.0, 70.0):
        counts.append(sampler.sample(now, now).counters[found.id]["errors"])
        counter.write_text("0x1f\n")
    assert counts == [1, 1, 1, 31, 31]


@pytest.mark.parametrize("line", ["", "8 0 sda", "8 0 sda 1 2 3 4 5 6 7 8 nine", "8 0 sda 1 2"])
def test_a_line_that_makes_no_sense(line: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        disk(line, None)
