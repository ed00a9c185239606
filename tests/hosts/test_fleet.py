"""Many described hosts, and two: the odd ones are named, and what matters comes first."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Attribute
from hbatune.settings.table import SETTINGS
from hbatune.snapshot.file import Snapshot, encode_snapshot
from tests.hosts import interrupts
from tests.hosts.conftest import NAMED
from tests.hosts.fleet import KINDS, ODD, save_fleet, snapshot_of
from tests.hosts.namespace import OWN_CONFIGURATION, run
from tests.hosts.recorded import output
from tests.hosts.tree import Described

Build = Callable[[Described], Path]


@pytest.fixture(scope="module")
def kinds(_namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> list[Snapshot]:
    return [snapshot_of(NAMED[name](), tmp_path_factory.mktemp(name)) for name in KINDS]


def test_audit_names_exactly_odd_hosts(kinds: list[Snapshot], tmp_path: Path) -> None:
    odd = save_fleet(tmp_path, kinds)
    code, text = output(["audit", "--json", str(tmp_path)])
    audit = json.loads(text)
    assert code == 1
    assert len(audit["hosts"]) == 1000
    assert audit["unusable"] == []
    assert {(oddity["host"], oddity["what"]) for oddity in audit["odd"]} == set(odd.items())
    assert len(audit["groups"]) == len(KINDS)


def test_compare_lists_important_differences_first(kinds: list[Snapshot], tmp_path: Path) -> None:
    normal = kinds[KINDS.index("mpi3mr")]
    slow = normal
    for difference in ("link width", "firmware", "kernel", "CPUs", "read_ahead_kb", "queue_depth"):
        slow = ODD[difference](slow) if difference in ODD else depth(slow)
    slow = replace(slow, machine=replace(slow.machine, hostname="db17", boot_id="another"))
    files = [tmp_path / "db16.snap", tmp_path / "db17.snap"]
    for file, snapshot in zip(files, (normal, slow), strict=True):
        file.write_bytes(encode_snapshot(snapshot))
    code, text = output(["compare", "--json", *map(str, files)])
    differences = [difference["what"] for difference in json.loads(text)["differences"]]
    assert code == 1
    assert differences == [
        "link width",
        "firmware",
        "queue_depth",
        "read_ahead_kb",
        "kernel",
        "CPUs",
    ]


def depth(snapshot: Snapshot) -> Snapshot:
    first, *more_endpoints = snapshot.machine.endpoints
    path = SETTINGS["queue_depth"].path
    deeper = replace(first, attributes={**first.attributes, path: Attribute("7", True)})
    return replace(snapshot, machine=replace(snapshot.machine, endpoints=(deeper, *more_endpoints)))


def test_audit_knows_rolled_back_host(built: Build, tmp_path: Path) -> None:
    """A rollback leaves no profile, so nothing is compared: that is never a good result."""
    snapshots = tmp_path / "fleet"
    snapshots.mkdir()
    commands = (
        ["apply", "--profile", "oltp", "--no-probe", "irq50"],
        ["snapshot", str(snapshots / "applied.snap")],
        ["rollback"],
        ["snapshot", str(snapshots / "rolled-back.snap")],
    )
    script = "import subprocess, sys, json\n"
    script += "for words in json.loads(sys.argv[1]):\n"
    script += "    subprocess.run([sys.executable, '-m', 'hbatune', *words], check=True)\n"
    words = [sys.executable, "-c", script, json.dumps(commands)]
    run(built(interrupts.two_nodes()), [*OWN_CONFIGURATION, *words], timeout=300)
    code, text = output(["audit", "--json", str(snapshots)])
    states = [host["state"] for host in json.loads(text)["hosts"]]
    assert (code, states) == (1, ["drift", "rolled_back"])
    code, text = output(["audit", str(snapshots / "rolled-back.snap")])
    assert (code, text.splitlines()[0]) == (1, "1 host: 1 rolled back.")
