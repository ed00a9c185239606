"""What is read of LUNs whose depth sinks on a full queue, and of which."""

from pathlib import Path

from hbatune.agent.judge import Ramp, find_ramps
from hbatune.facts.model import Endpoint
from tests.unit.disk_files import Disk
from tests.unit.machines import endpoint


def lun(folder: Path, name: str, address: str, *, family: str = "mpt3sas", errors: int) -> Endpoint:
    """A LUN with so many errors counted."""
    files = {"device__ioerr_cnt": hex(errors), "device__queue_ramp_up_period": "2500"}
    disk = Disk(folder, name, **files)
    return endpoint(
        target=name, id=name, family=family, address=address, sysfs=str(disk.path), attributes={}
    )


def test_ramps_sum_target_errors(tmp_path: Path) -> None:
    ramps = find_ramps(
        [
            lun(tmp_path, "sda", "0:0:1:0", errors=3),
            lun(tmp_path, "sdb", "0:0:1:1", errors=4),
            lun(tmp_path, "sdc", "0:0:2:0", errors=5),
            lun(tmp_path, "sdd", "1:0:2:0", family="smartpqi", errors=6),
        ],
        ["sda"],
        deadline=10.0,
    )
    assert ramps == {"sda": Ramp(7, 2.5), "sdb": Ramp(7, None), "sdc": Ramp(5, None)}


def test_unreadable_ramp_counts_zero(tmp_path: Path) -> None:
    removed_disk = endpoint(target="sda", id="sda", address="0:0:1:0", sysfs=str(tmp_path / "gone"))
    assert find_ramps([removed_disk], ["sda"], deadline=10.0) == {"sda": Ramp(0, None)}
