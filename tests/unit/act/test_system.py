"""The active profile is one key of an administrator's file: the rest of it, and its guard, stay."""

import os
import stat
from pathlib import Path

import pytest

from hbatune import loader
from hbatune.act import files, system
from hbatune.loader import UnusableFileError


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A configuration that only its owner and a group may read, where a link leads."""
    file = tmp_path / "srv/site.toml"
    file.parent.mkdir()
    file.write_text('[site]\nexclude = ["sda"] # ours\n')
    if os.geteuid() == 0:
        os.chown(file, 1000, 4)
    file.chmod(0o640)
    return file


@pytest.fixture
def link(tmp_path: Path, real: Path) -> Path:
    path = tmp_path / "etc/hbatune/hbatune.toml"
    path.parent.mkdir(parents=True)
    path.symlink_to("../../srv/site.toml")
    return path


def guard(path: Path) -> tuple[int, int, int]:
    status = path.lstat()
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid


@pytest.mark.parametrize("profile", ["oltp", None])
def test_activation_preserves_link_and_mode(link: Path, real: Path, profile: str | None) -> None:
    before = real.stat()
    system.activate_profile(link, "balanced")
    system.activate_profile(link, profile)
    assert link.readlink() == Path("../../srv/site.toml")
    assert guard(real) == (0o640, before.st_uid, before.st_gid)
    text = real.read_text()
    assert ('profile = "oltp"' in text) is (profile is not None)
    assert 'exclude = ["sda"] # ours' in text


def test_private_configuration_stays_private(tmp_path: Path) -> None:
    file = tmp_path / "hbatune.toml"
    file.write_text('profile = "oltp"\n')
    file.chmod(0o600)
    system.activate_profile(file, "balanced")
    assert guard(file)[0] == 0o600


def test_new_configuration_is_public(tmp_path: Path) -> None:
    system.activate_profile(tmp_path / "etc/hbatune.toml", "oltp")
    assert guard(tmp_path / "etc/hbatune.toml")[0] == 0o644


def test_dangling_link_gets_target(tmp_path: Path) -> None:
    link = tmp_path / "hbatune.toml"
    link.symlink_to("site.toml")
    system.activate_profile(link, "oltp")
    assert link.is_symlink()
    assert (tmp_path / "site.toml").read_text() == 'profile = "oltp"\n'


def test_image_link_stays_inside(tmp_path: Path) -> None:
    image = tmp_path / "image"
    link = image / "etc/hbatune/hbatune.toml"
    link.parent.mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    link.symlink_to(tmp_path / "outside/site.toml")
    system.activate_profile(link, "oltp", root=image)
    assert not (tmp_path / "outside/site.toml").exists()
    inside = image / (tmp_path / "outside/site.toml").relative_to("/")
    assert inside.read_text() == 'profile = "oltp"\n'


def test_uninstallation_keeps_custom_link(link: Path, real: Path) -> None:
    real.write_text('profile = "oltp"\n')
    system.forget_profile(link)
    assert link.is_symlink()
    assert real.read_text() == ""


def test_uninstallation_reports_unreadable_configuration(
    real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.write_text("")

    def refuse(path: Path, max_bytes: int) -> bytes:
        raise UnusableFileError("Input/output error")

    monkeypatch.setattr(loader, "read_bytes", refuse)
    with pytest.raises(system.ActiveProfileError, match="cannot be read: Input/output error"):
        system.forget_profile(real)


def test_circular_links_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(system.ActiveProfileError, match=r"/a cannot be followed"):
        system.activate_profile(tmp_path / "a", "oltp")


def test_overwritten_file_keeps_mode(tmp_path: Path) -> None:
    file = tmp_path / "facts.snapshot"
    file.write_bytes(b"first")
    file.chmod(0o600)
    files.save(file, b"second", over=True)
    assert file.read_bytes() == b"second"
    assert guard(file)[0] == 0o600


def test_hung_udev_is_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "udevadm"
    tool.write_text("#!/bin/sh\nexec sleep 1000\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(system, "_is_udev_running", lambda: True)
    monkeypatch.setattr(system, "SETTLE_S", 0.2)
    ran = system.announce(["/sys/class/block/sda"])
    assert ran is not None
    assert (ran.finished, ran.said) == (False, "it did not end within 0.2 s")
