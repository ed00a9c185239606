"""How long udev takes for the LUNs of a new adapter, with the program of the boot rules or without.

Without it udev assigns the same values itself, as the rules before the program did.
"""

import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.bench.guest.comparison import compared, in_turns, save
from tests.bench.guest.luns import UDEV
from tests.lab.guest.boot import RULES, installed_for
from tests.lab.guest.kit import SCSI_DEBUG_MODEL, scsi_disks, settle

KERNELS = ("newest",)
ARTIFACTS = Path("/run/lab/artifacts")  # what is in here goes to the host
ROUNDS = {24: 5, 240: 3}
"""The pairs of each number of LUNs: 240 take minutes in each round."""
BOUND = 1.2
_WISH = re.compile(r"(?:\w+):([\w/]+):\$env\{([.\w]+)\}")


def assign_values(rules: str) -> str:
    """Return the rules with assignments of udev in place of the program."""
    lines: list[str] = []
    for line in rules.splitlines():
        if "PROGRAM==" not in line:
            lines.append(line)
            continue
        for path, wish in _WISH.findall(line):
            lines.append(f'ENV{{{wish}}}=="?*", ATTR{{{path}}}="$env{{{wish}}}"')
    return "\n".join(lines) + "\n"


def time_luns(count: int, rules: str) -> float:
    """Return the seconds in which an adapter appears with its LUNs and udev has dealt with them."""
    RULES.write_text(rules)
    subprocess.run(["udevadm", "control", "--reload"], check=True)
    options = (f"max_luns={count}", "num_tgts=1", "max_queue=192", "submit_queues=2")
    began = time.monotonic()
    subprocess.run(["modprobe", "scsi_debug", *options], check=True)
    subprocess.run(["udevadm", "settle", "--timeout=900"], check=True)
    took = time.monotonic() - began
    assert len(scsi_disks(SCSI_DEBUG_MODEL)) == count
    subprocess.run(["modprobe", "--remove", "scsi_debug"], check=True)
    settle()
    return took


@pytest.mark.deadline(3600)
@pytest.mark.parametrize("count", sorted(ROUNDS))
def test_program_does_not_slow_settling(
    virtual_disks_wanted: None, series: str, count: int
) -> None:
    subprocess.run(["systemctl", "start", *UDEV], check=True)  # the other benches stop it
    with installed_for("oltp") as done:
        assert done.code == 0, done.out + done.err
        with_program = RULES.read_text()
        without_program = assign_values(with_program)
        assert without_program.count("ATTR{queue/") > with_program.count("ATTR{queue/")
        try:
            time_luns(count, without_program)  # both find udev's files in memory
            subject, reference = in_turns(
                ROUNDS[count],
                lambda: time_luns(count, with_program),
                lambda: time_luns(count, without_program),
            )
        finally:
            RULES.write_text(with_program)
    comparison = compared(
        f"settle-{count}-{series}",
        f"udev settling after {count} LUNs have appeared, kernel {series}",
        BOUND,
        ("with hbatune's rules, whose program writes", subject),
        ("with the same rules, in which udev assigns", reference),
        {"luns": f"{count} of one adapter of scsi_debug", "machine": "QEMU without KVM"},
    )
    save(comparison, ARTIFACTS / "bench")
    assert comparison.met, comparison
