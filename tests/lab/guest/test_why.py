"""The cause of a latency, against planted causes on disks with a fixed service time."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.guest.command import Forked, hbatune
from tests.lab.guest.kit import set_service_time, wait_a_moment
from tests.lab.guest.values import cat, put

KERNELS = ("6.12",)
SERVICE_NS = 4_000_000
THREADS = 24
"""Each has one I/O at a time: a thread with more would wait for requests outside of the kernel."""
INSTANCE = Path("/sys/kernel/tracing/instances/hbatune-why")
CGROUPS = Path("/sys/fs/cgroup")
LOCK = Path("/run/hbatune/trace.lock")
READS = ("--readonly", "--rw=randread", "--direct=1", f"--numjobs={THREADS}")

Loader = Callable[..., list[str]]


@contextmanager
def loaded(disk: str, load: tuple[str, ...] = READS, cgroup: Path = CGROUPS) -> Iterator[None]:
    """Keep the disk busy during the body."""
    enter = ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(cgroup / "cgroup.procs"))
    shape = ("--bs=4k", "--ioengine=psync", "--thread", "--time_based", "--runtime=600")
    fio = ("fio", "--name=load", f"--filename=/dev/{disk}", *shape, *load)
    running = subprocess.Popen([*enter, *fio], stdout=subprocess.DEVNULL)
    try:
        while sum(map(int, cat(disk, "stat").split()[:5:4])) < 500:  # reads and writes
            assert running.poll() is None
            wait_a_moment()
        yield
    finally:
        running.terminate()
        running.wait()


def ask(disk: str) -> dict[str, Any]:
    done = hbatune("why", disk, "--json", "--seconds", "3")
    assert done.code == 0, done.out + done.err
    assert not INSTANCE.exists()
    document: dict[str, Any] = done.json
    assert 0 < document["traced"] <= 1
    return document


def add_luns(scsi_debug: Loader, **options: object) -> list[str]:
    disks = scsi_debug(delay=0, ndelay=SERVICE_NS, dev_size_mb=64, **options)
    for disk in disks:
        put(disk, "queue/scheduler", "mq-deadline")
        put(disk, "device/queue_depth", cat(disk, "mq/0/nr_tags"))
    return disks


@pytest.fixture
def lun(scsi_debug: Loader) -> str:
    [disk] = add_luns(scsi_debug, max_luns=1, max_queue=64)
    return disk


@pytest.mark.parametrize("scheduler", ["mq-deadline", "none"])
def test_low_queue_depth_is_found(lun: str, scheduler: str) -> None:
    put(lun, "queue/scheduler", scheduler)
    put(lun, "device/queue_depth", "4")
    with loaded(lun):
        answer = ask(lun)
    assert (answer["lever"], answer["current"]) == ("queue_depth", 4)
    assert answer["gain"] > 0.5


def test_few_requests_are_found(scsi_debug: Loader) -> None:
    """I/O of a partition counts for its disk."""
    [disk] = add_luns(scsi_debug, max_luns=1, max_queue=64, num_parts=1)
    put(disk, "queue/nr_requests", "8")
    with loaded(disk):
        answer = ask(f"/dev/{disk}1")
    assert (answer["lever"], answer["current"]) == ("nr_requests", 8)
    assert answer["gain"] > 0.5


def test_slow_drive_has_no_lever(lun: str) -> None:
    with loaded(lun):
        answer = ask(lun)
    assert (answer["lever"], answer["cause"]) == ("none", "drive")
    assert answer["stages"][2]["p99_share"] > 0.8


def test_limit_of_cgroup_is_found(lun: str) -> None:
    capped = CGROUPS / "capped"
    capped.mkdir()
    (CGROUPS / "cgroup.subtree_control").write_text("+io")
    (capped / "io.max").write_text(f"{cat(lun, 'dev')} riops=500")
    try:
        with loaded(lun, cgroup=capped):
            answer = ask(lun)
    finally:
        capped.rmdir()
    assert (answer["lever"], answer["cause"], answer["culprit"]) == ("none", "io.max", "/capped")


def test_throttled_writeback_is_found(lun: str) -> None:
    put(lun, "queue/wbt_lat_usec", "2000")
    reads = ("--readonly", "--rw=randread", "--direct=1", "--numjobs=2")
    writes = ("--rw=randwrite", "--fdatasync=64", "--numjobs=8")
    with loaded(lun, reads), loaded(lun, writes):
        answer = ask(lun)
    assert (answer["lever"], answer["current"]) == ("wbt_lat_usec", 2000)


def test_sibling_with_same_tags_is_named(scsi_debug: Loader) -> None:
    disk, sibling = add_luns(scsi_debug, max_luns=2, max_queue=16)
    with loaded(disk), loaded(sibling):
        answer = ask(disk)
    assert (answer["cause"], answer["culprit"]) == ("shared-tags", sibling)


def test_paths_limit_their_map(joined: tuple[str, list[str]]) -> None:
    name, paths = joined
    set_service_time("ndelay", SERVICE_NS)
    for path in paths:
        put(path, "device/queue_depth", "4")
    # On a disk of 8 MiB, threads that read at random would often read the same sector. Its events
    # do not tell the requests apart.
    apart = ("--readonly", "--rw=read", "--offset_increment=300k", "--size=300k", *READS[2:])
    with loaded(name, apart):
        answer = ask(paths[0])
    assert (answer["target"], answer["lever"]) == (name, "queue_depth")


def test_idle_disk_has_no_answer(lun: str) -> None:
    """The trace of a killed run is removed, and a second run at the same time is refused."""
    INSTANCE.mkdir()
    running = Forked("why", lun, "--seconds", "2")
    while not LOCK.exists():
        wait_a_moment()
    second = hbatune("why", lun)
    assert second.code == 3
    assert "is tracing a disk" in second.err
    first = running.wait()
    assert first.code == 1, first.err
    assert first.out.startswith("The load is too small to answer: ")
    assert not INSTANCE.exists()
    assert not LOCK.exists()
