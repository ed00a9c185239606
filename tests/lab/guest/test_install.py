"""Installing and uninstalling on a machine with systemd and udev, and what is left afterwards."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
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
from tests.lab.guest.machine_state import measure_files
from tests.lab.guest.service import is_active
from tests.lab.guest.values import cat, everything

KERNELS = ("6.1",)


@dataclass(frozen=True)
class Before:
    """What there was before hbatune was installed."""

    files: dict[str, int]
    values: dict[str, str]


@pytest.fixture(scope="module", autouse=True)
def before(virtual_disks_wanted: None) -> Iterator[Before]:
    hbatune("uninstall")  # whatever other tests have left
    with idle_daemon():
        yield Before(measure_files(), everything())
        hbatune("uninstall")


@pytest.fixture(scope="module")
def in_place(before: Before) -> None:
    """hbatune installed once, for all that looks at it; the last test takes it away."""
    reloads = count_reloads()
    done = installed("install", "--profile", "oltp")
    assert done.code == 0, done.out + done.err
    assert count_reloads() == reloads + 1


def count_reloads() -> int:
    """Return how often systemd has read all units again. With many disks, this takes seconds."""
    words = ["journalctl", "--output=cat", "_PID=1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout.splitlines().count("Reloading.")


def systemctl(*words: str) -> str:
    """What systemctl says."""
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def test_read_only_etc_installs_nothing(before: Before) -> None:
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
    assert {p: s for p, s in measure_files().items() if "/var/lib/hbatune" not in p} == before.files


def test_dry_run_installs_nothing() -> None:
    sizes = measure_files()
    done = installed("install", "--profile", "oltp", "--dry-run")
    assert done.code == 0, done.err
    assert f"+++ {RULES}" in done.out
    assert measure_files() == sizes


def test_install_starts_daemon(in_place: None) -> None:
    assert systemctl("show", "--property=UnitFileState", "--value", UNIT.name) == "enabled"
    assert is_active()
    assert "hbatune.service" not in systemctl("show", "--property=After", "multi-user.target")
    assert UNIT.exists()
    assert RULES.exists()


def test_second_install_changes_nothing(in_place: None) -> None:
    sizes = measure_files()
    again = installed("install")
    assert again.code == 0
    assert "in place already" in again.out
    assert measure_files() == sizes


def test_unit_passes_systemd_security(in_place: None) -> None:
    words = ["systemd-analyze", "security", "--threshold=30", "--no-pager", "hbatune.service"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_sandbox_allows_apply_and_no_disk_access(in_place: None) -> None:
    """What the daemon does, done by the command line under the daemon's restrictions."""
    [disk] = scsi_disks("sym53c8xx")
    [line] = [
        splitline
        for splitline in UNIT.read_text().splitlines()
        if splitline.startswith("ExecStart=")
    ]
    command = line.removeprefix("ExecStart=").removesuffix(" daemon")
    work = (f"{command} apply --once --no-probe", f"/bin/sh -c '! head -c 1 /dev/{disk}'")
    with instead_of_the_daemon(*work):
        done = subprocess.run(["systemctl", "restart", "hbatune.service"], check=False)
        output = subprocess.run(
            ["journalctl", "--identifier=hbatune", "--no-pager", "--lines=60"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, output.stdout
        assert disk in output.stdout, "printed by `apply`"
        assert cat(disk, "queue/nr_requests") == "2048"


def test_uninstall_leaves_nothing(before: Before, in_place: None) -> None:
    assert hbatune("apply", "--no-probe").code == 0
    with loaded_scsi_debug(**LUN) as [disk]:
        assert by_rule(disk)
    reloads = count_reloads()
    back = hbatune("uninstall")
    assert back.code == 0, back.out + back.err
    assert count_reloads() == reloads + 1
    assert systemctl("show", "--property=LoadState", "--value", UNIT.name) == "not-found"
    assert everything() == before.values
    assert measure_files() == before.files
    assert not Path("/run/hbatune").exists()
    assert systemctl("is-active", "hbatune.service") == "inactive"
    with loaded_scsi_debug(**LUN) as [disk]:
        assert not by_rule(disk), values(disk)
