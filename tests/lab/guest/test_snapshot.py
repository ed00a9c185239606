"""A snapshot answers as the machine does that it was taken on, row for row."""

from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune, installed

PROFILES = ("oltp", "latency", "throughput", "balanced")


def test_diff_of_a_snapshot_is_the_diff_of_its_machine(tmp_path: Path) -> None:
    file = tmp_path / "lab.snapshot"
    taken = hbatune("snapshot", str(file))
    assert taken.code == 0, taken.err
    for profile in PROFILES:
        here = hbatune("diff", "--profile", profile, "--json")
        there = hbatune("diff", "--profile", profile, "--json", "--snapshot", str(file))
        assert there.json["rows"] == here.json["rows"]
        assert there.code == here.code


@pytest.mark.parametrize("command", ["list", "check"])
def test_other_commands_answer_alike(command: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.snapshot"
    assert hbatune("snapshot", str(file)).code == 0
    here = hbatune(command, "--json")
    there = hbatune(command, "--json", "--snapshot", str(file))
    assert there.json == here.json
    assert there.code == here.code


def test_a_snapshot_is_read_without_root(tmp_path: Path) -> None:
    file = Path("/run/lab/lab.snapshot")
    file.unlink(missing_ok=True)
    assert hbatune("snapshot", str(file)).code == 0
    file.chmod(0o644)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    done = installed("diff", "--profile", "oltp", "--snapshot", str(file), before=nobody)
    assert done.code == 1, done.err
