"""Where links below /dev lead to."""

import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hbatune.errors import UsageError
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
    (tmp_path / "sys/devices/dm-0").mkdir()
    (block / "dm-0").symlink_to(tmp_path / "sys/devices/dm-0")
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
    assert devices.resolve_name(str(link)) == (disk,)


def test_unresolvable_name_stays_unchanged(dev: Path) -> None:
    link = dev / "disk/later"
    link.symlink_to("../sdz")
    for name in (str(link), str(dev / "disk/none"), "sda", "naa.5"):
        assert devices.resolve_name(name) == (name,)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        *(("sda", "sda"), ("sda1", "sda1"), ("disk/x", "sda1"), ("by-x", "sda1"), ("mpa", "dm-0")),
        *(("md/data", "dm-0"), ("data", "dm-0")),
        *(("vg0/pg", "dm-0"), ("../etc", None), ("/etc/sda", None), ("sdz", None), ("", None)),
    ],
)
def test_name_finds_block_device(dev: Path, name: str, device: str | None) -> None:
    links = {"disk/x": "sda1", "disk/by-id/by-x": "sda1", "mapper/mpa": "dm-0", "md/data": "dm-0"}
    for link, node in links.items():
        (dev / link).parent.mkdir(exist_ok=True, parents=True)
        (dev / link).symlink_to(dev / node)
    (dev / "vg0").mkdir()
    (dev / "vg0/pg").symlink_to("../dm-0")
    assert devices.find_block_device(name) == device
    if device and name:
        assert devices.find_block_device(f"{devices._DEV}{name}") in (device, None)


def test_pools_are_searched_only_if_needed(
    dev: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search reads udev's entries of all block devices, and there may be thousands."""
    searches = []

    def find_pools() -> dict[str, list[str]]:
        searches.append("all")
        return {"tank": ["sda1"], "dm-0": ["sda1"], "exported": ["dm-0"]}

    pool, volume = f"{tmp_path}/pool", f"{tmp_path}/volume"
    for folder in (pool, volume, f"{tmp_path}/kstat/tank", f"{tmp_path}/kstat/dm-0"):
        Path(folder).mkdir(parents=True)
    (tmp_path / "kstat/arcstats").touch()
    (tmp_path / "mountinfo").write_text(
        f"20 1 0:98 / {volume} rw - ext4 {dev}/dm-0 rw\n21 1 0:99 / {pool} rw - zfs tank/pg rw\n"
    )
    monkeypatch.setattr(devices, "find_pools", find_pools)
    monkeypatch.setattr(devices, "_MOUNTINFO", str(tmp_path / "mountinfo"))
    monkeypatch.setattr(devices, "_POOLS", str(tmp_path / "kstat"))
    # A device comes before a pool of the same name.
    for name, disk in {"tank": "sda", pool: "sda", volume: "dm-0", "dm-0": "dm-0"}.items():
        for deadline in (5, None):
            searches.clear()
            stack = devices.find_named_stack(name, deadline=deadline)
            assert stack is not None
            assert stack.disks == (disk,)
            assert len(searches) == (disk == "sda")
    searches.clear()
    for name in ("host0", "0000:01:00.0", "irq27", "naa.6000a", "exported"):
        assert devices.find_named_stack(name) is None
    assert searches == []
    monkeypatch.setattr(devices, "_POOLS", str(tmp_path / "none"))  # if /proc hides it
    assert devices.resolve_name("tank") == ("sda",)


@pytest.mark.parametrize(("label", "name"), [("media\n", "media"), ("", "4f6c")])
def test_btrfs_without_label_has_its_uuid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str, name: str
) -> None:
    (tmp_path / "4f6c").mkdir()
    (tmp_path / "4f6c/label").write_text(label)
    monkeypatch.setattr(devices, "_BTRFS", str(tmp_path))
    assert devices.read_label("4f6c") == name


@pytest.mark.parametrize("error", [errno.EACCES, errno.ESTALE])
def test_unreadable_file_is_reported(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def raise_error(name: str, **options: object) -> str:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os.path, "realpath", raise_error)
    with pytest.raises(UsageError, match="'/net/x' cannot be read"):
        devices.find_named_stack("/net/x")


def test_hung_file_system_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a dead NFS server: the name is resolved in a worker, which is abandoned."""
    monkeypatch.setattr(os.path, "realpath", lambda name, **options: signal.pause())
    with pytest.raises(UsageError, match="'/net/x' did not answer"):
        devices.find_named_stack("/net/x", deadline=0.1)


@pytest.mark.parametrize(
    ("mount", "message"),
    [("tmpfs tmpfs", "on tmpfs"), ("nfs4 db:/srv", "on nfs4"), ("zfs tank/pg", "on zfs")],
)
def test_file_without_device_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, message: str
) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(f"20 1 8:999 / / rw - ext4 /dev/sda rw\n21 20 0:99 / {tmp_path} rw - {mount}\n")
    monkeypatch.setattr(devices, "_MOUNTINFO", str(file))
    with pytest.raises(UsageError, match=message) as caught:
        devices.find_named_stack(f"{tmp_path}/mountinfo")
    assert ("zpool status" in str(caught.value.hint)) == mount.startswith("zfs")


@pytest.fixture
def point(dev: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mount point of a map below the mount point of a disk."""
    (tmp_path / "data").mkdir()
    (tmp_path / "mountinfo").write_text(
        f"20 1 0:97 / / rw - ext4 {dev}/sda rw\n"
        f"21 20 0:98 / {tmp_path}/data rw - ext4 {dev}/dm-0 rw\n"
    )
    monkeypatch.setattr(devices, "_MOUNTINFO", str(tmp_path / "mountinfo"))
    return tmp_path / "data"


def test_file_is_on_device_of_its_mount(point: Path) -> None:
    for name in ("pg/base/1", "../database"):
        (point / name).parent.mkdir(parents=True, exist_ok=True)
        (point / name).touch()
    (point / "../link").symlink_to("data/pg/base/1")
    for name, layers in {
        f"{point}/pg/base/1": (("dm-0",),),
        f"{point.parent}/link": (("dm-0",),),
        f"{point.parent}/database": (("sda",),),  # the name begins like the mount point
    }.items():
        stack = devices.find_named_stack(name)
        assert stack is not None
        assert stack.layers == layers


def test_autofs_is_mounted_first(
    point: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel mounts it only if a path goes through it, as PATH/. does."""
    mountinfo, read_status = tmp_path / "mountinfo", os.stat
    mounted = mountinfo.read_text()
    mountinfo.write_text(f"21 20 0:96 / {point} rw - autofs auto.master rw\n")

    def mount(path: str, **options: Any) -> os.stat_result:
        if path == f"{point}/.":
            mountinfo.write_text(mountinfo.read_text() + mounted)
        return read_status(path, **options)

    monkeypatch.setattr(os, "stat", mount)
    stack = devices.find_named_stack(str(point))
    assert stack is not None
    assert stack.disks == ("dm-0",)


def test_last_mount_gives_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(
        "20 1 8:0 / /srv/a\\040b rw,relatime - ext4 /dev/sda rw\n"
        "21 1 8:0 / /srv/a\\040b rw,noatime shared:1 - ext4 /dev/sdb rw\n"
        "22 1 8:0 / /other rw - ext4 /dev/sdc rw\n"
    )
    monkeypatch.setattr(devices, "_MOUNTINFO", str(file))
    assert devices.read_mount_options({"/srv/a b"}) == {"/srv/a b": ("rw", "noatime")}
