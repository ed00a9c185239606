"""Every kind of target, every command, both users, text and JSON: right answers, no traceback."""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.documented import validate
from tests.hosts.matrix import (
    ADMIN,
    CHANGES,
    KINDS,
    LOOKS,
    OF_ROOTS_FOLDERS,
    OF_ROOTS_HISTORY,
    OWN_DEVICES,
    UNKNOWN,
    WITHOUT_TARGET,
    Cell,
    everything,
)
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.tree import build

MPT3SAS = {"sda", "sdb", "sdd"}
MAP = {"dm-0", "sdb", "sdc"}
HEAD = {"nvme1n1", "nvme1c1n1", "nvme1c2n1"}
MEANS: dict[str, set[str]] = {
    "adapter": MPT3SAS,
    "adapter without disks": set(),
    "SCSI host": MPT3SAS,
    "SCSI host without disks": set(),
    "NVMe controller": {"nvme0n1"},
    "NVMe controller of a subsystem": {"nvme1c1n1"},
    "map": MAP,
    "link to a map": MAP,
    "name of a map": MAP,
    "path of a map": {"sdc"},
    "disk that no rule matches": {"sdd"},
    "NVMe namespace": {"nvme0n1"},
    "NVMe namespace over two controllers": HEAD,
    "hidden path": {"nvme1c1n1"},
    "interrupt": set(),
}
"""The endpoints that a kind of name means; all others in ``KINDS`` mean sda."""

NOTHING = (ADMIN, UNKNOWN)
KNOWN = [kind for kind in KINDS if kind not in NOTHING]
Cells = Callable[..., list[Cell]]


