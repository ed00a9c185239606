"""The model of the kernel's rules against the kernel: random writes, and every value after each.

The model is ``tests/kernel/model.py``. A disk of the model begins as the real one is found; after
each write both have to have the same values, the same errno and the same tags.
"""

import os
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hbatune.settings.table import find_setting
from tests.kernel.model import TUNABLES, By, Disk, Kernel, TagSet
from tests.lab.guest.kit import scsi_disks, settle
from tests.lab.guest.values import BLOCK, cat, everything, nvme_queues, put_back, scheduler

KERNELS = ("6.12",)
TOPOLOGY = "probed"
WRITES = 300
_PATHS = {
    "queue/scheduler": "scheduler",
    "queue/nr_requests": "nr_requests",
    "queue/rq_affinity": "rq_affinity",
    "queue/nomerges": "nomerges",
    "queue/rotational": "rotational",
    "queue/add_random": "add_random",
    "queue/iostats": "iostats",
    "queue/max_sectors_kb": "max_sectors_kb",
    "queue/read_ahead_kb": "read_ahead_kb",
    "queue/wbt_lat_usec": "wbt_lat_usec",
    "device/queue_depth": "queue_depth",
}


def series() -> str:
    return ".".join(os.uname().release.split(".")[:2])


def observed(name: str, tags: TagSet, paths: tuple[Disk, ...] = ()) -> Disk:
    """Return a disk of the model that is as the real one is now."""
    text = cat(name, "queue/scheduler")
    offered = tuple(
        name_part.strip("[]") for name_part in text.split() if name_part.strip("[]") != "none"
    )
    device = BLOCK / name / "device"
    host = next(
        (parent for parent in device.resolve().parents if re.match(r"host\d", parent.name)), None
    )
    wbt = (BLOCK / name / "queue/wbt_lat_usec").exists()
    disk = Disk(
        name,
        tags,
        scheduler=scheduler(name),
        offered=offered,
        modules=("mq-deadline", "kyber", "bfq"),
        requests=int(cat(name, "queue/nr_requests")),
        can_queue=int((host / "scsi_host" / host.name / "can_queue").read_text()) if host else None,
        depth=int(cat(name, "device/queue_depth")) if host else 0,
        rotational=cat(name, "queue/rotational") == "1",
        max_hw_kb=most_sectors(name),
        sectors_kb=int(cat(name, "queue/max_sectors_kb")),
        read_ahead_kb=int(cat(name, "queue/read_ahead_kb")),
        optimal_kb=int(cat(name, "queue/optimal_io_size")) // 1024,
        rq_affinity=int(cat(name, "queue/rq_affinity")),
        nomerges=int(cat(name, "queue/nomerges")),
        add_random=int(cat(name, "queue/add_random")),
        iostats=int(cat(name, "queue/iostats")),
        wbt=wbt,
        paths=paths,
    )
    if wbt:
        disk.wbt_usec = int(cat(name, "queue/wbt_lat_usec"))
    for tunable in TUNABLES.get(disk.scheduler, {}):
        disk.tunables[tunable] = int(cat(name, f"queue/iosched/{tunable}"))
    return disk


def most_sectors(name: str) -> int:
    """Return the largest max_sectors_kb: the adapter's limit, or the disk's where that is less.

    The disk's is MAXIMUM TRANSFER LENGTH of page B0h, which no file of the queue shows
    (drivers/scsi/sd.c: sd_revalidate_disk).
    """
    adapter = int(cat(name, "queue/max_hw_sectors_kb"))
    page = BLOCK / name / "device/vpd_pgb0"
    blocks = int.from_bytes(page.read_bytes()[8:12], "big") if page.exists() else 0
    disk_kb = blocks * int(cat(name, "queue/logical_block_size")) // 1024
    return min(adapter, disk_kb) if disk_kb else adapter


def bitmap(name: str) -> int:
    """Return how many tags are in use (block/blk-mq-debugfs.c: hctx_tags_show)."""
    text = Path(f"/sys/kernel/debug/block/{name}/hctx0/tags").read_text()
    return sum(int(depth) for depth in re.findall(r"^depth=(\d+)", text, re.M))


def tag_set(name: str) -> TagSet:
    return TagSet(int(cat(name, "mq/0/nr_tags")), bitmap(name))


