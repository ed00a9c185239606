"""What a real block layer makes of writes that were legal when they were planned, and are not now.

Each of these writes was seen to shrink an adapter's tag set or to fail a live map's I/O.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest import appear
from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import scsi_disks
from tests.lab.guest.values import cat, everything, put, put_back, scheduler

_SITE = Path("/etc/hbatune/rules.d/legal.toml")
_NO_BFQ = Path("/etc/modprobe.d/no-bfq.conf")
_SECTORS = "queue/max_sectors_kb"
_RULE = """
[[rule]]
name = "{name}"
setting = "{setting}"
when = {{ family = "{family}" }}
value = {value}
because = "a test"
source = "site"
"""


def tags(disk: str) -> int:
    """Return the size of the adapter's tag set as it is in force, which sysfs does not show."""
    text = Path(f"/sys/kernel/debug/block/{disk}/hctx0/tags").read_text()
    match = re.search(r"depth=(\d+)", text)
    assert match is not None, text
    return int(match[1])


@contextmanager
def site_rules(*rules: dict[str, object]) -> Iterator[None]:
    """Have a site's own rules on top of the profile's."""
    _SITE.parent.mkdir(parents=True, exist_ok=True)
    _SITE.write_text("".join(_RULE.format(**rule) for rule in rules))
    try:
        yield
    finally:
        _SITE.unlink()


def test_rollback_shrinks_no_adapter(tmp_path: Path) -> None:
    """After an apply an administrator sets one disk's scheduler to none."""
    first, second = scsi_disks("megaraid_sas")
    before = everything()
    full = tags(first)
    assert hbatune("apply", "--profile", "oltp", "--no-probe", first, second).code == 0
    put(first, "queue/scheduler", "none")
    done = hbatune("rollback", "--json")
    assert done.code == 0, done.out + done.err
    row = done.row(first, "nr_requests")
    assert (row["gone"], row["outcome"]) == (True, "vanished")
    assert "removed with its scheduler" in row["limit"]
    assert (tags(first), tags(second)) == (full, full)
    assert cat(first, "queue/nr_requests") == str(full)
    again = hbatune("rollback", "--json")
    assert (again.code, again.rows()) == (0, [])
    put_back(before)
    assert everything() == before


def test_refused_scheduler_shrinks_no_adapter() -> None:
    """The module of the scheduler that a rule asks for is not there."""
    [disk, _] = scsi_disks("megaraid_sas")
    before = everything()
    put(disk, "queue/scheduler", "none")
    full = tags(disk)
    _NO_BFQ.write_text("install bfq /bin/false\n")
    subprocess.run(["modprobe", "--remove", "bfq"], check=True)  # tests before may have loaded it
    wish = {"family": "megaraid_sas"}
    try:
        with site_rules(
            {"name": "bfq", "setting": "scheduler", "value": '"bfq"', **wish},
            {"name": "few", "setting": "nr_requests", "value": 512, **wish},
        ):
            done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", disk)
    finally:
        _NO_BFQ.unlink()
    assert done.code == 1, done.out
    assert (done.row(disk, "scheduler")["outcome"]) == "refused"
    assert (done.row(disk, "nr_requests")["outcome"]) == "cancelled"
    assert "scheduler could not be set" in done.row(disk, "nr_requests")["limit"]
    assert (tags(disk), scheduler(disk)) == (full, "none")
    assert hbatune("rollback").code == 0
    put_back(before)
    assert everything() == before


def test_rollback_lowers_no_live_path(joined: tuple[str, list[str]]) -> None:
    """Larger requests of the map would fail: over max size limit.

    The rule asks for more than every kernel's default (block/blk.h: BLK_DEF_MAX_SECTORS_CAP).
    """
    name, paths = joined
    before = {path: cat(path, _SECTORS) for path in paths}
    wish = {"family": "scsi_debug", "name": "large", "setting": "max_sectors_kb", "value": 6144}
    with site_rules(wish):
        done = hbatune("apply", "--profile", "oltp", "--no-probe", "--json", *paths)
    assert done.code == 0, done.out + done.err
    appear.again(appear.Reloaded(name))
    assert int(cat(name, _SECTORS)) == 6144, "the map takes its limits over at a table load"
    back = hbatune("rollback", "--json")
    assert back.code == 1
    for path in paths:
        row = back.row(path, "max_sectors_kb")
        assert row["outcome"] == "refused"
        assert f"{name} sends up to 6144 KiB" in row["limit"]
        assert cat(path, _SECTORS) == "6144"
    read = ["dd", f"if=/dev/{name}", "of=/dev/null", "bs=6M", "count=1", "iflag=direct"]
    subprocess.run(read, check=True, capture_output=True)
    put(name, _SECTORS, min(before.values(), key=int))
    assert hbatune("rollback").code == 0
    assert {path: cat(path, _SECTORS) for path in paths} == before
    subprocess.run(read, check=True, capture_output=True)
