"""The adapters and disks of the lab's machines, as QEMU arguments.

All disks are one file, opened with ``snapshot=on``: each disk has writes of its own that vanish
with the machine. Where a family can show media apart, it gets a fast and a slow disk.
"""

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

DISK_BYTES = 128 << 20
DATA_BYTES = 48 << 20

_MEGASAS = [
    "-device megasas-gen2,id=megasas",
    "-device scsi-hd,drive={sata_ssd},bus=megasas.0,scsi-id=0,vendor=ATA,product=LAB-SATA-SSD"
    ",serial=MEGA0,rotation_rate=1,wwn=0x5000c500a0000001",
    "-device scsi-hd,drive={sas_hdd},bus=megasas.0,scsi-id=1,vendor=SEAGATE,product=LAB-SAS-HDD"
    ",serial=MEGA1,rotation_rate=7200,wwn=0x5000c500a0000002",
]
_MPTSAS = [
    "-device mptsas1068,id=mptsas,sas_address=0x5000c500b0000000",
    "-device scsi-hd,drive={mpt_ssd},bus=mptsas.0,scsi-id=0,vendor=TOSHIBA,product=LAB-SAS-SSD"
    ",serial=MPT0,rotation_rate=1,wwn=0x5000c500b0000001",
    "-device scsi-hd,drive={mpt_hdd},bus=mptsas.0,scsi-id=1,vendor=SEAGATE,product=LAB-SAS-HDD"
    ",serial=MPT1,rotation_rate=10000,wwn=0x5000c500b0000002",
]
_SYM = [
    "-device lsi53c895a,id=sym",
    "-device scsi-hd,drive={spi},bus=sym.0,scsi-id=0,product=LAB-SPI,serial=SYM0",
]
_NVME = [  # behind a root port, as a real one: with a link that has a speed and a width
    "-device pcie-root-port,id=port0,chassis=1,slot=1",
    "-device nvme,id=solo,serial=SOLO,bus=port0",
    "-device nvme-ns,drive={nvme},bus=solo,nsid=1",
]
_NVME_SUBSYSTEM = [  # one namespace over two controllers: hidden paths, a visible head
    "-device nvme-subsys,id=pair,nqn=pair",
    "-device nvme,id=left,serial=PAIR,subsys=pair",
    "-device nvme,id=right,serial=PAIR,subsys=pair",
    "-device nvme-ns,drive={shared},bus=left,nsid=1,shared=on",
    # No kernel sees it until a test attaches it (guest/namespaces.py).
    "-device nvme-ns,drive={detached},bus=left,nsid=2,shared=off,detached=on",
]
_PARAVIRTUAL = [
    "-device virtio-scsi-pci,id=vscsi,num_queues=2",
    "-device scsi-hd,drive={virtio},bus=vscsi.0,scsi-id=0,product=LAB-VIRTIO,serial=VIRTIO0",
    "-device pvscsi,id=pvscsi",
    "-device scsi-hd,drive={pvscsi_disk},bus=pvscsi.0,scsi-id=0,product=LAB-PV,serial=PV0",
]
_VOLUME = 223
"""The SCSI id of a RAID volume, behind those of all drives."""
_AHCI = ["-device ide-hd,drive={sata},bus=ide.0,serial=AHCI0,model=LAB-AHCI,rotation_rate=7200"]


_DRIVE = "-device scsi-hd,bus=hba.0,id=d{0},scsi-id={0},drive={{d{0}}}"


def _drives(sas: Sequence[int], sata: Sequence[int], nvme: Sequence[int]) -> list[str]:
    """Return drives of a tri-mode controller at these SCSI ids."""
    ssd, hdd = "rotation_rate=1", "rotation_rate=7200"
    return [
        *(
            f"{_DRIVE.format(id)},vendor=SEAGATE,product=XS960SE70084,{ssd},serial=SAS{id}"
            f",wwn={0x5000C500C0000000 + 4 * id:#x}"
            for id in sas
        ),
        *(
            f"{_DRIVE.format(id)},vendor=ATA,product=ST4000NM0035,{hdd},serial=SATA{id}"
            f",wwn={0x5000C500D0000000 + 4 * id:#x}"
            for id in sata
        ),
        *(
            f"{_DRIVE.format(id)},vendor=NVMe,product=PM1733,{ssd},serial=NVME{id}"
            f",wwn={0x3634633000000000 + id:#x}"
            for id in nvme
        ),
    ]


def _ehba_9600(drives: list[str]) -> list[str]:
    """Return an eHBA 9600 with these drives and one RAID volume (mpi3mr/README.md)."""
    return [
        "-device pcie-root-port,id=slot9600,chassis=9,x-speed=16,x-width=8",
        "-device mpi3mr,id=hba,bus=slot9600",
        *drives,
        f"{_DRIVE.format(_VOLUME)},vendor=BROADCOM,product=MR9660-16i,serial=VOLUME",
    ]


