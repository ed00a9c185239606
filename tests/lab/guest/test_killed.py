"""SIGKILL at any instant of a run: the next command says so, and rollback restores everything.

The instants are at the boundaries of the settings' writes and of the journal's: on each kernel
every ninth, and together every third. ``make soak`` adds two hundred that are spread over time, and
ten thousand on modelled kernels.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.kill_points import Counter, boundaries
from tests.lab.guest.kit import KERNEL, scsi_disks
from tests.lab.guest.values import everything, nvme_queues

pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
APPLY = ("apply", "--profile", "oltp", "--no-probe")
SWITCH = ("apply", "--profile", "throughput", "--no-probe")
RULES = Path("/etc/hbatune/rules.d/killed.toml")
RULE = """
[[rule]]
name = "killed"
setting = "nomerges"
value = 1
because = "a test"
source = "site"
"""
STEP = 9
FIRST = 1 if KERNEL < (6, 12) else 4 if KERNEL < (7, 0) else 7


@pytest.fixture
def before() -> Iterator[dict[str, str]]:
    # Two workers still write at the same time, with fewer forks than a worker for each disk.
    configure("[act]\nworkers = 2\n")
    hbatune("rollback")
    yield everything()
    hbatune("rollback")
    configure("")


@pytest.fixture(scope="module")
def few() -> list[str]:
    """A few disks of different drivers: enough writes, and none twice for nothing."""
    drivers = ("sym53c8xx", "vmw_pvscsi")
    return [*(scsi_disks(driver)[0] for driver in drivers), nvme_queues()[0]]


@pytest.mark.deadline(900)
def test_rollback_recovers_killed_apply(few: list[str], before: dict[str, str]) -> None:
    # The first apply after other tests may write more than the later ones.
    assert hbatune(*APPLY, *few).code == 0
    assert hbatune("rollback").code == 0
    uninterrupted = Counter(at=-1)
    done = hbatune(*APPLY, *few, prepare=boundaries(uninterrupted))
    assert done.code == 0, done.err
    assert hbatune("rollback").code == 0
    assert uninterrupted.count >= 20, "there are enough boundaries to be killed at"
    warnings = 0
    for at in range(FIRST, uninterrupted.count + 1, STEP):
        where = f"boundary {at} of {uninterrupted.count}"
        run = hbatune(*APPLY, *few, prepare=boundaries(Counter(at)))
        assert run.killed, f"{where} was not reached: {run.err}"
        diff = hbatune("diff", "--profile", "oltp", *few)
        untouched, complete = everything() == before, diff.code == 0
        warnings += "was interrupted" in diff.err
        assert untouched or complete or "was interrupted" in diff.err, f"{where}: {diff.err}"
        back = hbatune("rollback")
        assert back.code == 0, f"{where}: {back.err}"
        assert everything() == before, where
    assert warnings, "some kills are amid the writes"


@pytest.mark.deadline(900)
def test_second_rollback_recovers_killed_rollback(few: list[str], before: dict[str, str]) -> None:
    assert hbatune(*APPLY, *few).code == 0
    applied, uninterrupted = everything(), Counter(at=-1)
    assert hbatune("rollback", prepare=boundaries(uninterrupted)).code == 0
    for at in range(FIRST, uninterrupted.count + 1, STEP):
        where = f"boundary {at} of {uninterrupted.count}"
        assert hbatune(*APPLY, *few).code == 0, where
        assert everything() == applied, where
        assert hbatune("rollback", prepare=boundaries(Counter(at))).killed, where
        back = hbatune("rollback")
        assert back.code == 0, f"{where}: {back.err}"
        assert everything() == before, where


@pytest.mark.deadline(900)
def test_rollback_recovers_killed_switch(few: list[str], before: dict[str, str]) -> None:
    killed_after(lambda: None, (*SWITCH, *few), few, before)


@pytest.mark.deadline(900)
def test_rollback_recovers_killed_reconcile(few: list[str], before: dict[str, str]) -> None:
    """A rule is taken away, and what it had set goes back."""
    RULES.parent.mkdir(parents=True, exist_ok=True)
    RULES.write_text(RULE)
    try:
        killed_after(RULES.unlink, (*APPLY, *few), few, before, again=lambda: put(RULE))
    finally:
        RULES.unlink(missing_ok=True)


def put(text: str) -> None:
    RULES.write_text(text)


def killed_after(
    change: Callable[[], None],
    words: tuple[str, ...],
    few: list[str],
    before: dict[str, str],
    again: Callable[[], None] = lambda: None,
) -> None:
    """Apply, ``change`` what is wanted, and kill the next apply at its boundaries, one by one.

    ``again`` undoes the change for the next time.
    """
    assert hbatune(*APPLY, *few).code == 0
    change()
    uninterrupted = Counter(at=-1)
    done = hbatune(*words, prepare=boundaries(uninterrupted))
    assert done.code == 0, done.err
    assert hbatune("rollback").code == 0
    assert everything() == before
    for at in range(FIRST, uninterrupted.count + 1, STEP):
        where = f"boundary {at} of {uninterrupted.count}"
        again()
        assert hbatune(*APPLY, *few).code == 0, where
        change()
        assert hbatune(*words, prepare=boundaries(Counter(at))).killed, where
        back = hbatune("rollback")
        assert back.code == 0, f"{where}: {back.err}"
        assert everything() == before, where


@pytest.mark.deadline(900)
def test_next_apply_completes_killed_apply(few: list[str], before: dict[str, str]) -> None:
    assert hbatune(*APPLY, *few, prepare=boundaries(Counter(8))).killed
    done = hbatune(*APPLY, *few)
    assert done.code == 0, done.out + done.err
    assert "was interrupted" in done.err
    assert hbatune("diff", "--profile", "oltp", *few).code == 0
    assert hbatune("rollback").code == 0
    assert everything() == before


@pytest.mark.deadline(900)
def test_sigint_stops_apply_cleanly(few: list[str], before: dict[str, str]) -> None:
    # More workers might have begun to write all disks before the signal arrives.
    configure("[act]\nworkers = 1\n")

    def prepare() -> None:
        from hbatune.act import chain

        store, run = chain._store, os.getpid()

        def interrupted_store(path: str, text: str) -> int | None:
            os.kill(run, signal.SIGINT)
            return store(path, text)

        chain._store = interrupted_store

    done = hbatune(*APPLY, *few, prepare=prepare)
    assert done.code == 1
    assert "stopped" in done.err or "interrupted" in done.err
    assert hbatune("rollback").code == 0
    assert everything() == before
