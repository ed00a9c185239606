"""The main job on an eHBA 9600, by its real driver: found, planned, applied, put back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.guest import tri_mode
from tests.lab.guest.command import configure, hbatune, writes
from tests.lab.guest.main_job import CARD_ALONE, apply_and_back, expected, list_disk_kinds

TOPOLOGY = "tri-mode"


@pytest.fixture(autouse=True)
def one_profile() -> Iterator[None]:
    """The lab's own disks stay out of it."""
    configure(CARD_ALONE)
    yield
    configure("")


def test_card_reports_name_and_document() -> None:
    document = hbatune("list", "--json").json
    [card] = [adapter for adapter in document["adapters"] if adapter["family"] == "mpi3mr"]
    assert card["product"] == "Broadcom eHBA 9600-24i"
    assert card["document"] == "05-50111-01 (D0)"
    listing = hbatune("list").out
    assert "Broadcom eHBA 9600-24i  05-50111-01 (D0)" in listing
    assert "16 GT/s x8" in listing


def test_drives_have_expected_kind() -> None:
    assert len(tri_mode.disks()) == 7
    assert list_disk_kinds() == expected()


def test_apply_is_idempotent_and_reversible(tmp_path: Path) -> None:
    def again() -> None:
        assert writes("apply", "--profile", "oltp", "--no-probe", log=tmp_path / "strace") == []

    apply_and_back(again)


def test_drives_are_planned_by_kind() -> None:
    rows = hbatune("diff", "--profile", "oltp").code, hbatune("diff", "--profile", "oltp", "--json")
    code, plan = rows
    assert code == 1
    for disk in tri_mode.of("NVMe"):
        assert plan.row(disk, "scheduler")["value"] == "none"
        assert plan.row(disk, "queue_depth")["value"] == 128
    for disk in tri_mode.of("SEAGATE"):
        assert plan.row(disk, "scheduler")["value"] == "mq-deadline"
        assert plan.row(disk, "queue_depth")["value"] == 64
    for disk in (*tri_mode.of("ATA"), *tri_mode.of("BROADCOM")):
        assert plan.row(disk, "scheduler")["value"] == "mq-deadline"
        assert not plan.rows(target=disk, setting="queue_depth", state="drift")
