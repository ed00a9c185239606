"""A thousand snapshots of mixed hosts are audited within a minute and 500 MiB, on two cores."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.conftest import NAMED
from tests.hosts.fleet import HOSTS, KINDS, save_fleet, snapshot_of
from tests.hosts.namespace import can_enter

SECONDS = 60.0
MEMORY = 500 << 20
PROCESSES = 2

_MEASURED = """
import contextlib, io, json, os, resource, sys, time
from hbatune.cli import main
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
began = time.monotonic()
with contextlib.redirect_stdout(io.StringIO()) as printed:
    code = main(sys.argv[1:])
took = time.monotonic() - began
own, theirs = (resource.getrusage(who).ru_maxrss << 10 for who in (0, resource.RUSAGE_CHILDREN))
odd = sorted({each["host"] for each in json.loads(printed.getvalue())["odd"]})
print(json.dumps({"code": code, "seconds": took, "own": own, "worker": theirs, "odd": odd}))
"""


def test_thousand_snapshots_take_one_minute(tmp_path: Path) -> None:
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    kinds = []
    for name in KINDS:
        (tmp_path / name).mkdir()
        kinds.append(snapshot_of(NAMED[name](), tmp_path / name))
    odd = save_fleet(fleet, kinds)
    words = ["audit", "--json", "--processes", str(PROCESSES), str(fleet)]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, *words], capture_output=True, text=True, check=True
    )
    audit = json.loads(done.stdout)
    assert (audit["code"], audit["odd"]) == (1, sorted(odd))
    print(f"{HOSTS} hosts: {audit}")
    assert audit["seconds"] <= SECONDS
    # Each worker counted at its largest, pages that it shares with the others among it.
    assert audit["own"] + PROCESSES * audit["worker"] <= MEMORY
