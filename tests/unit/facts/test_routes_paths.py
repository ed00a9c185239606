"""What a sysfs path says, and the ids that are made of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts.routes import TRANSPORTS, is_head, is_virtual, parse_branch, parse_place

PCI = "/sys/devices/pci0000:00/0000:00:03.0/0000:03:00.0"

# path: adapter, transport
PATHS = {
    f"{PCI}/host11/port-11:0/expander-11:0/port-11:0:0/end_device-11:0:0/target11:0:7/11:0:7:0"
    "/block/sdv": ("0000:03:00.0", "sas"),
    f"{PCI}/host0/target0:2:0/0:2:0:0/block/sda": ("0000:03:00.0", None),
    "/sys/devices/pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda": (
        "0000:00:1f.2",
        "ata",
    ),
    f"{PCI}/host3/rport-3:0-1/target3:0:0/3:0:0:1/block/sde": ("0000:03:00.0", "fc"),
    "/sys/devices/platform/host6/session1/target6:0:0/6:0:0:1/block/sdd": ("host6", "iscsi"),
    "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/host4/target4:0:0/4:0:0:0/block/sdb": (
        "host4",
        "usb",
    ),
    "/sys/devices/pci0000:00/0000:00:05.0/virtio2/host2/target2:0:0/2:0:0:0/block/sdc": (
        "0000:00:05.0",
        "virtio",
    ),
    "/sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda": ("0000:00:02.0", "virtio"),
    "/sys/devices/platform/a0.mmio/virtio0/block/vda": ("virtio0", "virtio"),
    "/sys/devices/pseudo_0/adapter0/host5/target5:0:0/5:0:0:0/block/sdf": ("host5", None),
    f"{PCI}/nvme/nvme0/nvme0n1": ("0000:03:00.0", "nvme"),
    f"{PCI}/nvme/nvme2/nvme0c2n1": ("0000:03:00.0", "nvme"),
    "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:01.0/10000:01:00.0/nvme/nvme3"
    "/nvme3n1": ("10000:01:00.0", "nvme"),
    "/sys/devices/virtual/nvme-fabrics/ctl/nvme1/nvme1c1n1": ("nvme1", "nvme"),
    "/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1": (None, "nvme"),
    "/sys/devices/platform/mmc0/mmc0:1234/block/mmcblk0": (None, None),
}


@pytest.mark.parametrize("path", PATHS)
def test_path_determines_adapter(path: str) -> None:
    place = parse_place(path)
    assert (place.branch.adapter, place.branch.transport) == PATHS[path]


def test_scsi_address_parts() -> None:
    place = parse_place(f"{PCI}/host0/target0:2:7/0:2:7:1/block/sda")
    assert (place.address, place.channel, place.target) == ("0:2:7:1", 2, "target0:2:7")
    assert place.branch.pci == PCI
    assert place.branch.host == f"{PCI}/host0"


def test_head_and_virtual_paths() -> None:
    assert is_head("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1")
    assert not is_head(f"{PCI}/nvme/nvme0/nvme0n1")
    assert is_virtual("/sys/devices/virtual/block/dm-0")
    assert not is_virtual("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1")


FOLDERS = st.lists(
    st.sampled_from(
        [
            "sys",
            "devices",
            "virtual",
            "pci0000:00",
            "0000:01:00.0",
            "10000:e1:00.0",
            "0000:01:00.8",
            "host0",
            "host12",
            "hosts",
            "0:0:0:1",
            "target0:0:0",
            "target",
            "block",
            "sda",
            "nvme",
            "nvme0",
            "nvme12",
            "nvme0n1",
            "nvme-fabrics",
            "ctl",
            "nvme-subsystem",
            "nvme-subsys0",
            "nvme-subsys",
            "virtio0",
            "virtio",
            "vbd-768",
            "vbd-",
            "end_device-0:0",
            "end_device-0:0:1",
            "end_device",
            "session1",
            "session",
            "usb1",
            "usb",
            "usb1-2",
            "fw0",
            "fw0.0",
            "ata1",
            "ata1.0",
            "ata",
            "rport-0:0-3",
            "rport-",
            "infiniband_srp",
            "port-0:0",
            "1-2:1.0",
        ]
    ),
    min_size=1,
    max_size=9,
)
PATTERNS = {
    "pci": r".*/[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?=/|$)",
    "host": r".*/host\d+(?=/|$)",
    "controller": r".*/(?:nvme|nvme-fabrics/ctl)/nvme\d+(?=/|$)",
    "sas_port": r".*/end_device-[\d:]+(?=/|$)",
    "session": r".*/session\d+(?=/|$)",
}
"""What a branch has of a path, as regular expressions, which take long to compile."""


@given(FOLDERS)
def test_branch_matches_regex_model(folders: list[str]) -> None:
    path = "/" + "/".join(folders)
    branch = parse_branch(path)
    on = (
        transport.name
        for transport in TRANSPORTS
        for folder in transport.folders
        if re.search(f"/{re.escape(folder).replace(chr(92) + '#', '[0-9][0-9:-]*')}(?:/|$)", path)
    )
    assert branch.transport == next(on, None)
    for field, pattern in PATTERNS.items():
        wanted = re.match(pattern, path)
        if field != "pci" or branch.transport != "usb":
            value = getattr(branch, field)
            directory = value and value.partition("/sas_device/")[0]
            assert directory == (wanted and wanted[0]), field
    assert is_head(path) == bool(re.search(r"/virtual/nvme-subsystem/[^/]+/[^/]+$", path))


@given(FOLDERS)
def test_address_matches_regex_model(folders: list[str]) -> None:
    path = "/" + "/".join(folders)
    wanted = re.match(r".*/target[\d:]+/(\d+:\d+:\d+:\d+)/block/[^/]+$", path)
    assert parse_place(path).address == (wanted and wanted[1])
