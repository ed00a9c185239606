"""`apply` to 256 LUNs of one adapter, under a model of kernels whose writes wait, or lock.

The figures hang on the waits and not on an emulator's CPU: the tree is plain files, and a preloaded
library (slow_writes.c) lets a write of the scheduler or of nr_requests take its time.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.guest.comparison import compared, save
from tests.bench.modelled import APPLY
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import can_enter, run
from tests.hosts.tree import build
from tests.lab.wheel import CHECKOUT
from tools.benchmarks_page import RESULTS

LUNS = 256
ROUNDS = 3
WAITS_US = 50_000
"""A freeze that waits for a few requests of a busy hard disk."""

TUNED = CHECKOUT / "build" / "tuned"
PACKAGES = (
    *("tuned", "python3-pyudev", "python3-configobj", "python3-six", "python3-linux-procfs"),
    *("python3-decorator", "python3-dbus", "python3-gi"),
)


@pytest.fixture(scope="module")
def tuned() -> Path:
    """Debian's tuned, unpacked beside the checkout: it is not installed, and no service starts."""
    if not (TUNED / "usr/sbin/tuned").exists():
        if shutil.which("apt-get") is None:
            pytest.skip("no apt-get to fetch Debian's tuned with")
        TUNED.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=TUNED, check=True)
        for package in sorted(TUNED.glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(TUNED)], check=True)
    return TUNED


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled model."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    built = tmp_path_factory.mktemp("model") / "slow_writes.so"
    source = Path(__file__).with_name("slow_writes.c")
    words = ("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(built), str(source))
    subprocess.run(words, check=True)
    return built


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """One adapter with its LUNs, that have no scheduler yet."""
    if not can_enter():
        pytest.skip("needs root and mount namespaces")
    machine = build_many_luns(LUNS, 1)
    [function] = machine.functions
    [host] = function.hosts
    luns = tuple(replace(lun, disk=replace(lun.disk, rotational=False)) for lun in host.luns)
    function = replace(function, hosts=(replace(host, luns=luns),))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(replace(machine, functions=(function,)), Path(folder))
        (Path(folder) / "sys/block").symlink_to("class/block")  # where tuned looks
        yield Path(folder)


def modelled(root: Path, **wanted: object) -> Any:
    words = [sys.executable, "-m", "tests.bench.modelled", json.dumps(wanted, default=str)]
    return json.loads(run(root, ["env", "-C", str(CHECKOUT), *words], timeout=600))


@pytest.mark.parametrize("waits_us", [2_000, 5_000, 20_000])
def test_locked_tag_set_refuses_nothing(
    root: Path, installed: Path, library: Path, tuned: Path, waits_us: int
) -> None:
    hbatune = installed / "hbatune"
    results = modelled(
        root, library=library, waits=waits_us, tuned=tuned, hbatune=hbatune, lock=True
    )
    assert results["outcomes"] == {"written": 2 * LUNS}
    assert results["busy"] > 0, "the model has to have locked something"


def test_apply_beats_tuned_twentyfold(
    root: Path, installed: Path, library: Path, tuned: Path
) -> None:
    hbatune = installed / "hbatune"
    results = modelled(
        root, library=library, waits=WAITS_US, tuned=tuned, hbatune=hbatune, rounds=ROUNDS
    )
    [package] = sorted(TUNED.glob("tuned_*.deb"))
    comparison = compared(
        "apply-modelled",
        f"applying to {LUNS} LUNs against tuned, each write waiting {WAITS_US // 1000} ms",
        0.05,
        (" ".join(("hbatune", *APPLY)), results["subject"]),
        ("tuned --profile same-values", results["reference"]),
        {
            "tuned": f"{package.name.split('_')[1]}, one-shot (daemon = 0), its own code",
            "luns": f"{LUNS} of one adapter, generated",
            "model": "a preloaded library that sleeps in writes of the scheduler and nr_requests",
        },
        results["split"],
    )
    save(comparison, RESULTS)
    assert comparison.met, comparison
