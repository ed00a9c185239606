"""A small machine of modelled disks, mirrored into files.

Two SAS disks that share one adapter's tags, two paths of one LUN over an adapter each under a
multipath map, and an NVMe namespace. The files lie below any folder, as they would below /sys.
"""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from tests.kernel.model import Change, Disk, Kernel, TagSet

_READ_ONLY = 0o444
_WRITABLE = 0o644


@dataclass(frozen=True)
class Slot:
    """A place for a disk in the machine, and its drive: another ``wwid`` is another drive.

    ``host`` is the number of its SCSI host, None for NVMe.
    """

    name: str
    pci: str
    driver: str
    host: int | None
    wwid: str
    tags: str
    rotational: bool = False
    map: str | None = None


SLOTS = (
    Slot("sda", "0000:01:00.0", "megaraid_sas", 0, "naa.5000c500000000a", "raid"),
    Slot("sdb", "0000:01:00.0", "megaraid_sas", 0, "naa.5000c500000000b", "raid", rotational=True),
    Slot("sdc", "0000:02:00.0", "mpt3sas", 1, "naa.6000c500000000c", "left", map="dm-0"),
    Slot("sdd", "0000:03:00.0", "mpt3sas", 2, "naa.6000c500000000c", "right", map="dm-0"),
    Slot("nvme0n1", "0000:04:00.0", "nvme", None, "eui.0025385b71b00c6f", "nvme"),
)
MAP = "dm-0"
CAN_QUEUE = {"raid": 975, "left": 192, "right": 192, "nvme": 1023}


