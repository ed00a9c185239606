"""The time in which a name is resolved among 4,096 LUNs with as many maps, without udev's links."""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hosts.machines import build_many_luns
from tests.hosts.namespace import can_enter, run
from tests.hosts.tree import Described, Disk, Mapped, build

LUNS = 4096
MAX_SECONDS = 0.05
DISKS = {"sdc": "sdc", "mpath2000": "dm-2000", "vg0/pg-data": "dm-7", "/srv": "dm-7", "none": None}
"""By name, the disk or the map."""

_RESOLVE = """
import json
import sys
import time
from statistics import median
from hbatune.facts.devices import find_named_stack
answers = []
for name in sys.argv[1:]:
    samples = []
    for _ in range(9):
        began = time.process_time()
        stack = find_named_stack(name)
        samples.append(time.process_time() - began)
    answers.append((median(samples), stack.disks[0] if stack else None))
print(json.dumps(answers))
"""


def build_many_maps() -> Described:
    """Build a machine with a map on each LUN, and a volume on one of the maps."""
    machine = build_many_luns(LUNS)
    hosts = [host for function in machine.functions for host in function.hosts]
    names = [lun.disk.name for host in hosts for lun in host.luns]
    mapped = []
    for number, name in enumerate(names):
        disk = Disk(f"dm-{number}")
        mapped.append(Mapped(disk, f"mpath-{number}", (name,), name=f"mpath{number}"))
    volume = Disk(f"dm-{LUNS}", tags=None)
    mapped.append(Mapped(volume, "LVM-a", ("dm-7",), name="vg0-pg--data"))
    return replace(machine, mapped=tuple(mapped), mounts=((volume.name, "/srv"),))


@pytest.mark.skipif(not can_enter(), reason="needs root and mount namespaces")
def test_name_among_thousands_is_instant() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        build(build_many_maps(), Path(folder), linked=True)
        answers = json.loads(run(Path(folder), [sys.executable, "-c", _RESOLVE, *DISKS]))
    for (name, disk), (seconds, answer) in zip(DISKS.items(), answers, strict=True):
        assert answer == disk
        assert seconds <= MAX_SECONDS, name
