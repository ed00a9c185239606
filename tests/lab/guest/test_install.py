"""Installing and uninstalling on a machine with systemd and udev, and what is left afterwards."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest.boot import (
    LUN,
    RULES,
    UNIT,
    by_rule,
    idle_daemon,
    instead_of_the_daemon,
    values,
)
from tests.lab.guest.command import hbatune, installed
from tests.lab.guest.kit import loaded_scsi_debug, scsi_disks
from tests.lab.guest.values import cat, everything

KERNELS = ("6.1",)
_LOOKED_AT = ("/etc", "/usr/lib/systemd", "/usr/lib/udev", "/var/lib", "/run/systemd/system")
_OTHERS = ("/etc/mtab", "/var/lib/systemd", "/var/lib/dbus")


def files() -> dict[str, int]:
    """Every path where hbatune may leave something, with its size."""
    found = {}
    for top in _LOOKED_AT:
        for path in Path(top).rglob("*"):
            if not str(path).startswith(_OTHERS):
                found[str(path)] = path.lstat().st_size if not path.is_dir() else 0
    return found


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    hbatune("uninstall")  # whatever other tests have left
    with idle_daemon():
        yield
        hbatune("uninstall")


def systemctl(*words: str) -> str:
    """What systemctl says."""
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def test_install_starts_the_daemon_and_uninstall_leaves_nothing() -> None:
    before, set_before = files(), everything()
    done = installed("install", "--profile", "oltp")
    assert done.code == 0, done.out + done.err
    assert systemctl("is-enabled", "hbatune.service") == "enabled"
    assert systemctl("is-active", "hbatune.service") == "active"
    assert "hbatune.service" not in systemctl("show", "--property=After", "multi-user.target")
    assert UNIT.exists()
    assert RULES.exists()
    assert hbatune("apply", "--no-probe").code == 0
    back = hbatune("uninstall")
    assert back.code == 0, back.out + back.err
    assert everything() == set_before
    assert files() == before
    assert not Path("/run/hbatune").exists()
    assert systemctl("is-active", "hbatune.service") == "inactive"


def test_installing_twice_is_installing_once() -> None:
    assert installed("install", "--profile", "oltp").code == 0
    before = files()
    again = installed("install")
    assert again.code == 0
    assert "in place already" in again.out
    assert files() == before


def test_without_its_rules_udev_leaves_a_disk_alone() -> None:
    with loaded_scsi_debug(**LUN) as [disk]:
        original = values(disk)
    assert installed("install", "--profile", "oltp").code == 0
    assert hbatune("uninstall").code == 0
    with loaded_scsi_debug(**LUN) as [disk]:
        assert values(disk) == original
        assert not by_rule(disk)


def test_a_read_only_etc_is_told_and_nothing_is_placed() -> None:
    before = files()
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c"),
            "mount --bind /etc /etc && mount -o remount,bind,ro /etc && "
            "hbatune install --profile oltp",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Read-only file system; nothing was placed" in done.stderr
    assert {p: s for p, s in files().items() if "/var/lib/hbatune" not in p} == before


def test_a_dry_run_places_nothing() -> None:
    before = files()
    done = installed("install", "--profile", "oltp", "--dry-run")
    assert done.code == 0, done.err
    assert f"+++ {RULES}" in done.out
    assert files() == before


def test_the_unit_stands_systemds_judgement() -> None:
    assert installed("install", "--profile", "oltp").code == 0
    words = ["systemd-analyze", "security", "--threshold=30", "--no-pager", "hbatune.service"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_units_sandbox_lets_it_write_and_measure() -> None:
    """What the daemon does, done by the command line under the daemon's restrictions."""
    assert installed("install", "--profile", "oltp").code == 0
    [disk] = scsi_disks("sym53c8xx")
    [line] = [each for each in UNIT.read_text().splitlines() if each.startswith("ExecStart=")]
    command = line.removeprefix("ExecStart=").removesuffix(" daemon")
    work = (f"{command} apply --once --no-probe", f"{command} probe qd1 {disk} --runtime 1")
    with instead_of_the_daemon(*work):
        done = subprocess.run(["systemctl", "restart", "hbatune.service"], check=False)
        said = subprocess.run(
            ["journalctl", "--unit=hbatune.service", "--no-pager", "--lines=60"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, said.stdout
        assert cat(disk, "queue/nr_requests") == "2048"
