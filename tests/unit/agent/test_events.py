"""Tests of hbatune/agent/events.py."""

import pytest

from hbatune.agent.events import DeviceEvent, interpret_event
from hbatune.agent.orders import Order, PassReason
from hbatune.settings.table import Cause

SCSI = "/devices/pci0000:00/0000:00:05.0/host2/target2:0:0/2:0:0:0/block/sda"


HEAD = "/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"


LOOP, MAP = "/devices/virtual/block/loop0", "/devices/virtual/block/dm-0"


ACTIVATED = {"DEVTYPE": "disk", "DEVPATH": MAP, "DM_ACTIVATION": "1"}


UNMARKED, LOOK, RESET, BOUND, TABLE, HOST_RESET = (
    DeviceEvent("x", unmarked=True),
    DeviceEvent("x"),
    DeviceEvent("x", Cause.CONNECTED),
    DeviceEvent("x", Cause.BOUND),
    DeviceEvent("x", Cause.LOADED),
    DeviceEvent("host2", Cause.RESET),
)


@pytest.mark.parametrize(
    ("action", "subsystem", "properties", "meant"),
    [
        ("add", "block", {"DEVTYPE": "disk"}, UNMARKED),
        ("add", "block", {"DEVTYPE": "disk", "HBATUNE_SEEN": "7"}, LOOK),
        ("add", "block", {"DEVTYPE": "partition"}, None),
        ("change", "block", {"DEVTYPE": "disk"}, None),
        ("remove", "block", {"DEVTYPE": "disk"}, None),
        ("add", "block", {"DEVTYPE": "disk", "DEVPATH": SCSI}, UNMARKED),
        ("add", "block", {"DEVTYPE": "disk", "DEVPATH": HEAD}, UNMARKED),
        ("add", "block", {"DEVTYPE": "disk", "DEVPATH": LOOP}, None),
        ("add", "block", {"DEVTYPE": "disk", "DEVPATH": MAP}, None),
        ("add", "block", {**ACTIVATED, "DM_UUID": "mpath-36000"}, UNMARKED),
        ("change", "block", {**ACTIVATED, "DM_UUID": "mpath-36000"}, TABLE),
        (
            "change",
            "block",
            {**ACTIVATED, "DM_UUID": "mpath-36000", "DM_ACTION": "PATH_REINSTATED"},
            LOOK,
        ),
        ("change", "block", {**ACTIVATED, "DM_UUID": "LVM-0"}, None),
        ("change", "block", {**ACTIVATED, "DM_UUID": "mpath-36000", "DM_ACTIVATION": "0"}, None),
        ("change", "nvme", {"NVME_EVENT": "connected"}, RESET),
        ("change", "nvme", {"NVME_EVENT": "rediscover"}, None),
        ("add", "nvme", {}, None),
        ("bind", "pci", {"PCI_CLASS": "10802"}, BOUND),
        ("bind", "pci", {"PCI_CLASS": "C0400"}, BOUND),
        ("bind", "pci", {"PCI_CLASS": "20000"}, None),
        ("bind", "pci", {"PCI_CLASS": "nonsense"}, None),
        ("bind", "pci", {}, None),
        ("unbind", "pci", {"PCI_CLASS": "10802"}, None),
        ("change", "scsi", {"SDEV_UA": "POWER_ON_RESET_OCCURRED"}, HOST_RESET),
        ("change", "scsi", {"SDEV_UA": "INQUIRY_DATA_HAS_CHANGED"}, None),
        ("change", "scsi", {}, None),
        ("add", "scsi", {}, None),
    ],
)
def test_events_name_target_and_cause(
    action: str, subsystem: str, properties: dict[str, str], meant: DeviceEvent | None
) -> None:
    name = "2:0:5:0" if subsystem == "scsi" else "x"
    assert interpret_event(action, subsystem, name, properties) == meant


def test_one_event_marks_disk() -> None:
    events = (
        *(DeviceEvent("sda", unmarked=True), DeviceEvent("sdb", unmarked=True)),
        *(DeviceEvent("sda"), DeviceEvent("sdc")),
    )
    assert Order(PassReason.EVENT, events).unmarked == {"sdb"}
