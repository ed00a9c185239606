"""`diff --json` from 4 to 65,536 LUNs beside the bare loop: CPU time, whatever else goes on.

A curve is of the same two programs as `diff-4096`; the largest tree has its equal files linked.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.bench.diff_command import DIFF, DRIFT
from tests.bench.files_read import files_read
from tests.bench.guest.comparison import Figure, figure, ratio
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import can_enter, run
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT
from tools.benchmarks_page import CURVES, Curve, Point

SIZES = (4, 64, 256, 1024, 4096, 16384)
LARGEST = 65536
ADAPTERS = 16
MOST_RATIO = 0.65
"""Of the CPU time at 4,096 LUNs to the bare loop's."""
LINEAR = 1.2
"""What a LUN of the largest tree may cost beside one of 4,096."""


@pytest.fixture(scope="module")
def files(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The attributes that `diff` reads, for the bare loop."""
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(build_many_luns(ADAPTERS, ADAPTERS), Path(folder))
        log = tmp_path_factory.mktemp("strace") / "log"
        diff = [str(installed / "hbatune"), *DIFF]
        return json.dumps(files_read(Path(folder), diff, log))


def measured(luns: int, installed: Path, files: str, rounds: int, *, loop: bool = True) -> Point:
    """Build a machine with so many LUNs and time the two on it, in turns."""
    with _room() as folder:
        build(build_many_luns(luns, min(ADAPTERS, luns)), folder, linked=luns > SIZES[-1])
        program = str(Path(__file__).with_name("bare_loop.py"))
        bare = [str(installed / "python"), program, files] if loop else ["true"]
        commands = {
            "subject": ([str(installed / "hbatune"), *DIFF], DRIFT),
            "reference": (bare, 0),
            "cpu": True,
        }
        words = [sys.executable, "-m", "tests.bench.alternate", str(rounds), json.dumps(commands)]
        printed = run(folder, ["env", "-C", str(CHECKOUT), *words], timeout=1800)
    subject, reference = json.loads(printed)
    return Point(
        luns=luns,
        diff=_figure(subject),
        loop=_figure(reference) if loop else None,
        ratio=ratio(subject, reference) if loop else None,
    )


@contextmanager
def _room() -> Iterator[Path]:
    """Yield a folder in memory for a tree of any size.

    A tmpfs has by default an inode for each two pages of memory (Documentation/filesystems/tmpfs),
    of which the folders and links of the largest tree would need more.
    """
    with tempfile.TemporaryDirectory() as name:
        options = "size=75%,nr_inodes=0,mode=755"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", name], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def _figure(samples: list[float]) -> Figure:
    return figure([round(sample, 6) for sample in samples])


def test_diff_is_cheap_and_linear(installed: Path, files: str) -> None:
    load = round(os.getloadavg()[0], 1)
    rounds = int(os.environ.get("HBATUNE_ROUNDS", "5"))
    sizes = [int(size) for size in os.environ.get("HBATUNE_SIZES", "").split()] or SIZES
    points = [measured(luns, installed, files, rounds) for luns in sizes]
    if sizes == SIZES:
        points.append(measured(LARGEST, installed, files, 2, loop=False))
    curve = Curve(
        what=" ".join(("hbatune", *DIFF)),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        kernel=platform.release(),
        cpus=os.cpu_count() or 1,
        python=platform.python_version(),
        load=load,
        points=tuple(points),
    )
    CURVES.write_bytes(msgspec.json.format(msgspec.json.encode(curve), indent=1) + b"\n")
    by_size = {point.luns: point for point in points}
    at = by_size[4096]
    assert at.ratio is not None
    assert at.ratio.median <= MOST_RATIO, at
    last = points[-1]
    seconds_per_lun = last.diff.median / last.luns
    assert seconds_per_lun <= LINEAR * at.diff.median / at.luns, (at, last)
