"""Writes that fail, disks that go away: the right outcome for each row, the others done."""

from collections.abc import Callable

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import BLOCK, cat, put, scheduler

pytestmark = pytest.mark.usefixtures("virtual_disks_wanted", "rolled_back")

ScsiDebug = Callable[..., list[str]]


def test_vanished_lun_is_reported(scsi_debug: ScsiDebug) -> None:
    from hbatune.act import journal
    from hbatune.act.executor import Means
    from hbatune.act.paths import Paths
    from hbatune.act.writer import write_plan
    from hbatune.operations.situation import SituationRequest, read_situation
    from hbatune.plan.rows import Outcome

    first, second, *_ = luns = scsi_debug(max_luns=4)
    situation = read_situation(SituationRequest(profile="oltp", targets=luns))
    plan = situation.plan()
    assert {(row.target, row.setting) for row in plan.drift} == {
        (lun, "nr_requests") for lun in luns
    }
    put(second, "device/delete", "1")
    means = Means(
        journal=Paths.journal, claims=Paths.claims, spent=Paths.spent, workers=4, deadline=10.0
    )
    filed = journal.load(Paths.journal, situation.machine.boot_id)[0]
    rows = write_plan(situation.machine, plan, filed, means)
    for row in rows:
        if row.setting != "nr_requests":
            continue
        expected = Outcome.VANISHED if row.target == second else Outcome.WRITTEN
        assert row.outcome is expected, row
    assert cat(first, "queue/nr_requests") == "2048"


def test_offline_disk_is_skipped(scsi_debug: ScsiDebug) -> None:
    luns = scsi_debug(max_luns=2)
    put(luns[0], "device/state", "offline\n")
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *luns)
    assert done.code == 1
    assert {row["state"] for row in done.rows(target=luns[0], setting="scheduler")} == {
        "unreadable"
    }
    assert scheduler(luns[1]) == "mq-deadline"
    put(luns[0], "device/state", "running\n")


def test_clamped_value_is_detected() -> None:
    """virtio_scsi takes any depth and makes it cmd_per_lun, without an error."""
    from hbatune.act.chain import Chain, Step
    from hbatune.plan.rows import Outcome
    from tests.kernel.chains import write_chain

    disk = scsi_disks("virtio_scsi")[0]
    before = int(cat(disk, "device/queue_depth"))
    host = next(path for path in (BLOCK / disk).resolve().parents if path.name.startswith("host"))
    attributes = host / "scsi_host" / host.name
    can_queue = int((attributes / "can_queue").read_text())
    at_most = int((attributes / "cmd_per_lun").read_text())
    assert at_most < can_queue, "or there is nothing to clamp"
    sysfs = str((BLOCK / disk).resolve())
    chain = Chain(disk, disk, None, None, sysfs, (Step("queue_depth", can_queue, before),))
    [result] = write_chain(chain)
    assert (result.outcome, result.found) == (Outcome.IGNORED, at_most)
    put(disk, "device/queue_depth", str(before))


def test_refusal_carries_errno() -> None:
    from hbatune.act.chain import Chain, Step, WriteResult
    from hbatune.plan.rows import Outcome
    from tests.kernel.chains import write_chain

    def depth(disk: str, value: int) -> WriteResult:
        step = Step("queue_depth", value, None)
        [result] = write_chain(
            Chain(disk, disk, None, None, str((BLOCK / disk).resolve()), (step,))
        )
        return result

    einval = depth(scsi_disks("megaraid_sas")[0], 100_000)
    eacces = depth(scsi_disks("sym53c8xx")[0], 4)
    assert (einval.outcome, einval.errno) == (Outcome.REFUSED, 22)
    assert (eacces.outcome, eacces.errno) == (Outcome.REFUSED, 13)
