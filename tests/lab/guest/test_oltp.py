"""What `apply --profile oltp` does on real drivers, looked at with plain eyes."""

import re
from collections.abc import Iterator

import pytest

from tests.lab.guest.command import Done, hbatune
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import BLOCK, cat, disks, everything, nvme_queues, scheduler

PATHS = {
    "scheduler": "queue/scheduler",
    "nr_requests": "queue/nr_requests",
    "queue_depth": "device/queue_depth",
}


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    return everything()


@pytest.fixture(scope="module")
def applied(before: dict[str, str]) -> Iterator[Done]:
    """One apply for all that only look."""
    yield hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
    hbatune("rollback")


def test_kernel_values_match_plan(applied: Done) -> None:
    assert applied.code == 0, applied.err
    rows = [row for row in applied.json["rows"] if row["setting"] in PATHS]
    settable = [row for row in rows if row["state"] in ("ok", "drift")]
    assert settable
    for row in settable:
        assert row["outcome"] == ("written" if row["state"] == "drift" else "kept"), row
        if row["setting"] == "scheduler":
            assert scheduler(row["target"]) == row["value"]
        else:
            assert int(cat(row["target"], PATHS[row["setting"]])) == row["value"], row


def test_nvme_uses_full_tag_set(applied: Done) -> None:
    assert len(nvme_queues()) == 3, "one namespace, and one more over two controllers"
    for disk in nvme_queues():
        assert scheduler(disk) == "none"
        assert cat(disk, "queue/nr_requests") == cat(disk, "mq/0/nr_tags")
        row = applied.row(disk, "nr_requests")
        assert row["wanted"] == 2048
        assert "tag set" in row["limit"]


def test_visible_head_is_skipped(applied: Done) -> None:
    heads = [disk for disk in disks() if re.fullmatch(r"nvme\d+n\d+", disk)]
    hidden = [disk for disk in disks() if re.fullmatch(r"nvme\d+c\d+n\d+", disk)]
    assert len(hidden) == 2
    for head in set(heads) - set(nvme_queues()):
        assert not applied.rows(target=head, state="drift")


@pytest.mark.parametrize(
    "driver",
    ["megaraid_sas", "mptsas", "sym53c8xx", "ahci"],
)
def test_hba_gets_deadline_2048_requests(driver: str, applied: Done) -> None:
    driver_disks = scsi_disks(driver)
    assert driver_disks
    for disk in driver_disks:
        assert scheduler(disk) == "mq-deadline"
        assert cat(disk, "queue/nr_requests") == "2048"


@pytest.mark.parametrize("driver", ["virtio_scsi", "vmw_pvscsi"])
def test_virtual_disk_is_unchanged(driver: str, before: dict[str, str], applied: Done) -> None:
    driver_disks = scsi_disks(driver)
    assert driver_disks
    for disk in driver_disks:
        assert scheduler(disk) == before[f"{disk}/queue/scheduler"]
        assert cat(disk, "queue/nr_requests") == before[f"{disk}/queue/nr_requests"]
        assert not applied.rows(target=disk, state="drift")


def test_depths_are_only_raised(before: dict[str, str], applied: Done) -> None:
    for name, text in before.items():
        disk, _, attribute = name.partition("/")
        if attribute == "device/queue_depth":
            assert int(cat(disk, attribute)) >= int(text), name
    raised = [row for row in applied.rows(setting="queue_depth") if row["state"] == "drift"]
    for row in raised:
        assert row["value"] > row["current"]
    for disk in scsi_disks("mptsas"):
        if cat(disk, "queue/rotational") == "0":
            assert int(cat(disk, "device/queue_depth")) >= 64
    for row in applied.rows(setting="queue_depth"):
        if row["wanted"] == 32:
            assert int(cat(row["target"], "device/queue_depth")) >= 32


def test_read_only_depth_above_minimum_is_ok(applied: Done) -> None:
    [disk] = scsi_disks("sym53c8xx")
    row = applied.row(disk, "queue_depth")
    assert (row["state"], row["outcome"]) == ("ok", "kept")
    assert not (BLOCK / disk / "device/queue_depth").stat().st_mode & 0o222
