"""What counts after a rollback: the first baselines, an excluded target, no active profile.

No kernel decides it: hbatune keeps all of it itself.
"""

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import cat, everything

KERNELS = ("6.1",)
pytestmark = pytest.mark.usefixtures("rolled_back")


def test_profile_switch_preserves_first_baseline() -> None:
    before = everything()
    for profile in ("oltp", "balanced", "throughput"):
        done = hbatune("apply", "--profile", profile, "--no-probe")
        assert done.code == 0, done.out + done.err
    assert hbatune("rollback").code == 0
    assert everything() == before


def test_rollback_excludes_target_until_named() -> None:
    [disk], before = scsi_disks("sym53c8xx"), everything()
    mine = {name: text for name, text in before.items() if name.startswith(f"{disk}/")}
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    assert hbatune("rollback", disk).code == 0
    current = everything()
    assert {name: current[name] for name in mine} == mine
    assert {row["state"] for row in hbatune("diff", "--json").rows(target=disk)} == {"excluded"}
    assert hbatune("apply", "--no-probe").code == 0
    assert {name: everything()[name] for name in mine} == mine
    assert hbatune("apply", "--no-probe", disk).code == 0
    assert cat(disk, "queue/nr_requests") == "2048"


def test_rollback_deactivates_profile() -> None:
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    assert hbatune("rollback").code == 0
    without = hbatune("diff")
    assert without.code == 2
    assert "no profile is active" in without.err
