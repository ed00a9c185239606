"""Verdicts at a recorded load, compared with those at a synthetic one.

Half of the planted changes help, the others cost.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.known import SERVICE_NS, deep, forget, profile
from tests.lab.guest.traced_loads import capture_load
from tests.lab.guest.values import cat, put
from tests.soak.guest.results import save_results

KERNELS = ("6.12",)
TOPOLOGY = "counted"
ROUNDS = 20
LOAD_DEPTH = 24
SHALLOW, DEEP = 8, 64
"""Queue depths that are too few for the load, and enough."""
CONFIGURATION = "[probe]\nverify_pairs = 8\nverify_seconds = 0.5\n"


@pytest.fixture
def lun(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS)
    yield deep(disk)
    hbatune("rollback")
    forget("planted")


@pytest.mark.deadline(7200)
def test_verdicts_agree_in_direction(lun: str, tmp_path: Path) -> None:
    """A change that helps at one load helps at the other, and one that costs there costs here."""
    file = tmp_path / "load.trace"
    capture_load(lun, ("--rw=randread", f"--iodepth={LOAD_DEPTH}"), file, 5)
    words: Counter[str] = Counter()
    begin = monotonic()
    for number in range(ROUNDS):
        depths = (SHALLOW, DEEP) if number % 2 else (DEEP, SHALLOW)
        synthetic = compare_depths(lun, *depths)
        recorded = compare_depths(lun, *depths, "--trace", str(file))
        words[f"{' to '.join(map(str, depths))}: {synthetic}, by trace {recorded}"] += 1
    save_results(
        "verdicts at a synthetic load and by trace, of changed queue depths",
        name="trace_verdicts",
        rounds=ROUNDS,
        seconds=round(monotonic() - begin),
        words=dict(words),
    )
    costs = f"{DEEP} to {SHALLOW}: regressed, by trace regressed"
    helps = f"{SHALLOW} to {DEEP}: improved, by trace improved"
    assert words == {costs: ROUNDS // 2, helps: ROUNDS // 2}


def compare_depths(lun: str, before: int, after: int, *words: str) -> str:
    """Return the verdict of a queue depth ``after`` instead of ``before``, and restore that."""
    put(lun, "device/queue_depth", str(before))
    choice = profile("planted", "queue_depth", after, LOAD_DEPTH)
    configure(CONFIGURATION)
    done = hbatune("apply", *choice, "--verify", *words, "--json", lun)
    assert done.json["verdicts"], done.out + done.err
    word: str = done.json["verdicts"][0]["verdict"]["word"]
    hbatune("rollback")
    assert cat(lun, "device/queue_depth") == str(before)
    return word