@pytest.fixture(scope="module")
def cells(_namespaces: None) -> Cells:
    """Return a function for the cells with these fields, of one run over all."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        build(everything(), Path(folder))
        inside = [sys.executable, "-m", "tests.hosts.matrix"]
        printed = run(Path(folder), [*OWN_CONFIGURATION, *OWN_DEVICES, *inside], timeout=900)
    every = [Cell(**load) for load in json.loads(printed)]

    def select_cells(**fields: object) -> list[Cell]:
        return [
            cell
            for cell in every
            if all(getattr(cell, name) == value for name, value in fields.items())
        ]

    return select_cells


def documents(target_cells: Iterable[Cell]) -> dict[str, Any]:
    """Return the JSON document of each cell by the kind of its target."""
    return {cell.target: json.loads(cell.out) for cell in target_cells}


def test_every_matrix_cell_runs(cells: Cells) -> None:
    kinds = len(KINDS) * len({**LOOKS, **CHANGES})
    more = (WITHOUT_TARGET, OF_ROOTS_HISTORY, OF_ROOTS_FOLDERS)
    assert len(cells()) == 4 * (kinds + sum(map(len, more)))


def test_cells_exit_without_traceback(cells: Cells) -> None:
    for cell in cells():
        assert cell.code in (0, 1, 2, 4), cell
        assert "Traceback" not in cell.err + cell.out, cell
        assert "fault" not in cell.err, cell


# `check` finds that drives and adapters lack something, `probe` that fio fails. A plain file does
# not forget nr_requests as a scheduler is switched, so that not everything can go back.
CODES = {"check": (0, 1), "diff": (0, 1), "probe": (1,), "rollback": (0, 1)}


@pytest.mark.parametrize("user", ["root", "user"])
@pytest.mark.parametrize("command", [*LOOKS, *CHANGES])
def test_commands_accept_every_target_kind(cells: Cells, command: str, user: str) -> None:
    command_cells = cells(command=command, user=user)
    for cell in command_cells:
        if cell.target in NOTHING or (command in CHANGES and user != "root"):
            continue
        if command == "probe" and not MEANS.get(cell.target, {"sda"}):
            assert cell.code == 2, cell
            assert "there is no disk to probe" in cell.err
            continue
        assert cell.code in CODES.get(command, (0,)), cell
        assert cell.out, cell


@pytest.mark.parametrize("kind", NOTHING)
def test_invalid_target_gets_hint(cells: Cells, kind: str) -> None:
    for cell in cells(target=kind):
        assert (cell.code, cell.out) == (2, ""), cell
        if cell.user == "root" or cell.command in LOOKS:
            message, hint = cell.err.splitlines()[-2:]
            assert message == f"hbatune: no target {KINDS[kind]!r} on this machine"
            assert ("`hbatune list`" if kind == UNKNOWN else "carries no data") in hint


def test_user_gets_root_hint(cells: Cells) -> None:
    for command in ("apply", "rollback"):
        for cell in cells(command=command, user="user"):
            assert (cell.code, cell.out) == (2, "")
            assert f"`{command}` changes the machine and needs root" in cell.err
            assert "sudo" in cell.err
    for cell in cells(command="probe", user="user"):
        if MEANS.get(cell.target, {"sda"}) and cell.target not in NOTHING:
            assert (cell.code, cell.out) == (2, ""), cell
            assert "only root and the group disk may" in cell.err
            assert "sudo" in cell.err


# No two moments of `watch` are the same.
@pytest.mark.parametrize("command", [*(look for look in LOOKS if look != "watch"), *WITHOUT_TARGET])
def test_both_users_get_same_answer(cells: Cells, command: str) -> None:
    for mine, theirs in zip(
        cells(command=command, user="root"), cells(command=command, user="user"), strict=True
    ):
        assert (mine.target, mine.as_json) == (theirs.target, theirs.as_json)
        # The time and the ages of a status differ at each moment.
        moment = re.compile(r'"ages": \{.*?\}|"time": \d+\.\d+,\n "state"', re.DOTALL)
        assert moment.sub("", mine.out) == moment.sub("", theirs.out)
        assert (mine.code, mine.err) == (theirs.code, theirs.err)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("history, root's own", 2),
        ("status, root's history", 0),
        ("list, root's folders", 0),
        ("diff, root's folders", 2),
        ("explain, root's folders", 2),
        ("check, root's folders", 2),
        ("history, root's folders", 2),
        ("status, root's folders", 2),
        ("watch, root's folders", 0),
    ],
)
def test_root_only_data_is_reported(cells: Cells, command: str, code: int) -> None:
    for cell in cells(command=command, user="user"):
        assert cell.code == code, cell
        if command == "status, root's history":
            assert "for root only" in cell.out or json.loads(cell.out)["verdicts"] is None, cell
        else:
            assert "root's to read" in cell.err, cell
    for cell in cells(command=command, user="root"):
        assert cell.code in (0, 1)
        assert "root's to read" not in cell.err


def test_watch_explains_missing_p99(cells: Cells) -> None:
    for command, user, why in (
        ("watch", "user", "only root can trace I/O; use sudo"),
        ("watch, root's folders", "user", "only root can trace I/O; use sudo"),
        ("watch, root's folders", "root", "run `mount -t tracefs tracefs"),
    ):
        for cell in cells(command=command, user=user):
            assert cell.target in NOTHING or f"no p99: {why}" in cell.err, cell


def test_daemon_status_is_public(cells: Cells) -> None:
    for cell in cells(command="status"):
        assert cell.code == 0
        assert "oltp" in cell.out


def test_json_matches_schema(cells: Cells) -> None:
    for cell in cells(as_json=True):
        if cell.code != 2:
            for document in cell.out.splitlines() if cell.command == "watch" else [cell.out]:
                validate(json.loads(document))


@pytest.mark.parametrize("kind", KNOWN)
def test_answer_matches_target(cells: Cells, kind: str) -> None:
    meant = MEANS.get(kind, {"sda"})
    [listed] = documents(cells(command="list", user="user", as_json=True, target=kind)).values()
    assert {endpoint["target"] for endpoint in listed["endpoints"]} == meant
    assert len(listed["adapters"]) in (1, 2)
    assert {endpoint["adapter"] for endpoint in listed["endpoints"]} - {None} <= {
        adapter["target"] for adapter in listed["adapters"]
    }
    disks = {"sda", "sdb", "sdc", "sdd", "dm-0", "nvme0n1", *HEAD}
    for command in ("diff", "apply --dry-run", "apply"):
        [plan] = documents(cells(command=command, user="root", as_json=True, target=kind)).values()
        assert {row["target"] for row in plan["rows"]} & disks <= meant
    [explanation] = documents(
        cells(command="explain", user="root", as_json=True, target=kind)
    ).values()
    explained = {
        target_entry["target"]
        for target_entry in (*explanation["explained"], *explanation["without_rules"])
    }
    assert explained & disks == meant
    [checked] = documents(cells(command="check", user="root", as_json=True, target=kind)).values()
    assert {finding["target"] for finding in checked["findings"]} & disks <= meant


@pytest.mark.parametrize("kind", KNOWN)
def test_text_names_json_targets(cells: Cells, kind: str) -> None:
    [listed] = cells(command="list", user="root", as_json=False, target=kind)
    disks = {"sda", "sdb", "sdc", "sdd", "dm-0", "nvme0n1", *HEAD}
    named = {line.split()[0] for line in listed.out.splitlines() if line.strip()}
    assert named & disks == MEANS.get(kind, {"sda"})


def test_unmatched_disk_is_explained(cells: Cells) -> None:
    kind = "disk that no rule matches"
    [cell] = cells(command="explain", user="root", as_json=False, target=kind)
    assert "sdd: no rule of profile oltp matches, so nothing is set" in cell.out
    assert "`hbatune profiles oltp` shows its rules" in cell.out
