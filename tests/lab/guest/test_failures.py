"""Writes that fail, disks that go away or hang: the right outcome for each row, the others done."""

import os
import select
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act import lock, paths
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.hang import hung, see_no_commands
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import BLOCK, cat, everything, put, scheduler

KERNELS = ("6.1",)
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted", "rolled_back")

ScsiDebug = Callable[..., list[str]]


def test_vanished_lun_is_reported(scsi_debug: ScsiDebug) -> None:
    from hbatune.act import journal, paths
    from hbatune.act.executor import Means
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
        journal=paths.JOURNAL, claims=paths.CLAIMS, spent=paths.SPENT, workers=4, deadline=10.0
    )
    filed = journal.load(paths.JOURNAL, situation.machine.boot_id)[0]
    rows = write_plan(situation.machine, plan, filed, means)
    for row in rows:
        if row.setting != "nr_requests":
            continue
        expected = Outcome.VANISHED if row.target == second else Outcome.WRITTEN
        assert row.outcome is expected, row
    assert cat(first, "queue/nr_requests") == "2048"


def _wait_until_gone(pid: int) -> None:
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([watch], [], [])
    os.close(watch)


def test_hung_lun_spares_healthy_luns(
    scsi_debug: ScsiDebug,
) -> None:
    luns = scsi_debug(max_luns=4)
    sick, *well = luns
    configure("[act]\ndeadline_seconds = 2\n")
    put(sick, "queue/scheduler", "none")
    before = everything()
    with hung(sick) as reader:
        words = ("apply", "--profile", "oltp", "--no-probe", "--json", *luns)
        done = hbatune(*words, prepare=see_no_commands)
        assert reader.poll() is None, "the disk hung long enough"
        assert done.code == 1, done.err
        stuck = done.rows(target=sick, outcome="stuck")
        assert [row["setting"] for row in stuck] == ["scheduler"]
        remaining_rows = [row for row in done.rows(target=sick, state="drift") if row not in stuck]
        assert {(row["outcome"], row["errno"]) for row in remaining_rows} == {("cancelled", None)}
        for disk in well:
            assert {row["outcome"] for row in done.rows(target=disk, state="drift")} == {"written"}
            assert cat(disk, "queue/nr_requests") == "2048"
        [writer] = [claim.pid for claim in lock.find_outstanding_claims(paths.CLAIMS)]
        status = Path(f"/proc/{writer}/status").read_text()
        assert "State:\tD" in status, "the writer is still in the kernel"

        diff = hbatune("diff", "--json")
        assert reader.poll() is None
        assert {row["state"] for row in diff.rows(target=sick)} == {"unreadable"}
        assert str(writer) in diff.err
        assert diff.rows(target=well[0], state="ok")

        again = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *well)
        assert again.code == 0, "the next run is not locked out\n" + again.err
        back = hbatune("rollback", "--json", sick)
        assert back.code == 1
        assert {row["outcome"] for row in back.rows(target=sick)} == {"stuck"}
        assert reader.poll() is None, "all of that while the disk hung"
    _wait_until_gone(writer)
    assert scheduler(sick) == "mq-deadline", "the write of a killed worker lands late"
    late = hbatune("diff")
    assert f"{sick}: the late write of scheduler has landed" in late.err, late.err
    back = hbatune("rollback")
    assert back.code == 0, back.out + back.err
    assert everything() == before
    assert hbatune("uninstall").code == 0  # what was rolled back by name would stay so


def test_diff_survives_unresponsive_disk(scsi_debug: ScsiDebug) -> None:
    """Somebody else's write is stuck behind the hung I/O, and reads of the queue behind that."""
    luns = scsi_debug(max_luns=3)
    sick, *well = luns
    configure("[act]\ndeadline_seconds = 2\n")
    was = cat(sick, "queue/nr_requests")
    with hung(sick) as reader:
        writer = subprocess.Popen(["sh", "-c", f"echo 64 > {BLOCK}/{sick}/queue/nr_requests"])
        while "State:\tD" not in Path(f"/proc/{writer.pid}/status").read_text():
            os.sched_yield()
        diff = hbatune("diff", "--profile", "oltp", "--json", *luns)
        assert reader.poll() is None
        assert diff.code == 1
        unreadable = {row["setting"] for row in diff.rows(target=sick, state="unreadable")}
        assert {"scheduler", "nr_requests"} <= unreadable
        for disk in well:
            assert not diff.rows(target=disk, state="unreadable")
        listed = hbatune("list", "--json")
        assert sick in {endpoint["target"] for endpoint in listed.json["endpoints"]}
    writer.wait()
    put(sick, "queue/nr_requests", was)


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
