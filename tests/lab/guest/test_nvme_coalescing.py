"""Interrupt coalescing on a controller that accepts it: set, read back, kept, put back."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest.coalescing import asking_for
from tests.lab.guest.command import Done, configure, hbatune
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.main_job import CARD_ALONE
from tests.lab.guest.service import QUIET, Journal, running

KERNELS = ("6.1",)
TOPOLOGY = "power"
ASKED = '"8/200"'
BITS = 0x0207
"""8 completions and 200 us as the controller has them: one less, and two times 100 us."""


@pytest.fixture(autouse=True)
def one_profile() -> Iterator[None]:
    """The lab's own disks stay out of it."""
    configure(CARD_ALONE)
    yield
    configure("")


def controller() -> str:
    """The controller that coalesces, of which there is one."""
    [directory] = Path("/sys/class/nvme").iterdir()
    return directory.name


def feature(number: int, vector: int = 0) -> int:
    """Return what the controller says of a feature, by a program that is not hbatune."""
    words = ["nvme", "get-feature", f"/dev/{controller()}", f"--feature-id={number}"]
    done = subprocess.run([*words, f"--cdw11={vector}"], capture_output=True, text=True, check=True)
    value = re.search(r"value:(\w+)", done.stdout)
    assert value, done.stdout
    return int(value[1], 16)


def exempt() -> list[int]:
    """Return the vectors that coalescing passes over."""
    return [vector for vector in range(3) if feature(9, vector) & 1 << 16]


def applied(*more: str) -> Done:
    words = ("apply", "--profile", "balanced", "--no-probe", *more, controller())
    done = hbatune(*words)
    assert done.code == 0, done.out + done.err
    return done


def reset() -> None:
    subprocess.run(["nvme", "reset", f"/dev/{controller()}"], check=True)


def test_coalescing_applies_and_reverts() -> None:
    with asking_for(ASKED):
        row = applied("--json").row(controller(), "coalescing")
        assert (row["current"], row["value"], row["outcome"]) == (0, "8/200", "written")
        assert feature(8) == BITS
        assert applied("--json").row(controller(), "coalescing")["outcome"] == "kept"
        back = hbatune("rollback")
        assert back.code == 0, back.out + back.err
    assert feature(8) == 0


def test_exempt_vectors_apply_and_revert() -> None:
    assert exempt() == [0]
    with asking_for('"0,2"', setting="coalescing_exempt"):
        assert applied("--json").row(controller(), "coalescing_exempt")["outcome"] == "written"
        assert exempt() == [0, 2]
        back = hbatune("rollback")
        assert back.code == 0, back.out + back.err
    assert exempt() == [0]


def test_controller_reset_causes_drift() -> None:
    with asking_for(ASKED):
        applied()
        reset()
        assert feature(8) == 0
        diff = hbatune("diff", "--profile", "balanced", "--json", controller())
        assert diff.code == 1
        assert diff.row(controller(), "coalescing")["state"] == "drift"
        back = hbatune("rollback")
        assert back.code == 0, back.out + back.err


@pytest.mark.deadline(600)
def test_daemon_repairs_coalescing() -> None:
    with asking_for(ASKED), running(f"{CARD_ALONE}{QUIET}"):
        while feature(8) != BITS:
            wait_a_moment()
        with Journal() as journal:
            for _ in range(4):  # more than it lets pass of a value that somebody puts back
                reset()
                journal.until_set(controller(), "coalescing")
                assert feature(8) == BITS
        status = hbatune("status", "--json")
        assert status.json["status"]["open"] == [], status.out
    assert feature(8) == 0
