"""The time in which a name is resolved among 4,096 LUNs with as many maps, without udev's links."""

import json
import os
import platform
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.bench.guest.comparison import figure
from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import can_enter, run
from tests.hosts.tree import Described, Disk, Mapped, build
from tools.benchmarks_page import NAMES

LUNS = 4096
MAX_SECONDS = 0.05
DISKS = {
    **{"sdc": "sdc", "mpath2000": "dm-2000", "vg0/pg-data": "dm-7", "/srv": "dm-7", "none": None},
    **{"host0": None, "tank": "dm-9"},
}
"""By name, the disk or the map."""

_RESOLVE = """
import json
import resource
import sys
import time
from pathlib import Path
from hbatune.facts import devices
devices._POOLS = "/run/kstat"  # this kernel may not have the module
Path("/run/kstat/tank").mkdir(parents=True)
entries = Path("/run/udev/data")
entries.mkdir(parents=True)
others = "".join(f"E:ID_OTHER_{number}=a0b1c2d3e4f5\\n" for number in range(60))
for directory in Path("/sys/class/block").iterdir():
    kind = "zfs_member" if directory.name == "dm-9" else "mpath_member"
    text = f"I:1000000\\n{others}E:ID_FS_TYPE={kind}\\nE:ID_FS_LABEL=tank\\nV:1\\n"
    (entries / ("b" + (directory / "dev").read_text().strip())).write_text(text)
def read_cpu_time():
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
answers = []
for name in sys.argv[1:]:
    cpu_times, wall_times = [], []
    for _ in range(9):
        began, used = time.perf_counter(), read_cpu_time()
        stack = devices.find_named_stack(name)
        cpu_times.append(read_cpu_time() - used)
        wall_times.append(time.perf_counter() - began)
    answers.append((stack.disks[0] if stack else None, cpu_times, wall_times))
print(json.dumps(answers))
"""
"""The CPU time includes the worker that looks up a file."""


def build_many_maps() -> Described:
    """Build a machine with a map on each LUN, a volume on one of the maps, and ZFS."""
    machine = build_many_luns(LUNS)
    hosts = [host for function in machine.functions for host in function.hosts]
    names = [lun.disk.name for host in hosts for lun in host.luns]
    mapped = []
    for number, name in enumerate(names):
        disk = Disk(f"dm-{number}")
        mapped.append(Mapped(disk, f"mpath-{number}", (name,), name=f"mpath{number}"))
    volume = Disk(f"dm-{LUNS}", tags=None)
    mapped.append(Mapped(volume, "LVM-a", ("dm-7",), name="vg0-pg--data"))
    mounts = ((volume.name, "/srv"),)
    return replace(machine, mapped=tuple(mapped), mounts=mounts, modules={"zfs": {}})


@pytest.mark.skipif(not can_enter(), reason="needs root and mount namespaces")
def test_name_among_thousands_is_instant() -> None:
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(build_many_maps(), Path(folder), linked=True)
        answers = json.loads(run(Path(folder), [sys.executable, "-c", _RESOLVE, *DISKS]))
    seconds = {}
    for name, (_, *times) in zip(DISKS, answers, strict=True):
        cpu, wall = (figure([round(sample, 4) for sample in samples]) for samples in times)
        seconds[name] = {"cpu": cpu, "wall": wall}
    results = {
        "what": f"seconds to resolve a name among {LUNS} LUNs and maps, with quartiles",
        "date": datetime.now(UTC).date().isoformat(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": load,
        "seconds": seconds,
    }
    text = msgspec.json.format(msgspec.json.encode(results), indent=1)
    NAMES.write_bytes(text + b"\n")
    assert {name: answer[0] for name, answer in zip(DISKS, answers, strict=True)} == DISKS
    for name, times in seconds.items():
        assert times["cpu"].median <= MAX_SECONDS, name
