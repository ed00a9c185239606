"""A snapshot gives the host's own answers, row for row, on every described machine."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.conftest import NAMED
from tests.hosts.machines import hostile, lab, multipath, troubled
from tests.hosts.namespace import run
from tests.hosts.recorded import COMMANDS, output
from tests.hosts.tree import Described

MIXED = {build.__name__: build for build in (lab, multipath, hostile, troubled)}
MACHINES = {**NAMED, **MIXED}

Built = Callable[[Described], Path]


def recorded(built: Built, machine: Described, folder: Path) -> None:
    run(built(machine), [sys.executable, "-m", "tests.hosts.recorded", str(folder)])


@pytest.mark.parametrize("name", MACHINES)
def test_snapshot_answers_match_host(built: Built, tmp_path: Path, name: str) -> None:
    recorded(built, MACHINES[name](), tmp_path)
    for command, arguments in COMMANDS.items():
        code, text = output([*arguments, "--snapshot", str(tmp_path / "host.snapshot")])
        assert json.loads(text) == json.loads((tmp_path / f"{command}.json").read_text())
        assert code == int((tmp_path / f"{command}.code").read_text())


@pytest.mark.parametrize("name", ["lab", "mpi3mr", "fc_multipath", "nvme_shared", "hostile"])
def test_anonymous_snapshot_changes_only_names(built: Built, tmp_path: Path, name: str) -> None:
    recorded(built, MACHINES[name](), tmp_path)
    _, text = output([*COMMANDS["diff"], "--snapshot", str(tmp_path / "anonymous.snapshot")])
    anonymous, original = json.loads(text), json.loads((tmp_path / "diff.json").read_text())
    assert [nameless(row) for row in anonymous["rows"]] == [
        nameless(row) for row in original["rows"]
    ]
    assert anonymous["summary"]["hostname"].startswith("anon-")
    pairs = {
        (row["id"], original_row["id"])
        for row, original_row in zip(anonymous["rows"], original["rows"], strict=True)
    }
    assert len({new for new, _ in pairs}) == len({old for _, old in pairs}) == len(pairs)


def nameless(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "id": None}
