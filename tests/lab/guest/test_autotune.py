"""Searches on real queues: scsi_debug's rate is its depth over a fixed time, whatever the machine.

So the deepest that it takes is the best. The noise of real searches is a matter of simulation.
"""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.guest.command import Done, configure, hbatune
from tests.lab.guest.kill_points import Counter, boundaries
from tests.lab.guest.known import PROFILES
from tests.lab.guest.values import cat, everything, put

KERNELS = ("6.12",)
TOPOLOGY = "probed"
SERVICE_NS = 50_000_000
DEEPEST = 64
SHALLOW = 16
RULES = Path("/etc/hbatune/rules.d")
_PROFILE = """
title = "no objective, so that the highest rate counts"
[probe]
depth = 16
"""


@pytest.fixture
def lun(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    [disk] = scsi_debug(max_luns=1, delay=0, ndelay=SERVICE_NS, max_queue=DEEPEST)
    put(disk, "device/queue_depth", str(SHALLOW))
    PROFILES.mkdir(parents=True, exist_ok=True)
    (PROFILES / "free.toml").write_text(_PROFILE)
    yield disk
    hbatune("rollback")
    (PROFILES / "free.toml").unlink()
    for path in RULES.glob("autotune-*.toml"):
        path.unlink()
    configure("")


def autotune(lun: str, *words: str, prepare: Callable[[], None] = lambda: None) -> Done:
    return hbatune("autotune", lun, "--profile", "free", *words, prepare=prepare)


def depth_alone() -> None:
    """Have no other setting tried: a tournament takes minutes on emulated CPUs."""
    from hbatune.search import tournament

    tournament.list_read_candidates = lambda endpoint, rows: (tournament.Candidate({}),)


def _held() -> frozenset[str]:
    from hbatune.act.lock import read_held_ids
    from hbatune.act.paths import Paths

    return read_held_ids(Paths.holds)


@pytest.mark.deadline(900)
def test_best_depth_becomes_rule(lun: str) -> None:
    before = everything()
    done = autotune(lun, "--json", "--write", prepare=depth_alone)
    assert done.code == 0, done.err
    assert everything() == before
    assert not _held()
    [disk] = done.json["disks"]
    answer = disk["depth"]["answer"]
    assert answer["word"] == "best", disk
    # How near to the deepest hangs on the emulated CPUs: on a loaded host they are the limit.
    assert answer["depth"] >= 2 * SHALLOW
    assert answer["probes"] <= 8
    applied = hbatune("apply", "--profile", "free", "--once", "--no-probe", "--json", lun)
    assert applied.code == 0, applied.err
    row = applied.row(lun, "queue_depth")
    assert (row["outcome"], row["value"]) == ("written", answer["depth"])
    assert "autotune of" in row["source"]
    assert cat(lun, "device/queue_depth") == str(answer["depth"])
    [entry] = json.loads(hbatune("history", "--json", lun).out)["entries"][-1:]
    assert entry["record"]["command"] == "autotune"
    assert entry["stale"] == []


@pytest.mark.deadline(600)
def test_rollback_recovers_kill_between_probes(lun: str) -> None:
    before = everything()

    def prepare() -> None:
        from hbatune.probe import run

        depth_alone()
        probe, counter = run.probe_subject, Counter(3)

        def killing(*words: object, **options: object) -> object:
            counter.tick()
            return probe(*words, **options)  # type: ignore[arg-type]

        run.probe_subject = killing  # type: ignore[assignment]

    killed = autotune(lun, prepare=prepare)
    assert killed.code == -signal.SIGKILL, killed.err
    diff = hbatune("diff", "--profile", "free", lun)
    assert "an earlier `autotune`" in diff.err
    assert not _held(), "the dead hold nothing"
    assert hbatune("rollback").code == 0
    assert everything() == before


@pytest.mark.deadline(1500)
def test_rollback_recovers_kill_at_boundaries(lun: str) -> None:
    before = everything()

    def prepared(counter: Counter) -> Callable[[], None]:
        counting = boundaries(counter)

        def prepare() -> None:
            _measure_nothing()
            counting()

        return prepare

    uninterrupted = Counter(at=-1)
    done = autotune(lun, prepare=prepared(uninterrupted))
    assert done.code == 0, done.err
    assert everything() == before
    assert uninterrupted.count >= 40, "there are enough boundaries to be killed at"
    # Another run draws another order, in which there may be fewer of them.
    for at in range(1, uninterrupted.count // 2, 1 + uninterrupted.count // 16):
        where = f"boundary {at} of {uninterrupted.count}"
        assert autotune(lun, prepare=prepared(Counter(at))).killed, where
        back = hbatune("rollback")
        assert back.code == 0, f"{where}: {back.err}"
        assert everything() == before, where


def _measure_nothing() -> None:
    """Have probes give figures without any I/O: the switching is what is looked at."""
    from hbatune.probe import run
    from hbatune.probe.result import Figures, ProbeResult, Subject, Workload

    def probe(subject: Subject, workload: Workload, **_: object) -> ProbeResult:
        rate, wait = 50.0 * workload.issued, 20_000.0
        figures = Figures(rate, 4e6, wait, wait, wait, wait, wait, 1.0, 1000, 1.0, (rate,))
        return ProbeResult(subject.target, subject.endpoint.id, workload, figures, "3.33", ())

    run.probe_subject = probe
