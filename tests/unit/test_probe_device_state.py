"""Disks that hold nothing: told from those that hold something, and from those nobody can read."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbatune.probe.guard import SAMPLED_BLOCKS, is_blank

SIZE = 4 << 20


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file of zeros on a filesystem that takes direct I/O."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = Path(folder) / "disk"
        path.write_bytes(bytes(SIZE))
        yield path


def test_zeros_all_over_are_blank(disk: Path) -> None:
    assert is_blank(str(disk), SIZE) is True


@pytest.mark.parametrize("place", [0, SAMPLED_BLOCKS // 2, SAMPLED_BLOCKS - 1])
def test_one_byte_where_it_looks_is_enough(disk: Path, place: int) -> None:
    with disk.open("r+b") as file:
        file.seek(place * (SIZE // SAMPLED_BLOCKS) + 100)
        file.write(b"x")
    assert is_blank(str(disk), SIZE) is False


def test_what_cannot_be_read_is_not_known(disk: Path, tmp_path: Path) -> None:
    assert is_blank(str(disk) + "-none", SIZE) is None
    hung = tmp_path / "hung"
    os.mkfifo(hung)
    assert is_blank(str(hung), SIZE, deadline=0.3) is None


def test_a_disk_smaller_than_the_places_is_looked_at_whole(disk: Path) -> None:
    assert is_blank(str(disk), 4096) is True
