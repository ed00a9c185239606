"""Causes of latency, planted on disks with a fixed service time: what `why` has to find."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import scsi_disks, set_service_time, wait_a_moment
from tests.lab.guest.values import cat, put

SERVICE_NS = 4_000_000
THREADS = 24
"""Each has one I/O at a time: a thread with more would wait for requests outside of the kernel."""
INSTANCE = Path("/sys/kernel/tracing/instances/hbatune-why")
CGROUPS = Path("/sys/fs/cgroup")
TABLES, RULES = range(1, 4), range(4000)
"""A table of cls_u32 has at most 4,095 rules."""
PACKETS = 36
"""Of fewer than 64, the receiver handles all without a pause (net/core/dev.c: process_backlog)."""
RULE = "filter add dev lo ingress protocol ip prio {} u32 match u32 {} 0xffffffff at 12 action pass"
SENDER = f"""
import os, socket, time
os.sched_setaffinity(0, {{0}})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
receiver = socket.socket(type=socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
sender = socket.socket(type=socket.SOCK_DGRAM)
sender.connect(receiver.getsockname())
while True:
    for _ in range({PACKETS}):
        sender.send(b"x")
    for _ in range({PACKETS}):
        receiver.recv(1)
    time.sleep(0.01)
"""
LOOPBACK_CPUS = Path("/sys/class/net/lo/queues/rx-0/rps_cpus")
READS = ("--readonly", "--rw=randread", "--direct=1", f"--numjobs={THREADS}")

Loader = Callable[..., list[str]]
Answer = dict[str, object]
"""Fields of the document that `why` has to print."""
Plant = Callable[[Loader], AbstractContextManager[tuple[str, Answer]]]


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
    """Return the document of `why` after two seconds, with or without an answer."""
    done = hbatune("why", disk, "--json", "--seconds", "2")
    assert done.code in (0, 1), done.out + done.err
    assert not INSTANCE.exists()
    document: dict[str, Any] = done.json
    assert 0 < document["traced"] <= 1
    return document


def add_luns(scsi_debug: Loader, **options: object) -> list[str]:
    """Make LUNs that only their tags limit."""
    disks = scsi_debug(delay=0, ndelay=SERVICE_NS, dev_size_mb=64, **options)
    for disk in disks:
        put(disk, "queue/scheduler", "mq-deadline")
        put(disk, "device/queue_depth", cat(disk, "mq/0/nr_tags"))
    return disks


def _add_lun(scsi_debug: Loader, **values: str) -> str:
    """Make a LUN with these values, by name with ``__`` for a slash."""
    [disk] = add_luns(scsi_debug, max_luns=1, max_queue=64)
    for name, value in values.items():
        put(disk, name.replace("__", "/"), value)
    return disk


@contextmanager
def plant_low_depth(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """Few commands in the driver, with a scheduler."""
    disk = _add_lun(scsi_debug, device__queue_depth="4")
    with loaded(disk):
        yield disk, {"lever": "queue_depth", "current": 4}


@contextmanager
def plant_low_depth_without_scheduler(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """Few commands in the driver, without a scheduler."""
    disk = _add_lun(scsi_debug, queue__scheduler="none", device__queue_depth="4")
    with loaded(disk):
        yield disk, {"lever": "queue_depth", "current": 4}


@contextmanager
def plant_few_requests(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """Few requests; I/O of a partition counts for its disk."""
    [disk] = add_luns(scsi_debug, max_luns=1, max_queue=64, num_parts=1)
    put(disk, "queue/nr_requests", "8")
    with loaded(disk):
        yield f"/dev/{disk}1", {"lever": "nr_requests", "current": 8}


@contextmanager
def plant_low_depth_and_few_requests(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """Both limits are reached, but only more depth helps."""
    disk = _add_lun(scsi_debug, device__queue_depth="4", queue__nr_requests="8")
    with loaded(disk):
        yield disk, {"lever": "queue_depth", "current": 4}


@contextmanager
def plant_holding_scheduler(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """A scheduler that issues one command at a time (Documentation/block/bfq-iosched.rst)."""
    disk = _add_lun(scsi_debug, queue__scheduler="bfq")
    put(disk, "queue/iosched/strict_guarantees", "1")
    with loaded(disk):
        yield disk, {"lever": "scheduler", "current": "bfq"}


@contextmanager
def plant_slow_drive(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """Only the drive is slow, so much that an emulated kernel's own delays do not count."""
    disk = _add_lun(scsi_debug)
    set_service_time("ndelay", 4 * SERVICE_NS)
    with loaded(disk):
        yield disk, {"lever": "none", "cause": "drive"}


@contextmanager
def plant_limited_cgroup(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """A cgroup at its limit in io.max."""
    disk, capped = _add_lun(scsi_debug), CGROUPS / "capped"
    capped.mkdir()
    (CGROUPS / "cgroup.subtree_control").write_text("+io")
    (capped / "io.max").write_text(f"{cat(disk, 'dev')} riops=500")
    try:
        with loaded(disk, cgroup=capped):
            yield disk, {"lever": "none", "cause": "io.max", "culprit": "/capped"}
    finally:
        capped.rmdir()


@contextmanager
def plant_throttled_writeback(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """Writes that writeback throttling delays. Reads stay fast."""
    disk = _add_lun(scsi_debug, queue__wbt_lat_usec="2000")
    reads = ("--readonly", "--rw=randread", "--direct=1", "--numjobs=2")
    writes = ("--rw=randwrite", "--fdatasync=64", "--numjobs=8")
    with loaded(disk, reads), loaded(disk, writes):
        yield disk, {"lever": "wbt_lat_usec", "current": 2000}


@contextmanager
def plant_busy_sibling(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """Another LUN that uses half of the tags."""
    disk, sibling = add_luns(scsi_debug, max_luns=2, max_queue=16)
    with loaded(disk), loaded(sibling):
        yield disk, {"lever": "none", "cause": "shared-tags", "culprit": sibling}


@contextmanager
def busy_receiver(cpu: int) -> Iterator[None]:
    """Have a CPU receive packets, each through many rules. Its other softirqs wait.

    Another CPU sends them over the loopback (Documentation/networking/scaling.rst: RPS), the next
    ones shortly after the last have arrived, and before it runs other tasks.
    """
    rules = [RULE.format(table, number) for table in TABLES for number in RULES]
    LOOPBACK_CPUS.write_text(f"{1 << cpu:x}")
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "clsact"], check=True)
    try:
        subprocess.run(["tc", "-batch", "-"], input="\n".join(rules), text=True, check=True)
        with subprocess.Popen([sys.executable, "-c", SENDER]) as sender:
            try:
                yield
            finally:
                sender.kill()
    finally:
        subprocess.run(["tc", "qdisc", "delete", "dev", "lo", "clsact"], check=True)
        LOOPBACK_CPUS.write_text("0")


@contextmanager
def plant_busy_interrupt(scsi_debug: Loader) -> Iterator[tuple[str, Answer]]:
    """An interrupt on a CPU that receives packets.

    The disk has no fixed service time. Few threads load it, so its own queue stays short.
    """
    [disk] = scsi_disks("vmw_pvscsi")
    [irq] = [path.parent for path in Path("/proc/irq").glob("*/vmw_pvscsi")]
    affinity = irq / "smp_affinity_list"
    original = affinity.read_text()
    affinity.write_text("1")
    try:
        with busy_receiver(1), loaded(disk, (*READS, "--numjobs=8", "--cpus_allowed=0")):
            culprit = f"irq{irq.name}"
            yield disk, {"lever": "irq_affinity", "culprit": culprit, "current": "1"}
    finally:
        affinity.write_text(original)


PLANTS: tuple[Plant, ...] = (
    plant_low_depth,
    plant_low_depth_without_scheduler,
    plant_few_requests,
    plant_low_depth_and_few_requests,
    plant_holding_scheduler,
    plant_slow_drive,
    plant_limited_cgroup,
    plant_throttled_writeback,
    plant_busy_sibling,
    plant_busy_interrupt,
)
