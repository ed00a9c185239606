"""Verdicts of applies on real I/O whose truth is known; ``make soak`` has the long forms."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kill_points import Counter, boundaries
from tests.lab.guest.kit import set_service_time
from tests.lab.guest.known import (
    COST_LOAD,
    SERVICE_NS,
    allow_slow_runs,
    cut_depth,
    deep,
    double_read_ahead,
    forget,
    measure_nothing,
    neighbour,
    profile,
    raise_depth_for_bursts,
)
from tests.lab.guest.values import cat, everything, put

KERNELS = ("6.1",)
TOPOLOGY = "probed"
HISTORY = Path("/var/lib/hbatune/history.json")
CUT = 8


@pytest.fixture
def lun(scsi_debug: Callable[..., list[str]]) -> Iterator[str]:
    [disk] = scsi_debug(max_luns=1, max_queue=192, delay=0, ndelay=SERVICE_NS)
    yield deep(disk)
    hbatune("rollback")
    for name in ("cut", "same", "deep"):
        forget(name)


@pytest.mark.deadline(1200)
def test_costly_depth_is_reverted(lun: str) -> None:
    # Four fifths of the IOPS, which shows on a busy host, too; `make bench` counts 15 %.
    done = cut_depth(lun, 4, allow_slow_runs)
    assert done.code == 1, done.err
    assert done.row(lun, "queue_depth")["outcome"] == "reverted"
    proof, second = done.json["verdicts"]
    assert [entry["verdict"]["word"] for entry in (proof, second)] == ["regressed"] * 2
    assert proof["last"]["workload"]["depth"] == COST_LOAD
    assert {change["metric"] for change in proof["verdict"]["changes"] if change["beyond"]}
    assert cat(lun, "device/queue_depth") == "64"
    again = hbatune("diff", "--profile", "cut", lun)
    assert again.code == 0, "nobody sets it once more"
    history = json.loads(hbatune("history", "--json", lun).out)
    assert history["schema"] == "hbatune.history/1"
    assert history["entries"][-1]["record"]["reverted"] == ["queue_depth"]
    assert HISTORY.stat().st_mode & 0o777 == 0o600


@pytest.mark.deadline(600)
def test_neutral_change_shows_no_effect(lun: str) -> None:
    before = int(cat(lun, "queue/read_ahead_kb"))
    done = double_read_ahead(lun)
    assert done.code == 0, done.err
    [proof] = done.json["verdicts"]
    assert proof["verdict"]["word"] in ("unchanged", "cannot tell")
    assert cat(lun, "queue/read_ahead_kb") == str(2 * before)


@pytest.mark.deadline(600)
def test_depth_raise_to_128_improves(lun: str) -> None:
    # 400 and 1,600 a second, which emulated CPUs do on a host under load, too.
    set_service_time("ndelay", 4 * SERVICE_NS)
    put(lun, "device/queue_depth", "32")

    def prepare() -> None:
        from hbatune.probe import run

        probe = run.probe_subject

        def looking(*arguments: object, **options: object) -> object:
            assert _held(), "a lock keeps other hbatune processes waiting"
            return probe(*arguments, **options)  # type: ignore[arg-type]

        run.probe_subject = looking  # type: ignore[assignment]

    words = profile("deep", "queue_depth", 128, depth=128)
    done = hbatune("apply", *words, "--json", lun, prepare=prepare)
    assert not _held()
    assert done.code == 0, done.err
    [proof] = done.json["verdicts"]
    assert proof["last"]["workload"]["depth"] == 128, "the load that the profile states"
    assert proof["verdict"]["word"] == "improved", proof["verdict"]
    assert cat(lun, "device/queue_depth") == "128"


def allow_late_bursts() -> None:
    """Compare bursts even if they begin late: other guests slow this one."""
    from hbatune.operations import verify

    verify.LATE_FRACTION = 10


@pytest.mark.deadline(600)
def test_change_helping_bursts_stays(lun: str) -> None:
    done = raise_depth_for_bursts(lun, allow_late_bursts)
    assert done.code == 0, done.err
    [proof], [burst] = done.json["verdicts"], done.json["bursts"]
    assert proof["last"]["workload"]["depth"] == 24
    assert proof["verdict"]["word"] in ("unchanged", "cannot tell"), proof["verdict"]
    assert burst["last"]["workload"]["depth"] == 128
    assert burst["verdict"]["word"] == "improved", burst["verdict"]
    assert cat(lun, "device/queue_depth") == "128"


def at_run(number: int, act: Callable[[], object]) -> Callable[[], None]:
    """Return what prepares a command to do something before its run of this number."""

    def prepare() -> None:
        from hbatune.probe import run

        probe, runs = run.probe_subject, [0]

        def counting(*arguments: object, **options: object) -> object:
            runs[0] += 1
            if runs[0] == number:
                act()
            return probe(*arguments, **options)  # type: ignore[arg-type]

        run.probe_subject = counting  # type: ignore[assignment]

    return prepare


@pytest.mark.deadline(600)
def test_neighbour_halfway_ends_comparison(lun: str) -> None:
    # In the fork that applies, which takes it along when it ends.
    starting = at_run(9, lambda: neighbour(lun))
    done = hbatune("apply", *profile("cut", "queue_depth", CUT), "--json", lun, prepare=starting)
    # On SIGTERM, each process of fio writes to the log in its handler (backend.c: sig_int), which
    # can block it. It would keep the disk open.
    subprocess.run(["pkill", "-KILL", "-x", "fio"], check=False)
    assert done.code == 0, done.err
    [proof] = done.json["verdicts"]
    assert proof["verdict"]["word"] == "cannot tell"
    assert proof["outcome"]["reason"] == "busy"
    assert cat(lun, "device/queue_depth") == str(CUT), "the applied values remain"


@pytest.mark.parametrize("runs", [1, 4])
def test_rollback_recovers_killed_verdict_run(lun: str, runs: int) -> None:
    before = everything()

    def prepare() -> None:
        from hbatune.probe import run

        probe, counter = run.probe_subject, Counter(runs)

        def killing(*words: object, **options: object) -> object:
            counter.tick()
            return probe(*words, **options)  # type: ignore[arg-type]

        run.probe_subject = killing  # type: ignore[assignment]

    words = profile("cut", "queue_depth", CUT)
    killed = hbatune("apply", *words, lun, prepare=prepare)
    assert killed.code == -signal.SIGKILL, killed.err
    diff = hbatune("diff", "--profile", "cut", lun)
    assert "was interrupted" in diff.err
    assert not _held(), "the dead hold nothing"
    back = hbatune("rollback")
    assert back.code == 0, back.err
    assert everything() == before


@pytest.mark.deadline(1200)
def test_rollback_recovers_kill_at_boundaries(lun: str) -> None:
    before = everything()
    words = ("apply", *profile("cut", "queue_depth", CUT), lun)

    def prepared(counter: Counter) -> Callable[[], None]:
        counting = boundaries(counter)

        def prepare() -> None:
            measure_nothing()
            counting()

        return prepare

    uninterrupted = Counter(at=-1)
    done = hbatune(*words, prepare=prepared(uninterrupted))
    assert done.code in (0, 1), done.err
    hbatune("rollback")
    assert uninterrupted.count >= 40, "there are enough boundaries to be killed at"
    for at in range(1, uninterrupted.count + 1, 5):
        where = f"boundary {at} of {uninterrupted.count}"
        hbatune(*words, prepare=prepared(Counter(at)))
        if everything() != before:
            diff = hbatune("diff", "--profile", "cut", lun)
            assert "was interrupted" in diff.err or diff.code == 0, where
        back = hbatune("rollback")
        assert back.code == 0, f"{where}: {back.err}"
        assert everything() == before, where


def _held() -> frozenset[str]:
    from hbatune.act.lock import read_held_ids
    from hbatune.act.paths import Paths

    return read_held_ids(Paths.holds)
