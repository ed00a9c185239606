"""The rules of the kernel's model, one by one; the lab holds all of them against real kernels."""

import errno
from collections import deque

import pytest

from tests.kernel.model import HANGS, Below, By, Disk, Kernel, Shrink, TagSet


@pytest.fixture(params=["6.1", "6.12"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return Kernel(request.param)


def luns(kernel: Kernel, tags: int = 192) -> tuple[Disk, Disk]:
    """Return two LUNs of one adapter."""
    shared = TagSet(tags)
    return tuple(kernel.add(Disk(name, shared, can_queue=tags)) for name in ("sda", "sdb"))  # type: ignore[return-value]


def read(kernel: Kernel, disk: Disk, name: str) -> str | None:
    return disk.texts(kernel.series).get(name)


def test_scheduler_switch_resets_settings(kernel: Kernel) -> None:
    disk, _ = luns(kernel)
    assert kernel.write(disk, "queue/nr_requests", "1024") is None
    assert kernel.write(disk, "queue/iosched/fifo_batch", "7") is None
    assert kernel.write(disk, "queue/scheduler", "none") is None
    assert read(kernel, disk, "queue/nr_requests") == "192"
    assert read(kernel, disk, "queue/iosched/fifo_batch") is None
    assert kernel.write(disk, "queue/scheduler", "mq-deadline") is None
    assert read(kernel, disk, "queue/nr_requests") == "256"
    assert read(kernel, disk, "queue/iosched/fifo_batch") == "16"


def test_unscheduled_requests_shrink_shared_tags(kernel: Kernel) -> None:
    disk, sibling = luns(kernel)
    kernel.write(disk, "queue/scheduler", "none")
    assert kernel.write(disk, "queue/nr_requests", "32") is None
    assert kernel.shrinks == [Shrink(By.HBATUNE, "sda", 192, 32)]
    assert sibling.tags.bitmap == 32
    for scheduler in ("mq-deadline", "none"):
        kernel.write(disk, "queue/scheduler", scheduler)
    assert (read(kernel, disk, "queue/nr_requests"), disk.tags.bitmap) == ("192", 32)
    kernel.write(disk, "queue/nr_requests", "192")
    assert disk.tags.bitmap == 32, "the number has not changed"
    kernel.write(disk, "queue/nr_requests", "191")
    kernel.write(disk, "queue/nr_requests", "192")
    assert disk.tags.bitmap == 192


@pytest.mark.parametrize(
    ("scheduler", "text", "found"),
    [
        ("mq-deadline", "2048", None),
        ("mq-deadline", "2049", errno.EINVAL),
        ("none", "192", None),
        ("none", "193", errno.EINVAL),
        ("none", "twelve", errno.EINVAL),
    ],
)
def test_scheduler_or_tags_cap_requests(
    kernel: Kernel, scheduler: str, text: str, found: int | None
) -> None:
    disk, _ = luns(kernel)
    kernel.write(disk, "queue/scheduler", scheduler)
    assert kernel.write(disk, "queue/nr_requests", text) == found


def test_minimum_is_four_requests(kernel: Kernel) -> None:
    disk, _ = luns(kernel)
    assert kernel.write(disk, "queue/nr_requests", "1") is None
    assert read(kernel, disk, "queue/nr_requests") == "4"


def test_scheduler_write_loads_module(kernel: Kernel) -> None:
    disk, sibling = luns(kernel)
    assert kernel.write(disk, "queue/scheduler", "kyber") is None
    assert "kyber" in (read(kernel, sibling, "queue/scheduler") or "")
    disk.modules = ()
    assert kernel.write(disk, "queue/scheduler", "bfq") == errno.EINVAL


def test_oversized_max_sectors_never_fits(kernel: Kernel) -> None:
    disk, _ = luns(kernel)
    refused = kernel.write(disk, "queue/max_sectors_kb", "99999999")
    if kernel.series == "6.1":
        assert refused == errno.EINVAL
    else:
        assert (refused, disk.sectors_kb) == (None, disk.max_hw_kb)


def test_limits_raise_read_ahead(kernel: Kernel) -> None:
    disk, _ = luns(kernel)
    kernel.write(disk, "queue/read_ahead_kb", "16")
    kernel.write(disk, "queue/iostats", "0")
    assert disk.read_ahead_kb == (16 if kernel.series == "6.1" else 128)


def test_path_below_map_is_recorded(kernel: Kernel) -> None:
    paths = luns(kernel)
    kernel.add(Disk("dm-0", TagSet(2048), paths=paths))
    kernel.write(paths[0], "queue/max_sectors_kb", "512", By.ADMINISTRATOR)
    assert kernel.belows == [Below(By.ADMINISTRATOR, "dm-0", "sda", 512, 1280)]
    kernel.reload(kernel.disks[-1])
    kernel.write(kernel.disks[-1], "queue/max_sectors_kb", "1280")
    assert kernel.belows[1:] == [Below(By.HBATUNE, "dm-0", "sda", 512, 1280)]


@pytest.mark.parametrize(("text", "depth"), [("010", 8), ("0x10", 16), ("12abc", 12)])
def test_depth_parses_like_c(kernel: Kernel, text: str, depth: int) -> None:
    disk, _ = luns(kernel)
    assert kernel.write(disk, "device/queue_depth", text) is None
    assert disk.depth == depth
    for wrong in ("0", "193", "many"):
        assert kernel.write(disk, "device/queue_depth", wrong) == errno.EINVAL


def test_queue_full_lowers_depth_temporarily(kernel: Kernel) -> None:
    disk, _ = luns(kernel)
    kernel.write(disk, "device/queue_depth", "10")
    kernel.queue_full(disk, 8)
    for depth in (9, 10, 10):
        kernel.ramp_up(disk)
        assert disk.depth == depth


def test_hanging_write_lands_later(kernel: Kernel) -> None:
    disk, _ = luns(kernel)
    disk.refusals["queue/nr_requests"] = deque([HANGS, errno.EBUSY])
    assert kernel.write(disk, "queue/nr_requests", "512") == HANGS
    assert kernel.write(disk, "queue/nr_requests", "64") == errno.EBUSY
    assert disk.requests == 256
    kernel.release(disk)
    assert disk.requests == 512
    kernel.remove(disk)
    assert kernel.write(disk, "queue/nr_requests", "64") == errno.ENODEV


def test_completion_raises_lowered_depth_once(kernel: Kernel) -> None:
    disk, _ = luns(kernel)
    kernel.write(disk, "device/queue_depth", "20")
    disk.served = True
    kernel.write(disk, "device/queue_depth", "30")
    assert disk.depth == 30, "it was not lowered"
    kernel.write(disk, "device/queue_depth", "10")
    assert disk.depth == 11
    kernel.write(disk, "device/queue_depth", "10")
    assert disk.depth == 10
