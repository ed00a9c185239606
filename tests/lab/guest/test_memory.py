"""The memory of a plan's requests, as hbatune reports it and the kernel takes it; the daemon's."""

import gc
import re
from pathlib import Path
from statistics import median

import pytest

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import loaded_scsi_debug, udev_paused
from tests.lab.guest.service import QUIET, daemon, resident, running
from tests.lab.guest.values import put

KERNELS = ("6.12",)
TOPOLOGY = "probed"
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
LUNS = 8
OWN: dict[str, object] = {"max_luns": LUNS, "max_queue": 128, "submit_queues": 2}
SHARED = OWN | {"host_max_queue": 128}
_MIB = 1 << 20
_FACTOR, _NEAR = 1.5, 2 * _MIB
"""How far a figure may be from what was taken, whichever is more."""
_TIMES = 3

_FREE = "MemFree"
_OTHERS = (
    "Buffers",
    "Cached",
    "SwapCached",
    "AnonPages",
    "Slab",
    "KernelStack",
    "PageTables",
    "Percpu",
)
"""What moves while nothing of ours does: processes that come and go, files that are read.

Requests are in none of these sums: the kernel takes whole pages for them
(block/blk-mq.c: blk_mq_alloc_rqs), and only MemFree shows those.
"""


def free() -> int:
    """Return the bytes that are free, with those that have gone to other purposes meanwhile.

    Free pages that a CPU keeps for itself are not in MemFree (mm/page_alloc.c: free_unref_page).
    """
    Path("/proc/sys/vm/drop_caches").write_text("3")
    Path("/proc/sys/vm/stat_refresh").write_text("1")  # the sums, which each CPU keeps for itself
    lines = Path("/proc/meminfo").read_text().splitlines()
    sums = {
        name: int(amount.split()[0]) << 10 for name, amount in (line.split(":") for line in lines)
    }
    cpu_pages = re.findall(r"^ +count: +(\d+)$", Path("/proc/zoneinfo").read_text(), re.MULTILINE)
    return sums[_FREE] + sum(map(int, cpu_pages)) * 4096 + sum(sums[name] for name in _OTHERS)


@pytest.mark.parametrize("before", ["none", "mq-deadline"])
@pytest.mark.parametrize("options", [OWN, SHARED], ids=["tags-of-each-queue", "shared-tags"])
def test_reported_memory_matches_kernel(options: dict[str, object], before: str) -> None:
    """The values are set by hand, as planned: hbatune itself, beginning, takes more than they do.

    What is left of the noise goes with the median.
    """
    with loaded_scsi_debug(**options) as disks:
        assert len(disks) == LUNS
        begin(disks, before)
        plan = hbatune("diff", "--json", "--profile", "oltp", *disks)
        reported = plan.json["summary"]["memory"]
        wanted = {
            (row["target"], row["setting"]): str(row["value"])
            for row in plan.rows(state="drift")
            if row["setting"] in ("scheduler", "nr_requests")
        }
        assert len(wanted) == LUNS * (2 if before == "none" else 1)
        with udev_paused():  # no workers for the schedulers that come and go
            measurements = [measured(disks, before, wanted) for _ in range(_TIMES)]
    usual = median(measurements)
    mebibytes = [round(count / _MIB, 2) for count in (reported, *sorted(measurements))]
    near = abs(reported - usual) <= _NEAR
    assert near or usual / _FACTOR <= reported <= usual * _FACTOR, mebibytes


def begin(disks: list[str], scheduler: str) -> None:
    """Let the kernel give back all requests, and allocate those that it begins with."""
    for disk in disks:
        for name in ("none", scheduler):
            put(disk, "queue/scheduler", name)


def measured(disks: list[str], before: str, wanted: dict[tuple[str, str], str]) -> int:
    """Return the bytes that go as these values are set."""
    begin(disks, before)
    gc.collect()
    was = free()
    for setting in ("scheduler", "nr_requests"):
        for disk in disks:
            if (disk, setting) in wanted:
                put(disk, f"queue/{setting}", wanted[disk, setting])
    return was - free()


def test_daemon_needs_little_memory() -> None:
    """The bound is for Debian 12's Python, and was measured on this kernel."""
    with running(QUIET):
        assert resident(daemon()) <= 20 * 1024
