"""What is read of LUNs whose depth sinks on a full queue, and of which."""

from pathlib import Path
from typing import Any

from hbatune.agent.judge import Ramp, find_ramps
from hbatune.facts.model import Endpoint
from hbatune.operations.reconcile import PassFacts
from hbatune.plan.rows import Row, State
from hbatune.policy.config import Config
from hbatune.workers import WorkerPool
from tests.unit.disk_files import Disk
from tests.unit.machines import endpoint, machine


def lun(folder: Path, name: str, address: str, *, family: str = "mpt3sas", errors: int) -> Endpoint:
    """A LUN with so many errors counted."""
    files = {"device__ioerr_cnt": hex(errors), "device__queue_ramp_up_period": "2500"}
    disk = Disk(folder, name, **files)
    return endpoint(
        target=name, id=name, family=family, address=address, sysfs=str(disk.path), attributes={}
    )


def find_lowered_ramps(*luns: Endpoint) -> dict[str, Ramp]:
    """Return the ramps of LUNs of which only sda has a lowered depth."""
    rows = (depth_row("sda", 8), depth_row("sdb", 32))
    nothing = frozenset[Any]()
    with WorkerPool() as worker_pool:
        facts = PassFacts(
            machine(*luns), rows, nothing, nothing, {}, nothing, Config(), worker_pool
        )
        return find_ramps(facts)


def depth_row(name: str, current: int) -> Row:
    """Return the row of a depth whose profile value is 32."""
    state = State.OK if current == 32 else State.DRIFT
    return Row(name, name, None, "queue_depth", current, 32, 32, state, None, "", "", "deeper")


def test_ramps_sum_target_errors(tmp_path: Path) -> None:
    ramps = find_lowered_ramps(
        lun(tmp_path, "sda", "0:0:1:0", errors=3),
        lun(tmp_path, "sdb", "0:0:1:1", errors=4),
        lun(tmp_path, "sdc", "0:0:2:0", errors=5),
        lun(tmp_path, "sdd", "1:0:2:0", family="smartpqi", errors=6),
    )
    assert ramps == {"sda": Ramp(7, 2.5), "sdb": Ramp(7, None), "sdc": Ramp(5, None)}


def test_unreadable_ramp_counts_zero(tmp_path: Path) -> None:
    removed_disk = endpoint(target="sda", id="sda", address="0:0:1:0", sysfs=str(tmp_path / "gone"))
    assert find_lowered_ramps(removed_disk) == {"sda": Ramp(0, None)}
