"""A disk is tuned the moment it appears, with no process of hbatune's about."""

from collections.abc import Callable, Iterator

import pytest

from tests.lab.guest import appear
from tests.lab.guest.boot import (
    LUN,
    RULES,
    by_rule,
    close_after_writing,
    database,
    installed_for,
    set_up,
    values,
)
from tests.lab.guest.command import JOURNAL, hbatune
from tests.lab.guest.kit import loaded_scsi_debug, reload_rules
from tests.lab.guest.values import cat, put

pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
Load = Callable[..., list[str]]


@pytest.fixture(scope="module")
def original() -> dict[str, str]:
    """What the kernel gives a disk of scsi_debug, before there are any rules."""
    with loaded_scsi_debug(**LUN) as [disk]:
        return values(disk)


@pytest.fixture(scope="module")
def machine(original: dict[str, str]) -> Iterator[None]:
    """hbatune installed, for all tests of this file."""
    with installed_for("oltp") as done:
        assert done.code == 0, done.out + done.err
        yield


@pytest.fixture
def ruled(machine: None, scsi_debug: Load) -> str:
    """A disk that came when hbatune was installed already."""
    if not RULES.exists():  # a rollback takes them away
        done = hbatune("install", "--profile", "oltp")
        assert done.code == 0, done.out + done.err
    [disk] = scsi_debug(**LUN)
    return disk


def test_appearing_disk_is_tuned(original: dict[str, str], ruled: str) -> None:
    assert original["scheduler"] == "none"
    assert by_rule(ruled), values(ruled)
    properties = database(ruled)
    assert "_none_" in properties["HBATUNE_WAS_SCHEDULER"].split()
    assert properties["HBATUNE_WAS_NR_REQUESTS"] == original["queue/nr_requests"]
    assert not JOURNAL.exists()


def test_depth_of_earlier_rule_stays(ruled: str) -> None:
    earlier = RULES.with_name("80-depth.rules")
    depth = "ATTR{device/queue_depth}"
    earlier.write_text(f'ACTION=="add", SUBSYSTEM=="block", {depth}=="192", {depth}="20"\n')
    reload_rules()
    try:
        lowered = values(appear.again(appear.Rescan()))
    finally:
        earlier.unlink()
        reload_rules()
    assert lowered == {
        "scheduler": "mq-deadline",
        "queue/nr_requests": "2048",
        "device/queue_depth": "20",
    }


def test_administrator_value_survives_change_event(ruled: str) -> None:
    before = {k: v for k, v in database(ruled).items() if k.startswith("HBATUNE_WAS")}
    put(ruled, "queue/nr_requests", "100")
    close_after_writing(ruled)
    assert cat(ruled, "queue/nr_requests") == "100"
    assert before
    assert {k: v for k, v in database(ruled).items() if k.startswith("HBATUNE_WAS")} == before


def test_rollback_restores_newest_baseline(original: dict[str, str], ruled: str) -> None:
    back = hbatune("rollback")
    assert back.code == 0, back.out + back.err
    assert values(ruled) == original
    assert not RULES.exists()
    close_after_writing(ruled)
    assert values(ruled) == original
    mine = {"scheduler": "mq-deadline", "queue/nr_requests": "99", "device/queue_depth": "11"}
    set_up(ruled, mine)
    assert hbatune("apply", "--profile", "oltp", "--no-probe").code == 0
    assert by_rule(ruled)
    assert RULES.exists()
    assert hbatune("rollback").code == 0
    assert values(ruled) == mine, "the values at the second apply count, not those before the rules"


def test_apply_preserves_rule_baseline(original: dict[str, str], ruled: str) -> None:
    put(ruled, "queue/nr_requests", "100")
    done = hbatune("apply", "--no-probe", ruled)
    assert done.code == 0, done.out + done.err
    assert by_rule(ruled)
    assert hbatune("rollback").code == 0
    assert values(ruled) == original


def test_rolled_back_disk_stays_untouched(original: dict[str, str], ruled: str) -> None:
    assert hbatune("rollback", ruled).code == 0
    assert values(ruled) == original
    assert RULES.exists()
    assert f'ATTR{{device/wwid}}=="{cat(ruled, "device/wwid")}"' in RULES.read_text()
    assert values(appear.again(appear.Rescan())) == original