def store(name: str, path: str, text: str) -> int | None:
    """Write as an administrator does, and return None or the errno."""
    try:
        file = os.open(BLOCK / name / path, os.O_WRONLY)
    except OSError as error:
        return error.errno
    try:
        os.write(file, text.encode())
    except OSError as error:
        return error.errno
    finally:
        os.close(file)
    return None


def typed(texts: dict[str, str]) -> dict[str, object]:
    return {
        path: find_setting(_PATHS.get(path, path)).format.parse(text)
        for path, text in texts.items()
    }


def compare(kernel: Kernel, after: str) -> None:
    """Every value of every disk, and the tags, are the model's."""
    for disk in kernel.disks:
        wanted = typed(disk.texts(kernel.series))
        actual = typed({path: cat(disk.name, path) for path in wanted})
        differs = {
            path: (actual[path], wanted[path]) for path in wanted if actual[path] != wanted[path]
        }
        assert not differs, f"{disk.name} after {after}"
        assert bitmap(disk.name) == disk.tags.bitmap, f"tags of {disk.name} after {after}"


def values(disk: Disk, path: str, chance: random.Random) -> str:
    """Return something to write: sensible, at a limit, or wrong."""
    tags = disk.tags.depth
    numbers = {
        "queue/nr_requests": (0, 3, 4, 32, tags - 1, tags, tags + 1, 256, 1024, 2048, 2049),
        "queue/max_sectors_kb": (0, 3, 4, 64, 512, 1280, disk.max_hw_kb, disk.max_hw_kb + 4),
        "queue/read_ahead_kb": (0, 6, 16, 128, 130, 512, 4096),
        "queue/wbt_lat_usec": (-2, -1, 0, 2000, 75000, 5000),
        "queue/rq_affinity": (0, 1, 2, 3, 9),
        "queue/nomerges": (0, 1, 2, 3),
        "device/queue_depth": (0, 1, 7, 32, disk.can_queue or 1, (disk.can_queue or 1) + 1),
    }
    if path == "queue/scheduler":
        return chance.choice(("none", "none", "mq-deadline", "mq-deadline", "kyber", "bfq", "no"))
    if path == "device/queue_depth" and chance.random() < 0.2:
        return chance.choice(("010", "0x10", "12abc", "junk", "-1"))
    if chance.random() < 0.05:
        return chance.choice(("junk", "", "-1", "99999999999", "12abc"))
    return str(chance.choice(numbers.get(path, (0, 1, 2, 16, 100))))


def replay(kernel: Kernel, seed: int, count: int = WRITES) -> None:
    """Make random writes to the model and to the machine, and compare after each."""
    chance = random.Random(seed)
    compare(kernel, "nothing")
    for number in range(count):
        disk = chance.choice(kernel.disks)
        paths = list(disk.texts(kernel.series))
        if disk.scheduler == "bfq":  # its tunables depend on each other
            paths = [path for path in paths if "iosched" not in path]
        heavy = ["queue/scheduler", "queue/nr_requests", "queue/nr_requests"]
        path = chance.choice(paths + heavy)
        text = values(disk, path, chance)
        description = f"{number} {disk.name}/{path} = {text!r}"
        wanted = kernel.write(disk, path, text, By.ADMINISTRATOR)
        assert store(disk.name, path, text) == wanted, description
        compare(kernel, description)


def model(names: Sequence[str]) -> Kernel:
    """Return a kernel of the model with these disks, which are of one adapter."""
    kernel = Kernel(series())
    tags = tag_set(names[0])
    for name in names:
        kernel.add(observed(name, tags))
    return kernel


