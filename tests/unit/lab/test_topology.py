"""The arguments of QEMU for the adapters of each machine: every drive is there once."""

import re
from pathlib import Path

import pytest

from tests.lab.topology import Topology, adapters


@pytest.mark.parametrize(
    ("topology", "drives"),
    [
        (Topology.MIXED, 11),
        (Topology.PROBED, 11),
        (Topology.TRI_MODE, 7),
        (Topology.MANY_DRIVES, 224),
        (Topology.POWER, 8),
    ],
)
def test_every_disk_has_separate_file(topology: Topology, drives: int) -> None:
    arguments = list(adapters(topology, Path("disk.img")))
    drive_ids = [
        re.search(r"\bid=(\w+)", argument)[1]  # type: ignore[index]
        for argument in arguments
        if argument.startswith("if=none")
    ]
    used = [match[1] for argument in arguments if (match := re.search(r"\bdrive=(\w+)", argument))]
    assert len(drive_ids) == drives
    assert sorted(drive_ids) == sorted(set(used))
    assert len(used) == len(set(used))


@pytest.mark.parametrize("topology", [Topology.TRI_MODE, Topology.MANY_DRIVES])
def test_9600_drives_have_unique_places(topology: Topology) -> None:
    words = " ".join(adapters(topology, Path("disk.img")))
    places = re.findall(r"scsi-id=(\d+)", words)
    assert len(places) == len(set(places))
    names = re.findall(r"wwn=(\w+)", words)
    assert len(names) == len(set(names)) == len(places) - 1, "the volume has none"
    on_phys = re.findall(r"scsi-id=(\d+),drive=\w+,vendor=(?:SEAGATE|ATA)", words)
    assert on_phys
    assert max(map(int, on_phys)) < 24
