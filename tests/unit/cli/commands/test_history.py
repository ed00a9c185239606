"""Tests of hbatune/cli/commands/history.py."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.cli import main
from hbatune.facts.model import Protocol, Storage
from hbatune.probe import history
from hbatune.probe.result import Workload
from hbatune.shipped import load_texts
from tests.unit.command_runs import See
from tests.unit.machines import endpoint, machine
from tests.unit.probe.test_history import HOST, record


def show_history(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["history", *words]) == 0
    return [" ".join(line.split()[2:]) for line in capsys.readouterr().out.splitlines()[1:]]


def test_untrusted_run_is_not_best(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 12 issued, 24 are in flight by Little's law."""
    see(HOST)
    sweep = [
        record(iops=iops, workload=Workload(depth=depth))
        for depth, iops in ((12, 9000.0), (24, 1000.0), (25, 1500.0))
    ]
    history.append(Paths.history, sweep)
    [row, *_] = show_history(capsys)
    load = "sda probe, 4K random reads, 12 to 25 in flight"
    assert row == f"{load} up to 1,500 IOPS in 3 runs (1 untrusted)"


def test_runs_of_other_times_are_rows(see: See, capsys: pytest.CaptureFixture[str]) -> None:
    see(HOST)
    history.append(Paths.history, [record(0, 1000.0), record(60, 2000.0)])
    latest, earlier, *_ = show_history(capsys)
    assert "2,000 IOPS, mean 12.0 ms" in latest
    assert "the last time 1,000 IOPS and p99 100 ms" in latest
    assert "1,000 IOPS, mean 24.0 ms" in earlier


@pytest.mark.parametrize(
    ("words", "disks", "named"),
    [
        (["sdb"], [{"target": "sda"}, {"target": "sdb"}], "sdb"),
        ([], [{"target": "sdb", "mounts": ("/",)}, {"target": "sdc"}], "sdc"),
        ([], [{"target": "sda", "protocol": Protocol.UNKNOWN}, {"target": "sdb"}], "sdb"),
        ([], [{"target": "sda", "protocol": Protocol.FC, "storage": Storage.ARRAY}], "sda"),
        ([], [], "DISK"),
    ],
)
def test_empty_history_names_probe(
    words: list[str],
    disks: list[dict[str, object]],
    named: str,
    see: See,
    capsys: pytest.CaptureFixture[str],
) -> None:
    see(replace(machine(), endpoints=tuple(endpoint(**disk) for disk in disks)))
    assert main(["history", *words]) == 0
    assert f"`sudo hbatune probe depth-sweep {named}`" in capsys.readouterr().out


IDS = load_texts("notes.toml")["message_ids"]
ENTRY = {
    "MESSAGE_ID": IDS["tuned"],
    "__REALTIME_TIMESTAMP": "1030000000",
    "HBATUNE_TARGET": "sda",
    "HBATUNE_ID": HOST.endpoints[0].id,
    "HBATUNE_SETTING": "nr_requests",
    "HBATUNE_WRITER": "tuned.service",
    "MESSAGE": "sda: nr_requests 128 → 256, drift: tuned.service set it at 14:03 (oltp)",
}


@pytest.fixture
def drift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a journal with a change of a setting by tuned, and with other entries."""
    own = {**ENTRY, "HBATUNE_WRITER": None}
    lines = "\n".join(map(json.dumps, (ENTRY, own, {**ENTRY, "MESSAGE": [1, 2]})))
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_drift_is_listed_by_time(see: See, drift: None, capsys: pytest.CaptureFixture[str]) -> None:
    see(HOST)
    history.append(Paths.history, [record(0, 1000.0), record(60, 2000.0)])
    rows = show_history(capsys)
    assert [" ".join(row.split()[:3]) for row in rows[:3]] == [
        "sda probe, 4K",
        "sda drift: nr_requests",
        "sda probe, 4K",
    ]
    assert "tuned.service set it at 14:03" in " ".join(rows)
    assert main(["history", "--json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)["drift"]
    assert (entry["writer"], entry["time"]) == ("tuned.service", 1030)


def test_drift_of_other_disk_is_left_out(
    see: See, drift: None, capsys: pytest.CaptureFixture[str]
) -> None:
    see(replace(HOST, endpoints=(*HOST.endpoints, endpoint(target="sdz", id="z"))))
    assert main(["history", "sdz"]) == 0
    assert "tuned" not in capsys.readouterr().out
