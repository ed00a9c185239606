"""A write that hangs in the kernel, with the reads behind it: the other disks are set as ever.

Newer kernels block the whole adapter instead (test_hanging.py).
"""

import os
import select
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.act import lock
from hbatune.act.paths import Paths
from tests.lab.guest.command import configure, hbatune
from tests.lab.guest.hang import hung, see_no_commands
from tests.lab.guest.kit import wait_a_moment
from tests.lab.guest.values import BLOCK, cat, everything, put, scheduler

KERNELS = ("6.1",)
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted", "rolled_back")

ScsiDebug = Callable[..., list[str]]


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
        [writer] = [claim.pid for claim in lock.find_outstanding_claims(Paths.claims)]
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
            wait_a_moment()
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
