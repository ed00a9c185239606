"""What the kernel resets by itself is what the table of settings says, and nothing else."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hbatune.facts.model import TargetKind
from hbatune.settings.table import SETTINGS, Cause, find_target_kind
from tests.lab.guest import appear
from tests.lab.guest.kit import settle
from tests.lab.guest.values import cat, disks, everything, put, put_back, scheduler

OTHERS = {
    "scheduler": ("kyber", "mq-deadline"),
    "nr_requests": ("37", "41"),
    "async_depth": ("33", "35"),
    "rq_affinity": ("2", "0"),
    "nomerges": ("2", "1"),
    "rotational": ("1", "0"),
    "add_random": ("1", "0"),
    "iostats": ("0", "1"),
    "timeout": ("61", "62"),
    "io_timeout": ("61000", "62000"),
    "iopolicy": ("round-robin", "numa"),
    "max_sectors_kb": ("64", "32"),
    "wbt_lat_usec": ("12345", "23456"),
    "read_ahead_kb": ("16", "32"),
}
"""By setting, in the order of writing, values of which one at least is not the kernel's own."""
_ON_DISKS = {name for name in SETTINGS if find_target_kind(name) is TargetKind.ENDPOINT}


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = everything()
    yield
    put_back(before)


def spoiled(disk: str) -> dict[str, str]:
    """Set all that can be set of a disk to something else; return what it then says."""
    for name, values in OTHERS.items():
        path = SETTINGS[name].path
        with suppress(OSError):  # a device that passes I/O on has few settings
            was = read_setting(disk, name)
            put(disk, path, next(value for value in values if value != was))
    return read_settings(disk)


def read_settings(disk: str) -> dict[str, str]:
    """Return every setting of the disk that can be read."""
    values = {}
    for name in OTHERS:
        with suppress(OSError):
            values[name] = read_setting(disk, name)
    return values


def read_setting(disk: str, name: str) -> str:
    return scheduler(disk) if name == "scheduler" else cat(disk, SETTINGS[name].path)


def reset(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Return the settings that have changed by themselves."""
    return {name for name in before if before[name] != after[name]}


def by(cause: Cause) -> set[str]:
    """Return what the table says is reset."""
    return {name for name in _ON_DISKS if cause in SETTINGS[name].reset_by}


def test_every_disk_setting_is_covered() -> None:
    assert OTHERS.keys() | {"queue_depth"} == _ON_DISKS, "add two values to OTHERS"


def test_nvme_reset_matches_table() -> None:
    before = {disk: spoiled(disk) for disk in disks() if disk.startswith("nvme")}
    for controller in sorted(Path("/sys/class/nvme").iterdir()):
        appear.again(Controller(controller))
    settle()
    changed_settings = [reset(values, read_settings(disk)) for disk, values in before.items()]
    assert all("read_ahead_kb" in settings for settings in changed_settings), changed_settings
    assert set.union(*changed_settings) <= by(Cause.CONNECTED), changed_settings


def test_map_reload_matches_table(joined: tuple[str, list[str]]) -> None:
    name, _ = joined
    before = spoiled(name)
    table = Table(name)
    appear.again(table)
    settle()
    changed_settings = reset(before, read_settings(name))
    assert {"read_ahead_kb", "max_sectors_kb"} <= changed_settings <= by(Cause.LOADED)


class Controller(appear.Reset):
    """A reset of any controller."""

    def __init__(self, controller: Path) -> None:
        self._controller = controller.resolve()


class Table(appear.Reloaded):
    """A table that is loaded again, with nothing spoiled before."""

    def spoil(self) -> None:
        """Leave it as it is."""
