"""A snapshot answers as the machine does that it was taken on, row for row."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune, installed

KERNELS = ("6.1",)
PROFILES = ("oltp", "latency", "throughput", "balanced")


def same_rows(file: Path, *profiles: str) -> None:
    """Take a snapshot, and compare what it says with what the machine says."""
    snapshot = hbatune("snapshot", str(file))
    assert snapshot.code == 0, snapshot.err
    for profile in profiles:
        words = ("diff", "--profile", profile, "--module-options", "--json")
        live, offline = hbatune(*words), hbatune(*words, "--snapshot", str(file))
        assert offline.json["rows"] == live.json["rows"]
        assert offline.code == live.code


def test_snapshot_diff_matches_machine(tmp_path: Path) -> None:
    same_rows(tmp_path / "lab.snapshot", *PROFILES)


@pytest.mark.usefixtures("virtual_disks_wanted")
def test_many_lun_snapshot_matches_machine(
    scsi_debug: Callable[..., list[str]], tmp_path: Path
) -> None:
    assert len(scsi_debug(add_host=2, max_luns=4)) == 8
    same_rows(tmp_path / "luns.snapshot", "oltp")


def test_multipath_snapshot_matches_machine(joined: tuple[str, list[str]], tmp_path: Path) -> None:
    same_rows(tmp_path / "map.snapshot", "oltp")


@pytest.mark.parametrize("command", ["list", "check"])
def test_snapshot_commands_match_machine(command: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.snapshot"
    assert hbatune("snapshot", str(file)).code == 0
    live = hbatune(command, "--json")
    offline = hbatune(command, "--json", "--snapshot", str(file))
    assert offline.json == live.json
    assert offline.code == live.code


def test_snapshot_reads_without_root(tmp_path: Path) -> None:
    file = Path("/run/lab/lab.snapshot")
    file.unlink(missing_ok=True)
    assert hbatune("snapshot", str(file)).code == 0
    file.chmod(0o644)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    done = installed("diff", "--profile", "oltp", "--snapshot", str(file), before=nobody)
    assert done.code == 1, done.err
