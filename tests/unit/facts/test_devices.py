"""Where links below /dev lead to."""

from pathlib import Path

import pytest

from hbatune.facts import devices


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /dev with sda, a partition of it and a map, and the class folder that tells them apart."""
    disk = tmp_path / "sys/devices/sda"
    (disk / "sda1").mkdir(parents=True)
    (disk / "sda1/partition").write_text("1\n")
    block = tmp_path / "sys/class/block"
    block.mkdir(parents=True)
    (block / "sda").symlink_to(disk)
    (block / "sda1").symlink_to(disk / "sda1")
    folder = tmp_path / "dev"
    (folder / "disk").mkdir(parents=True)
    for name in ("sda", "sda1", "dm-0"):
        (folder / name).write_text("")
    monkeypatch.setattr(devices, "_DEV", f"{folder}/")
    monkeypatch.setattr(devices, "_BLOCK", str(block))
    return folder


@pytest.mark.parametrize(("node", "disk"), [("sda", "sda"), ("sda1", "sda"), ("dm-0", "dm-0")])
def test_link_resolves_to_disk(dev: Path, node: str, disk: str) -> None:
    link = dev / "disk/x"
    link.symlink_to(f"../{node}")
    assert devices.resolve_link(str(link)) == disk


def test_unresolvable_name_stays_unchanged(dev: Path) -> None:
    link = dev / "disk/later"
    link.symlink_to("../sdz")
    for name in (str(link), str(dev / "disk/none"), str(dev / "sda"), "sda", "naa.5"):
        assert devices.resolve_link(name) == name


def test_last_mount_gives_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(
        "20 1 8:0 / /srv/a\\040b rw,relatime - ext4 /dev/sda rw\n"
        "21 1 8:0 / /srv/a\\040b rw,noatime shared:1 - ext4 /dev/sdb rw\n"
        "22 1 8:0 / /other rw - ext4 /dev/sdc rw\n"
    )
    monkeypatch.setattr(devices, "_MOUNTINFO", str(file))
    assert devices.read_mount_options({"/srv/a b"}) == {"/srv/a b": ("rw", "noatime")}
