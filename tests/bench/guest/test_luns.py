"""256 LUNs: the whole apply beside tuned's, and its writing phase beside the bare writer's."""

import json
import sys
from pathlib import Path

import pytest

from tests.bench.guest import luns, phases, tuned
from tests.bench.guest.comparison import Comparison, compared, in_turns, save, seconds
from tests.bench.guest.luns import AFTER, BEFORE, LUNS, WRITERS
from tests.lab.guest.command import JOURNAL, configure, hbatune

KERNELS = ("6.1", "6.12")
ARTIFACTS = Path("/run/lab/artifacts")  # what is in here goes to the host

APPLY = ("apply", "--profile", "oltp", "--no-probe")
APPLY_ROUNDS = 3
WRITING_ROUNDS = 9


@pytest.fixture(scope="module")
def disks(virtual_disks_wanted: None) -> list[str]:
    """The LUNs; every other disk of the lab has its values already, so that nothing is written
    there, and 2048 requests for each LUN of an emulated machine may take a third of its memory.
    """
    configure("[act]\nmemory_share = 0.5\n")
    assert hbatune(*APPLY).code == 0
    lun_disks = luns.load()
    tuned.configure(lun_disks)
    return lun_disks


def begin(disks: list[str]) -> None:
    """Bring the LUNs back to where each round begins, with nothing filed about them."""
    luns.put(disks, BEFORE)
    JOURNAL.unlink(missing_ok=True)
    assert not luns.unlike(disks, BEFORE)


def timed(disks: list[str], *command: str) -> float:
    """Return the wall time of a whole command that has to make the values so."""
    begin(disks)
    took = seconds(command)
    assert not luns.unlike(disks, AFTER), command
    return took


def phases_of_apply(disks: list[str], file: Path) -> tuple[float, dict[str, float]]:
    """Return the wall time of an apply and the seconds of its phases."""
    took = timed(disks, *phases.command(sys.executable, file, APPLY))
    return took, json.loads(file.read_text())


def save_for_host(comparison: Comparison) -> Comparison:
    """Save the comparison for the host to fetch."""
    save(comparison, ARTIFACTS / "bench")
    return comparison


@pytest.mark.deadline(600)
def test_writing_is_near_bare_writers(disks: list[str], series: str, tmp_path: Path) -> None:
    def writing() -> float:
        return phases_of_apply(disks, tmp_path / "phases")[1]["writing"]

    def bare() -> float:
        begin(disks)
        took = luns.put(disks, AFTER)
        assert not luns.unlike(disks, AFTER)
        return took

    subject, reference = in_turns(WRITING_ROUNDS, writing, bare)
    comparison = save_for_host(
        compared(
            f"writing-{series}",
            f"writing {LUNS} LUNs against a bare writer, kernel {series}",
            1.5,
            ("hbatune.act.writer.execute_chains()", subject),
            (f"{WRITERS} forked workers that read, write and read back", reference),
            {
                "luns": f"{LUNS} of scsi_debug, from {BEFORE} to {AFTER}",
                "machine": "QEMU without KVM; udev stopped",
            },
        )
    )
    assert comparison.met, comparison


@pytest.mark.deadline(1500)
def test_apply_beats_tuned_fivefold(disks: list[str], series: str, tmp_path: Path) -> None:
    subject, reference = in_turns(
        APPLY_ROUNDS,
        lambda: timed(disks, "hbatune", *APPLY),
        lambda: timed(disks, *tuned.COMMAND),
    )
    runs = [phases_of_apply(disks, tmp_path / "phases") for _ in range(APPLY_ROUNDS)]
    comparison = save_for_host(
        compared(
            f"apply-{series}",
            f"applying to {LUNS} LUNs against tuned, kernel {series}",
            0.2,
            (" ".join(("hbatune", *APPLY)), subject),
            (" ".join(tuned.COMMAND), reference),
            {
                "tuned": f"{tuned.version()}, one-shot (daemon = 0): from command to values set",
                "luns": f"{LUNS} of scsi_debug, from {BEFORE} to {AFTER}",
                "machine": "QEMU without KVM; udev stopped",
            },
            phases.split(runs),
        )
    )
    assert comparison.met, comparison
