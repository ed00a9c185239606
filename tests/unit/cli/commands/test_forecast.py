"""`hbatune forecast`: exit codes, the table and the JSON document."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.cli import main
from hbatune.snapshot.file import encode_snapshot
from tests.documented import validate
from tests.unit.fleets import host
from tests.unit.plan.test_kernel_changes import DISKS, RELEASES

Capture = pytest.CaptureFixture[str]


def save_host(folder: Path, series: str) -> str:
    """Save the snapshot of a host with one rotational disk, and return its path."""
    snapshot = host(1)
    [old, *others] = snapshot.machine.endpoints
    attributes = DISKS["pvscsi"].endpoint(0 if series == "6.12" else 1).attributes
    endpoints = (replace(old, attributes=attributes), *others)
    machine = replace(snapshot.machine, kernel=RELEASES.get(series, series), endpoints=endpoints)
    path = folder / "db1.snap"
    path.write_bytes(encode_snapshot(replace(snapshot, machine=machine)))
    return str(path)


def test_changes_exit_1(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.12")
    assert main(["forecast", "--kernel", "7.3.9+custom", "--snapshot", path]) == 1
    text = capsys.readouterr().out
    assert "queue/max_sectors_kb" in text
    assert "1280" in text
    assert "4096" in text


def test_json_has_a_row_for_each_value(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.12")
    assert main(["forecast", "--kernel", "7.3", "--snapshot", path, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    validate(document)
    rows = {row["attribute"]: row for row in document["rows"] if row["target"] == "sda"}
    assert (rows["queue/read_ahead_kb"]["now"], rows["queue/read_ahead_kb"]["then"]) == (128, 8192)
    assert rows["queue/async_depth"]["now"] is None
    assert rows["queue/async_depth"]["effect"]


def test_same_kernel_exits_0(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "7.3")
    assert main(["forecast", "--kernel", "7.3", "--snapshot", path]) == 0
    assert "No changes" in capsys.readouterr().out


def test_uncovered_kernel_exits_2(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.12")
    assert main(["forecast", "--kernel", "6.18", "--snapshot", path]) == 2
    assert "6.1, 6.12, 7.3" in capsys.readouterr().err


def test_host_on_uncovered_kernel_gets_remedy(tmp_path: Path, capsys: Capture) -> None:
    path = save_host(tmp_path, "6.18")
    assert main(["forecast", "--kernel", "7.3", "--snapshot", path]) == 2
    assert "take a snapshot of a host that runs one of these" in capsys.readouterr().err
