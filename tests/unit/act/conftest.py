"""Fixtures of the room act: a described disk, and the means to write to it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act.executor import Means
from tests.unit.disk_files import Disk


@pytest.fixture
def disk(tmp_path: Path) -> Callable[..., Disk]:
    def make_disk(name: str = "sda", **files: str) -> Disk:
        return Disk(tmp_path / "sys", name, **files)

    return make_disk


@pytest.fixture
def means(tmp_path: Path) -> Means:
    return Means(
        journal=tmp_path / "state/journal.json",
        claims=tmp_path / "run/claims",
        spent=tmp_path / "run/spent.json",
        workers=4,
        deadline=20.0,
    )
