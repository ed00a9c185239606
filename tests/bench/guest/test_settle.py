"""How long udev takes for the LUNs of a new adapter, with the program of the boot rules or without.

Without it udev writes each value once, as the rules before the program did. On 7.3 that sets only
some of the LUNs: the kernel locks the adapter for each write of a scheduler or nr_requests, and
refuses the others. The second test therefore compares equal work.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.guest.comparison import compared, in_turns, save
from tests.bench.guest.luns import AFTER, UDEV, put, unlike
from tests.lab.guest.boot import RULES, installed_for
from tests.lab.guest.kit import SCSI_DEBUG_MODEL, scsi_disks, settle

KERNELS = ("6.1", "6.12", "newest")
ARTIFACTS = Path("/run/lab/artifacts")  # what is in here goes to the host
ROUNDS = {24: 5, 240: 3}
"""The pairs of each number of LUNs: 240 take minutes in each round."""
BOUND = 1.2
PROGRAM_KEY = "PROGRAM=="
Timed = tuple[str, list[float]]
"""What was done, and the seconds of each round."""


def drop_program(rules: str) -> str:
    """Return the rules in which only udev writes, once."""
    return "".join(f"{line}\n" for line in rules.splitlines() if PROGRAM_KEY not in line)


def time_luns(count: int, rules: str, *, with_writer: bool = False) -> float:
    """Return the seconds in which an adapter appears with its LUNs and udev has dealt with them.

    ``with_writer`` adds the time of one process that then sets the values.
    """
    RULES.write_text(rules)
    subprocess.run(["udevadm", "control", "--reload"], check=True)
    options = (f"max_luns={count}", "num_tgts=1", "max_queue=192", "submit_queues=2")
    began = time.monotonic()
    subprocess.run(["modprobe", "scsi_debug", *options], check=True)
    subprocess.run(["udevadm", "settle", "--timeout=900"], check=True)
    took = time.monotonic() - began
    disks = scsi_disks(SCSI_DEBUG_MODEL)
    assert len(disks) == count
    if with_writer:
        took += put(disks, AFTER, writers=1)
    if with_writer or PROGRAM_KEY in rules:  # udev's own assignments lose writes on 7.3
        assert not unlike(disks, AFTER)
    subprocess.run(["modprobe", "--remove", "scsi_debug"], check=True)
    settle()
    return took


def compare(name: str, title: str, count: int, subject: Timed, reference: Timed) -> None:
    """Save the comparison of two ways to handle ``count`` LUNs, and assert its bound."""
    notes = {"luns": f"{count} of one adapter of scsi_debug", "machine": "QEMU without KVM"}
    comparison = compared(name, title, BOUND, subject, reference, notes)
    save(comparison, ARTIFACTS / "bench")
    assert comparison.met, comparison


@pytest.fixture(scope="module")
def rules(virtual_disks_wanted: None) -> Iterator[str]:
    """The rules of an installed hbatune, which are restored at the end."""
    subprocess.run(["systemctl", "start", *UDEV], check=True)  # the other benches stop it
    with installed_for("oltp") as done:
        assert done.code == 0, done.out + done.err
        with_program = RULES.read_text()
        time_luns(min(ROUNDS), with_program)  # later rounds find udev's files in memory
        yield with_program
        RULES.write_text(with_program)


@pytest.mark.deadline(3600)
@pytest.mark.parametrize("count", sorted(ROUNDS))
def test_program_does_not_slow_settling(rules: str, series: str, count: int) -> None:
    without_program = drop_program(rules)
    assert 'ATTR{queue/nr_requests}="2048"' in without_program
    subject, reference = in_turns(
        ROUNDS[count],
        lambda: time_luns(count, rules),
        lambda: time_luns(count, without_program),
    )
    compare(
        f"settle-{count}-{series}",
        f"udev settling after {count} LUNs have appeared, kernel {series}",
        count,
        ("with hbatune's rules", subject),
        ("with the same rules without the program", reference),
    )


@pytest.mark.deadline(3600)
def test_program_writes_as_fast_as_one_writer(rules: str, series: str) -> None:
    count = min(ROUNDS)
    subject, reference = in_turns(
        ROUNDS[count],
        lambda: time_luns(count, rules),
        lambda: time_luns(count, "", with_writer=True),
    )
    compare(
        f"set-{count}-{series}",
        f"until {count} LUNs that appear have their values, kernel {series}",
        count,
        ("udev settles with hbatune's rules", subject),
        ("udev settles without them, then one process writes", reference),
    )