@pytest.mark.deadline(900)
@pytest.mark.parametrize("driver", ["megaraid_sas", "vmw_pvscsi", "mptsas", "ahci"])
def test_scsi_disk_matches_model(driver: str) -> None:
    before = everything()
    name = scsi_disks(driver)[0]
    try:
        replay(model([name]), seed=11, count=WRITES // 2)
    finally:
        enlarge(name)
        put_back(before)


@pytest.mark.deadline(900)
@pytest.mark.parametrize("shared", [False, True])
def test_shared_tag_luns_match_model(scsi_debug: Callable[..., list[str]], shared: bool) -> None:
    """Queues with tags of their own, and queues that share the host's."""
    of_queues: dict[str, object] = {"max_queue": 192, "submit_queues": 2}
    of_host: dict[str, object] = {"host_max_queue": 160, "submit_queues": 2}
    names = scsi_debug(max_luns=3, **(of_host if shared else of_queues))
    replay(model(names), seed=12)


@pytest.mark.deadline(900)
def test_nvme_namespace_matches_model() -> None:
    before = everything()
    name = nvme_queues()[0]
    kernel = model([name])
    controller = next(
        parent
        for parent in (BLOCK / name).resolve().parents
        if re.fullmatch(r"nvme\d+", parent.name)
    )
    try:
        for seed in range(4):
            replay(kernel, seed, count=WRITES // 8)
            (controller / "reset_controller").write_text("1")
            settle()
            kernel.reset(kernel.disks[0])
            compare(kernel, "a reset")
    finally:
        enlarge(name)
        put_back(before)


@pytest.mark.deadline(900)
def test_map_and_paths_match_model(joined: tuple[str, list[str]]) -> None:
    name, below = joined
    kernel = Kernel(series())
    paths = tuple(kernel.add(observed(path_name, tag_set(path_name))) for path_name in below)
    map = kernel.add(observed(name, tag_set(name), paths))
    for seed in range(3):
        replay(kernel, seed, count=WRITES // 6)
        for path in paths:  # whole again: multipathd reads through the map
            kernel.write(path, "queue/max_sectors_kb", str(path.max_hw_kb), By.ADMINISTRATOR)
            store(path.name, "queue/max_sectors_kb", str(path.max_hw_kb))
        reload(name)
        kernel.reload(map)
        compare(kernel, "a reload")


@pytest.mark.parametrize("raised", [False, True])
def test_lower_path_fails_large_reads(joined: tuple[str, list[str]], raised: bool) -> None:
    """Be it that the path was lowered, or that the map was raised."""
    name, below = joined
    kernel = Kernel(series())
    paths = tuple(kernel.add(observed(path_name, tag_set(path_name))) for path_name in below)
    map = kernel.add(observed(name, tag_set(name), paths))
    multipath_message(name, "fail_if_no_path")
    assert reads(name)
    original_kb = cat(name, "queue/max_sectors_kb")
    for disk in reversed(kernel.disks) if raised else paths:
        assert kernel.write(disk, "queue/max_sectors_kb", "64") is None
        assert store(disk.name, "queue/max_sectors_kb", "64") is None
    if raised:
        kernel.belows.clear()
        assert reads(name)
        assert kernel.write(map, "queue/max_sectors_kb", original_kb) is None
        assert store(name, "queue/max_sectors_kb", original_kb) is None
    assert {entry.path for entry in kernel.belows} == set(below)
    assert not reads(name)
    for path in below:
        store(path, "queue/max_sectors_kb", str(paths[0].default_kb))
        multipath_message(name, f"reinstate_path {cat(path, 'dev')}")
    settle()
    assert reads(name)


def enlarge(name: str) -> None:
    """Give the disk all of its tags back: the bitmap, too."""
    before = scheduler(name)
    store(name, "queue/scheduler", "none")
    most = int(cat(name, "mq/0/nr_tags"))
    store(name, "queue/nr_requests", str(most - 1))
    store(name, "queue/nr_requests", str(most))
    store(name, "queue/scheduler", before)


def reload(map: str) -> None:
    """Load the map's table again, as it is."""
    alias = cat(map, "dm/name")
    table = subprocess.run(["dmsetup", "table", alias], check=True, capture_output=True).stdout
    subprocess.run(["dmsetup", "reload", alias], input=table, check=True)
    subprocess.run(["dmsetup", "suspend", alias], check=True)
    subprocess.run(["dmsetup", "resume", alias], check=True)
    settle()


def multipath_message(map: str, text: str) -> None:
    alias = cat(map, "dm/name")
    subprocess.run(["dmsetup", "message", alias, "0", text], check=True, capture_output=True)


def reads(map: str) -> bool:
    """Whether a large read of the map succeeds."""
    words = [f"if=/dev/{map}", "of=/dev/null", "bs=512K", "count=2", "iflag=direct"]
    return subprocess.run(["dd", *words], check=False, capture_output=True).returncode == 0