def _hba_9400(drives: list[str]) -> list[str]:
    """Return an HBA 9400 with these drives (mpt3sas/README.md)."""
    return [
        "-device pcie-root-port,id=slot9400,chassis=9,x-speed=8,x-width=8",
        "-device mpt3sas,id=hba,bus=slot9400",
        *drives,
    ]


def _raid_57b4() -> list[str]:
    """Return a 57B4 with a volume of each RAID level and drives in no array (ipr/README.md)."""
    ssd, hdd = "rotation_rate=1", "rotation_rate=10000"
    volumes = (
        f"{_DRIVE.format(id)},vendor=IBM,product=IPR-{level:<4}5EC9900{id},{ssd},serial=VOLUME{id}"
        for id, level in enumerate((0, 5, 6, 10))
    )
    drives = (
        f"{_DRIVE.format(id)},vendor=IBM,product=LAB-DRIVE,{medium},serial=DRIVE{id}"
        f",wwn={0x5000C500E0000000 + 4 * id:#x},port_wwn={0x5000C500E0000001 + 4 * id:#x}"
        for id, medium in ((8, ssd), (9, ssd), (10, hdd))
    )
    return [
        "-device pcie-root-port,id=slot57b4,chassis=9,x-speed=8,x-width=8",
        "-device ipr,id=hba,bus=slot57b4",
        *volumes,
        *drives,
    ]


_COALESCING_NVME = [  # one that accepts what QEMU's own refuses (nvme/README.md)
    "-device pcie-root-port,id=port1,chassis=10,slot=10",
    "-device lab-nvme,id=coalescing,serial=COALESCING,bus=port1",
    "-device lab-nvme-ns,drive={coalescing},bus=coalescing,nsid=1",
]


_THROTTLED = [  # takes few requests at a time, and serves them one after another
    "-device virtio-scsi-pci,id=vscsi,num_queues=2,cmd_per_lun=2",
    "-device scsi-hd,drive={serial},bus=vscsi.0,scsi-id=0,product=LAB-SERIAL,serial=SERIAL0",
]
_RATES = {"serial": "throttling.bps-total=200000000"}
"""Limits of drives, by name, as the options of QEMU's -drive."""


class Topology(StrEnum):
    """Which adapters a machine has. The guests with the longest tests start first."""

    MIXED = "mixed"  # one of each kind that QEMU itself emulates
    PROBED = "probed"  # the same, for files with long probes: one guest for all files takes longest
    COUNTED = "counted"  # the same, its clock counts instructions; no other guest runs
    TRI_MODE = "tri-mode"  # an eHBA 9600, with a drive or two of each kind
    MANY_DRIVES = "many-drives"  # an eHBA 9600 with 224 drives
    HBA_9400 = "hba-9400"  # an HBA 9400-16i, with two drives of each kind
    POWER = "power"  # a 57B4 with four volumes and three bare drives; an NVMe drive that coalesces
    THROTTLED = "throttled"  # a disk with a limited rate: a long write holds up what is behind it


QEMUS_OWN = (Topology.MIXED, Topology.PROBED, Topology.COUNTED)
"""The machines with adapters of QEMU only. They have no monitor, which the models need."""
_ONE_OF_EACH = [*_MEGASAS, *_MPTSAS, *_SYM, *_NVME, *_NVME_SUBSYSTEM, *_PARAVIRTUAL, *_AHCI]
_DEVICES = {
    Topology.MIXED: _ONE_OF_EACH,
    Topology.PROBED: _ONE_OF_EACH,
    Topology.COUNTED: _ONE_OF_EACH,
    Topology.TRI_MODE: _ehba_9600(_drives(sas=(0, 1), sata=(4, 5), nvme=(32, 33))),
    Topology.MANY_DRIVES: _ehba_9600(
        _drives(sas=range(12), sata=range(12, 24), nvme=range(24, 223))
    ),
    Topology.HBA_9400: _hba_9400(_drives(sas=(0, 1), sata=(4, 5), nvme=(32, 33))),
    Topology.THROTTLED: _THROTTLED,
    Topology.POWER: [*_raid_57b4(), *_COALESCING_NVME],
}


class _Drives(dict[str, str]):
    """Every drive that a device line names, in the order of naming."""

    def __missing__(self, name: str) -> str:
        return self.setdefault(name, name)


def adapters(topology: Topology, disk: Path) -> Iterator[str]:
    """Yield the QEMU arguments of all adapters, their disks backed by ``disk``."""
    drives = _Drives()
    lines = [line.format_map(drives) for line in _DEVICES[topology]]
    for name in drives:
        drive = f"if=none,id={name},file={disk},format=raw,snapshot=on"
        yield from ("-drive", ",".join(filter(None, (drive, _RATES.get(name)))))
    for line in lines:
        yield from line.split(" ", 1)


def make_disk(path: Path) -> None:
    """Write the file behind all disks: data to read, and no signature of a filesystem."""
    with path.open("wb") as disk:
        disk.seek(1 << 20)
        disk.write(random.Random(0).randbytes(DATA_BYTES))
        disk.truncate(DISK_BYTES)
