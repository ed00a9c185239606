"""The main job on the lab's tri-mode card: every drive is known, planned, applied and put back."""

from collections.abc import Callable

from tests.lab.guest import tri_mode
from tests.lab.guest.command import hbatune
from tests.lab.guest.tri_mode import KINDS
from tests.lab.guest.values import cat, everything, scheduler

CARD_ALONE = '[site]\nexclude = ["vda", "vdb"]\n'
"""A configuration that leaves the lab's own disks out."""


def current(target: str, setting: str) -> str:
    """Return what the setting's own file says, read by nobody of hbatune's."""
    if setting == "scheduler":
        return scheduler(target)
    return cat(target, f"{'device' if setting == 'queue_depth' else 'queue'}/{setting}")


def list_disk_kinds() -> list[tuple[str, str, str]]:
    """Return vendor, protocol and medium of the card's disks from `hbatune list`."""
    document = hbatune("list", "--json").json
    endpoints = [
        endpoint for endpoint in document["endpoints"] if endpoint["family"] == tri_mode.driver()
    ]
    return sorted(
        (endpoint["vendor"], endpoint["protocol"], endpoint["medium"]) for endpoint in endpoints
    )


def expected() -> list[tuple[str, str, str]]:
    """Return the expected vendor, protocol and medium of each disk."""
    vendors = [cat(disk, "device/vendor") for disk in tri_mode.disks()]
    return sorted((vendor, *KINDS[vendor]) for vendor in vendors)


def apply_and_back(between: Callable[[], None] = lambda: None) -> None:
    """Apply, and every row is as the plan says, by its file; back, and everything is as it was."""
    before = everything()
    applied = hbatune("apply", "--profile", "oltp", "--no-probe", "--json")
    assert applied.code == 0, applied.out + applied.err
    rows = [row for row in applied.json["rows"] if row["target"] in tri_mode.disks()]
    changed = [row for row in rows if row["outcome"] == "written"]
    assert changed
    for row in rows:
        if row["value"] is not None and row["outcome"] in ("written", "kept"):
            assert current(row["target"], row["setting"]) == str(row["value"]), row
    assert hbatune("diff", "--profile", "oltp").code == 0
    between()
    back = hbatune("rollback")
    assert back.code == 0, back.out + back.err
    assert everything() == before
