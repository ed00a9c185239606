"""Commands that hang: nothing is written to their queue, and its siblings are set as ever."""

from collections.abc import Callable, Iterable

import pytest

from hbatune.act import lock
from hbatune.act.paths import Paths
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.hang import Hanging, hung, hung_each_way, see_no_commands
from tests.lab.guest.values import BLOCK, cat, everything, put, scheduler

pytestmark = pytest.mark.usefixtures("virtual_disks_wanted", "rolled_back")
APPLY = ("apply", "--profile", "oltp", "--no-probe", "--json")

ScsiDebug = Callable[..., list[str]]


def are_hung(commands: Iterable[Hanging]) -> bool:
    return all(command.poll() is None for command in commands)


def test_hanging_command_blocks_its_disk_only(scsi_debug: ScsiDebug) -> None:
    luns = scsi_debug(max_luns=8)
    sick, well = luns[:2], luns[2:]
    for disk in sick:
        put(disk, "queue/scheduler", "none")
    before = everything()
    with hung_each_way(*sick) as commands:
        done = hbatune(*APPLY, *luns)
        assert are_hung(commands), "the commands hung long enough"
        assert done.code == 1, done.err
        for disk in sick:
            blocked = done.rows(target=disk, state="drift")
            assert {row["outcome"] for row in blocked} == {"blocked"}
            assert {row["setting"] for row in blocked} >= {"scheduler", "nr_requests"}
            for row in blocked:
                assert row["limit"].startswith("hung commands in its queue: 1, the oldest for ")
        for disk in well:
            assert {row["outcome"] for row in done.rows(target=disk, state="drift")} == {"written"}
            assert cat(disk, "queue/nr_requests") == "2048"
        assert lock.find_outstanding_claims(Paths.claims) == []
        put(well[0], "device/delete", "1")  # waits for no write of hbatune
        assert are_hung(commands)
        back = hbatune("rollback", "--json", *sick)
        assert (back.code, back.rows(outcome="stuck")) == (0, [])
    again = hbatune(*APPLY, *sick)
    assert again.code == 0, again.out + again.err
    assert [scheduler(disk) for disk in sick] == ["mq-deadline"] * 2
    assert hbatune("rollback").code == 0
    current = everything()
    assert current == {name: text for name, text in before.items() if name in current}


def test_later_hang_blocks_settings_under_adapters_lock(scsi_debug: ScsiDebug) -> None:
    luns = scsi_debug(max_luns=4)
    sick, *well = luns
    configure("[act]\ndeadline_seconds = 5\n")  # enough for a start on a busy host
    put(sick, "queue/scheduler", "none")
    is_locked = (BLOCK / sick / "queue/async_depth").exists()
    with hung(sick) as reader:
        done = hbatune(*APPLY, *luns, prepare=see_no_commands)
        assert reader.poll() is None
        assert done.code == 1, done.err
        stuck = done.row(sick, "scheduler")
        assert stuck["outcome"] == "stuck"
        outcomes = {row["outcome"] for disk in well for row in done.rows(target=disk)}
        limits = {row["limit"] for disk in well for row in done.rows(target=disk)}
        if is_locked:
            assert "adding and removing disks of this adapter waits" in stuck["limit"]
            assert outcomes - {"kept", None} == {"blocked"}
            assert f"a write to {sick} has not returned and locks the adapter" in limits
        else:
            assert stuck["limit"] is None
            assert outcomes - {"kept", None} == {"written"}
    again = hbatune(*APPLY, *luns)
    assert again.code == 0, again.out + again.err
