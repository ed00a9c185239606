"""The adapters and disks of every lab machine, as QEMU arguments.

All disks are one file, opened with ``snapshot=on``: each disk has writes of its own that vanish
with the machine. Where a family can show media apart, it gets a fast and a slow disk.
"""

import random
from collections.abc import Iterator
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
]
_PARAVIRTUAL = [
    "-device virtio-scsi-pci,id=vscsi,num_queues=2",
    "-device scsi-hd,drive={virtio},bus=vscsi.0,scsi-id=0,product=LAB-VIRTIO,serial=VIRTIO0",
    "-device pvscsi,id=pvscsi",
    "-device scsi-hd,drive={pvscsi_disk},bus=pvscsi.0,scsi-id=0,product=LAB-PV,serial=PV0",
]
_AHCI = ["-device ide-hd,drive={sata},bus=ide.0,serial=AHCI0,model=LAB-AHCI,rotation_rate=7200"]

_DEVICES = [*_MEGASAS, *_MPTSAS, *_SYM, *_NVME, *_NVME_SUBSYSTEM, *_PARAVIRTUAL, *_AHCI]


class _Drives(dict[str, str]):
    """Every drive that a device line names, in the order of naming."""

    def __missing__(self, name: str) -> str:
        return self.setdefault(name, name)


def adapters(disk: Path) -> Iterator[str]:
    """Yield the QEMU arguments of all adapters, their disks backed by ``disk``."""
    drives = _Drives()
    lines = [line.format_map(drives) for line in _DEVICES]
    for name in drives:
        yield from ("-drive", f"if=none,id={name},file={disk},format=raw,snapshot=on")
    for line in lines:
        yield from line.split(" ", 1)


def make_disk(path: Path) -> None:
    """Write the file behind all disks: data to read, and no signature of a filesystem."""
    with path.open("wb") as disk:
        disk.seek(1 << 20)
        disk.write(random.Random(0).randbytes(DATA_BYTES))
        disk.truncate(DISK_BYTES)
