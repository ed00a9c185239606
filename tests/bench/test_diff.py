"""`diff --json` of 4,096 LUNs beside a bare pyudev loop over the same files."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.diff_command import DIFF, DRIFT
from tests.bench.files_read import files_read
from tests.bench.guest.comparison import compared, save
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import can_enter, run
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT
from tools.benchmarks_page import RESULTS

LUNS = 4096
ADAPTERS = 16
ROUNDS = 9


@pytest.fixture
def roots() -> Iterator[tuple[Path, Path]]:
    """The machine with many LUNs, and one with a LUN for each adapter to follow with strace."""
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        large, small = Path(folder, "large"), Path(folder, "small")
        build(build_many_luns(LUNS, ADAPTERS), large)
        build(build_many_luns(ADAPTERS, ADAPTERS), small)
        yield large, small


def test_diff_costs_little_over_reading(
    roots: tuple[Path, Path], installed: Path, tmp_path: Path
) -> None:
    large, small = roots
    diff = [str(installed / "hbatune"), *DIFF]
    files = files_read(small, diff, tmp_path / "strace")
    assert set(files) == {"block", "pci", "scsi_host"}
    loop = [str(installed / "python"), str(Path(__file__).with_name("bare_loop.py"))]
    bare = [*loop, json.dumps(files)]
    # Both look at all that is there.
    rows = json.loads(run(large, ("sh", "-c", '"$@" || test $? = 1', "sh", *diff)))["rows"]
    assert len({row["target"] for row in rows}) == LUNS
    assert int(run(large, bare)) >= LUNS * (len(files["block"]) // 2)
    subject, reference = _in_turns(large, {"subject": (diff, DRIFT), "reference": (bare, 0)})
    comparison = compared(
        "diff-4096",
        f"hbatune diff --json of {LUNS} LUNs against a bare pyudev loop",
        0.65,
        (" ".join(("hbatune", *DIFF)), subject),
        ("a pyudev loop that reads the same attribute files once", reference),
        {"luns": f"{LUNS} of {ADAPTERS} adapters, generated", "files": files},
    )
    save(comparison, RESULTS)
    assert comparison.met, comparison


def _in_turns(
    root: Path, commands: dict[str, tuple[list[str], int]]
) -> tuple[list[float], list[float]]:
    """Time the two on the machine below ``root``."""
    program = [sys.executable, "-m", "tests.bench.alternate", str(ROUNDS), json.dumps(commands)]
    subject, reference = json.loads(run(root, ["env", "-C", str(CHECKOUT), *program], timeout=600))
    return subject, reference
