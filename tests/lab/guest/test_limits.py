"""A rule that asks for more than a driver gives: the plan knows, and nothing is written in vain."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import cat, everything, put

RULES = Path("/etc/hbatune/rules.d/deep.toml")
DEEP = """
[[rule]]
name = "deep"
setting = "queue_depth"
when = { family = ["virtio_scsi", "ahci"] }
value = 4096
because = "a test"
source = "site"
"""
DEEPEST = {"virtio_scsi": 128, "ahci": 32}
"""cmd_per_lun of QEMU's virtio-scsi, to which the driver clamps; the tags of a SATA drive."""


@pytest.fixture
def deep() -> Iterator[None]:
    """A site that wants 4096 for each LUN."""
    RULES.parent.mkdir(parents=True, exist_ok=True)
    RULES.write_text(DEEP)
    yield
    RULES.unlink()


@pytest.mark.parametrize("driver", DEEPEST)
def test_plan_respects_driver_limits(driver: str, deep: None) -> None:
    before = everything()
    driver_disks = scsi_disks(driver)
    for disk in driver_disks:
        put(disk, "device/queue_depth", "4")
    done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *driver_disks)
    assert done.code == 0, done.out + done.err
    for disk in driver_disks:
        row = done.row(disk, "queue_depth")
        assert (row["wanted"], row["outcome"]) == (4096, "written")
        assert row["limit"]
        assert row["value"] <= DEEPEST[driver]
        assert cat(disk, "device/queue_depth") == str(row["value"])
        with suppress(OSError):  # libata refuses, virtio_scsi clamps
            put(disk, "device/queue_depth", str(row["value"] + 1))
        assert int(cat(disk, "device/queue_depth")) <= row["value"], "the driver gives more"
    assert hbatune("rollback").code == 0
    for disk in driver_disks:
        put(disk, "device/queue_depth", before[f"{disk}/device/queue_depth"])
    assert everything() == before
