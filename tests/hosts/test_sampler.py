"""Samples of described machines, read from sysfs and /proc for real."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from hbatune.facts.health import LOST_IO
from hbatune.facts.sampler import CpuSample, LinkSample, Sample
from hbatune.watch.readings import Subjects
from tests.hosts import hbas, virtual
from tests.hosts.ailing import ailing
from tests.hosts.namespace import run
from tests.hosts.tree import Described, Odd

Built = Callable[[Described], Path]

ADAPTER = "0000:01:00.0"
# 6.1 has 20 columns, kernels before 5.5 had 18; of a disk that nobody knows there is a line, too.
DISKSTATS = """\
   8       0 sda 1500 20 12000 3000 500 3 4000 1500 7 2000 4507 1 0 8 2 6 4
   8      16 sdb 10 0 80 5 0 0 0 0 0 5 5 0 0 0 0
   8      17 sdb1 10 0 80 5 0 0 0 0 0 5 5 0 0 0 0
   7       0 loop0 99 0 80 5 0 0 0 0 0 5 5 0 0 0 0
   8      32 sdc what is this
   8      48 sdd 1 2 3

"""
STAT = """\
cpu  1000 0 500 8000 500 20 30 0 0 0
cpu0 600 10 250 4000 250 10 15 5 100 0
cpu1 400 0 250 4000 250 10 15 0 0 0
intr 12345 0 1
ctxt 99
"""
_SAMPLE = """
import sys
import msgspec
from hbatune.facts.machine import gather_machine
from hbatune.facts.sampler import Sampler, find_sampled_places
from hbatune.watch.subjects import find_subjects

machine = gather_machine(("device/queue_depth",))
sampler = Sampler(find_sampled_places(machine), every=60)
samples = [sampler.sample(now, 1e9 + now) for now in (100.0, 110.0)]
ids = {each.id: each.target for each in machine.endpoints}
sys.stdout.buffer.write(msgspec.json.encode((samples, ids, find_subjects(machine))))
"""


def sampled(
    built: Built, machine: Described, diskstats: str = DISKSTATS
) -> tuple[Sample, dict[str, str], Subjects]:
    """Return the second sample of a machine, its endpoints' names by id, and what is watched."""
    root = built(machine)
    (root / "proc/diskstats").write_text(diskstats)
    (root / "proc/stat").write_text(STAT)
    printed = run(root, [sys.executable, "-c", _SAMPLE])
    kind = tuple[list[Sample], dict[str, str], Subjects]
    samples, ids, subjects = msgspec.json.decode(printed, type=kind)
    assert samples[0].disks == samples[1].disks
    return samples[1], ids, subjects


def test_ailing_machine_is_sampled(built: Built) -> None:
    sample, ids, subjects = sampled(built, ailing())
    disks = {ids[id]: disk for id, disk in sample.disks.items()}
    assert set(disks) == {"sda", "sdb"}  # the other lines make no sense, or no endpoint
    first = disks["sda"]
    assert (first.device, first.reads, first.read_bytes, first.read_ms) == (
        *("8:0", 1500, 12000 * 512, 3000),
    )
    assert (first.writes, first.written_bytes, first.write_ms) == (500, 4000 * 512, 1500)
    assert (first.in_flight, first.busy_ms) == (7, 2000)
    assert first.depth == next(disk.depth for disk in subjects.disks if disk.target == "sda")
    counters = {ids.get(target, target): counts for target, counts in sample.counters.items()}
    assert counters["sda"] == {"errors": 64, "timeouts": 16}  # hexadecimal in the file
    # 5 at the card and 2 at the port above it; the root port's totals are those of others, too.
    assert counters[ADAPTER] == {"correctable": 7, "nonfatal": 1, "fatal": 0}
    assert sample.links == {ADAPTER: LinkSample(2.5, 8)}


def test_busy_time_excludes_iowait(built: Built) -> None:
    sample, _, subjects = sampled(built, ailing())
    assert sample.cpus == {0: CpuSample(5140, 890), 1: CpuSample(4925, 675)}
    assert subjects.servers[0].cpus == (0,)


def test_hung_queue_blocks_no_sample(built: Built) -> None:
    """queue/* of a frozen disk never answers; nothing of it is opened."""
    function = hbas.mpt3sas().functions[0]
    lun = function.hosts[0].luns[0]
    hung = replace(lun, disk=replace(lun.disk, queue={"scheduler": Odd.HANGS}))
    host = replace(function.hosts[0], luns=(hung, *function.hosts[0].luns[1:]))
    machine = Described((replace(function, hosts=(host,)),))
    sample, ids, _ = sampled(built, machine)
    assert "sda" in {ids[id] for id in sample.disks}


def test_unreadable_values_are_omitted(built: Built) -> None:
    function = hbas.mpt3sas().functions[0]
    lun = function.hosts[0].luns[0]
    broken = replace(lun, device={"ioerr_cnt": Odd.EIO, "iotmo_cnt": "many"})
    host = replace(function.hosts[0], luns=(broken,))
    machine = Described((replace(function, hosts=(host,), link=None),))
    sample, ids, _ = sampled(built, machine, diskstats="")
    assert (sample.disks, sample.links) == ({}, {})
    assert not {ids.get(target) for target in sample.counters} & {"sda"}


def test_nvme_counters_are_sampled(built: Built) -> None:
    """A controller's resets are not among them: the daemon scans the disks after a reset."""
    described = virtual.nvme()
    controller = described.functions[0].controller
    assert controller is not None
    [namespace] = controller.namespaces
    block = {
        "diag/command_retries_count": "12",
        "diag/command_error_count": "10",
        "diag/multipath_failover_count": "many",
        f"diag/{LOST_IO}": "0",
    }
    counting = replace(
        controller,
        namespaces=(replace(namespace, disk=replace(namespace.disk, block=block)),),
        attributes={"diag/reset_count": "2"},
    )
    functions = (replace(described.functions[0], controller=counting),)
    sample, ids, _ = sampled(built, replace(described, functions=functions))
    counters = {ids.get(target, target): counts for target, counts in sample.counters.items()}
    assert counters["nvme0n1"] == {"command_retries_count": 12, "errors": 10, LOST_IO: 0}
