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


def test_zeroed_disk_is_blank(disk: Path) -> None:
    assert is_blank(str(disk), SIZE) is True


@pytest.mark.parametrize("place", [0, SAMPLED_BLOCKS // 2, SAMPLED_BLOCKS - 1])
def test_sampled_byte_means_used_disk(disk: Path, place: int) -> None:
    with disk.open("r+b") as file:
        file.seek(place * (SIZE // SAMPLED_BLOCKS) + 100)
        file.write(b"x")
    assert is_blank(str(disk), SIZE) is False


def test_unreadable_disk_is_unknown(disk: Path, tmp_path: Path) -> None:
    assert is_blank(str(disk) + "-none", SIZE) is None
    hung = tmp_path / "hung"
    os.mkfifo(hung)
    assert is_blank(str(hung), SIZE, deadline=0.3) is None


def test_tiny_disk_reads_fully(disk: Path) -> None:
    assert is_blank(str(disk), 4096) is True