class Tree(Kernel):
    """The machine below ``root``: every change of the model is written to its file.

    ``modules`` are the schedulers that a write can load.
    """

    def __init__(
        self, root: Path, series: str = "6.1", modules: tuple[str, ...] = ("kyber", "bfq")
    ) -> None:
        super().__init__(series)
        self.root, self.modules = root, modules
        self.boot = 0
        self.sequence = 0
        self.places: dict[str, Disk] = {}
        self.directories: dict[str, Disk] = {}
        self.sequences: dict[Disk, int] = {}
        self.slots: dict[str, Slot] = {slot.name: slot for slot in SLOTS}
        self.power_on()

    @property
    def map_uuid(self) -> str:
        """The stable name of the map."""
        return f"mpath-{SLOTS[2].wwid}"

    # -- what happens to the machine -----------------------------------------------------------

    def power_on(self) -> None:
        """Boot: the kernel's own values, other host numbers, and no state of the last boot."""
        self.boot += 1
        self.disks, self.places, self.directories, self.sequences = [], {}, {}, {}
        shutil.rmtree(self.root / "devices", ignore_errors=True)
        self.tags = {
            name: TagSet(depth, queues=4 if name == "nvme" else 1)
            for name, depth in CAN_QUEUE.items()
        }
        # Other numbers after each boot: hbatune must not take a host number for an identity.
        shift = 3 * (self.boot - 1)
        for slot in SLOTS:
            current_slot = self.slots[slot.name]
            host = None if slot.host is None else slot.host + shift
            self.slots[slot.name] = replace(current_slot, host=host)
            self._appear(self.slots[slot.name])
        self._map()

    def swap(self, name: str) -> None:
        """Put another drive of the same model into the slot, unless it is a path of a map."""
        slot = self.slots[name]
        if slot.map is not None:
            return
        self.remove(self.places[name])
        directory = self.directory(name)
        shutil.rmtree(directory if slot.host is None else directory.parent.parent)
        self.slots[name] = replace(slot, wwid=f"{slot.wwid[:16]}{self.sequence:04x}")
        self._appear(self.slots[name])

    def _appear(self, slot: Slot) -> None:
        nvme = slot.host is None
        disk = self.add(
            Disk(
                slot.name,
                self.tags[slot.tags],
                scheduler="none" if nvme else "mq-deadline",
                modules=self.modules,
                can_queue=None if nvme else CAN_QUEUE[slot.tags],
                depth=0 if nvme else 64,
                rotational=slot.rotational,
                sectors_kb=512 if self.series == "6.1" and not nvme else 1280,
                max_hw_kb=4096,
            )
        )
        if not nvme:
            disk.async_depth = 61  # an administrator's: scaling there and back loses it
        self._show(disk, self._identity(slot))

    def _map(self) -> None:
        paths = tuple(self.places[slot.name] for slot in SLOTS if slot.map == MAP)
        disk = self.add(
            Disk(
                MAP,
                TagSet(2048),
                modules=self.modules,
                max_hw_kb=4096,
                sectors_kb=min(path.sectors_kb for path in paths),
                paths=paths,
            )
        )
        self._show(disk, {"dm/uuid": self.map_uuid, "dm/suspended": "0", "size": "2097152"})
        folder = self.directory(MAP) / "slaves"
        folder.mkdir()
        for path in paths:
            os.symlink(self.directory(path.name), folder / path.name)
            os.symlink(self.directory(MAP), self.directory(path.name) / "holders" / MAP)

    def remove(self, disk: Disk) -> None:
        super().remove(disk)
        self.places.pop(disk.name)
        self.directories = {
            directory: listed_disk
            for directory, listed_disk in self.directories.items()
            if listed_disk is not disk
        }

    # -- files ---------------------------------------------------------------------------------

    def directory(self, name: str) -> Path:
        """Return the directory of a disk's attributes."""
        if name == MAP:
            return self.root / "devices/virtual/block" / MAP
        slot = self.slots[name]
        function = self.function(name)
        if slot.host is None:
            return function / "nvme/nvme0/nvme0n1"
        target = f"target{slot.host}:0:{self._target(name)}"
        return function / f"host{slot.host}" / target / self.address(name) / "block" / name

    def function(self, name: str) -> Path:
        """Return the directory of the PCI function that serves a disk."""
        return self.root / "devices/pci0000:00" / self.slots[name].pci

    def address(self, name: str) -> str:
        """Return a SCSI disk's H:C:T:L."""
        return f"{self.slots[name].host}:0:{self._target(name)}:0"

    def _target(self, name: str) -> int:
        return 1 if name == "sdb" else 0

    def disk_of(self, path: str) -> tuple[Disk, str] | None:
        """Return the disk that a file belongs to, and the file's name below it."""
        for directory, disk in self.directories.items():
            if path.startswith(directory):
                return disk, path[len(directory) :]
        return None

    def changed(self, disk: Disk, changes: list[Change]) -> None:
        directory = f"{self.directory(disk.name)}/"
        for change in changes:
            _put(directory + change.name, change.after, _WRITABLE)

    def _show(self, disk: Disk, more: dict[str, str]) -> None:
        """Write all files of a disk that has just appeared."""
        self.places[disk.name] = disk
        self.sequence += 1
        self.sequences[disk] = self.sequence
        directory = self.directory(disk.name)
        self.directories[f"{directory}/"] = disk
        parent = directory.parent.parent if disk.can_queue is not None else directory.parent
        (directory / "holders").mkdir(parents=True)
        if disk.name != MAP:
            os.symlink(parent, directory / "device")
        texts = {
            "diskseq": str(self.sequence),
            "hidden": "0",
            "removable": "0",
            "queue/zoned": "none",
            "queue/max_hw_sectors_kb": str(disk.max_hw_kb),
            "queue/logical_block_size": "512",
            **{f"mq/{number}/nr_tags": str(disk.tags.depth) for number in range(disk.tags.queues)},
            **more,
        }
        for name, text in texts.items():
            _put(directory / name, text, _READ_ONLY)
        for name, text in disk.texts(self.series).items():
            _put(directory / name, text, _WRITABLE)

    def _identity(self, slot: Slot) -> dict[str, str]:
        self._adapter(slot)
        if slot.host is None:
            return {"wwid": slot.wwid, "size": "2097152"}
        spoken = {
            "type": "0",
            "vendor": "SEAGATE",
            "model": "XS400ME70084",
            "rev": "0003",
            "wwid": slot.wwid,
            "state": "running",
            "sas_address": "0x5000c500a0000001",
        }
        return {"size": "2097152", **{f"device/{name}": text for name, text in spoken.items()}}

    def _adapter(self, slot: Slot) -> None:
        function = self.function(slot.name)
        if (function / "class").exists() and (
            slot.host is None or (function / f"host{slot.host}").is_dir()
        ):
            return
        ids = {"class": "0x010700", "vendor": "0x1000", "device": "0x00e6", "numa_node": "-1"}
        for name, text in ids.items():
            _put(function / name, text, _READ_ONLY)
        drivers = self.root / "drivers" / slot.driver
        drivers.mkdir(parents=True, exist_ok=True)
        os.symlink(drivers, function / "driver")
        if slot.host is None:
            folder = function / "nvme/nvme0"
            texts = {"model": "LAB", "serial": "S1", "firmware_rev": "1", "state": "live"}
            texts |= {"queue_count": "5", "transport": "pcie"}
        else:
            folder = function / f"host{slot.host}/scsi_host/host{slot.host}"
            texts = {"proc_name": slot.driver, "can_queue": str(CAN_QUEUE[slot.tags])}
            texts |= {"cmd_per_lun": "64", "nr_hw_queues": "1"}
        for name, text in texts.items():
            _put(folder / name, text, _READ_ONLY)


def _put(path: Path | str, text: str | None, mode: int) -> None:
    if text is None:
        os.unlink(path)
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(file, text.encode() + b"\n")
    os.close(file)
