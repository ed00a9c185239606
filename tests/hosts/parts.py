"""What described machines are put together from: drives, vectors, parameters, links."""

from dataclasses import replace

from tests.hosts.machines import ATA_PAGE, HDD_PAGE, SSD_PAGE
from tests.hosts.tree import (
    Disk,
    Link,
    Lun,
    Value,
    Vector,
)

GEN1 = Link("2.5 GT/s PCIe", "8", "8.0 GT/s PCIe", "8")
GEN3 = Link("8.0 GT/s PCIe", "8", "8.0 GT/s PCIe", "8")
GEN4 = Link("16.0 GT/s PCIe", "16", "16.0 GT/s PCIe", "16")


def parameters(*names: str) -> dict[str, Value]:
    """Return these module parameters; their values are made up."""
    return dict.fromkeys(names, "0")


def vectors(free: tuple[str, ...] = (), locked: tuple[str, ...] = ()) -> tuple[Vector, ...]:
    """Return vectors with these names, from number 40 on."""
    names = [(name, False) for name in free] + [(name, True) for name in locked]
    return tuple(Vector(40 + n, name, lock) for n, (name, lock) in enumerate(names))


def sas(host: int, target: int, disk: Disk, *, solid: bool = True, depth: str = "254") -> Lun:
    """Return a SAS drive below an end device."""
    return Lun(
        f"{host}:0:{target}:0",
        disk,
        queue_depth=depth,
        port=f"port-{host}:{target}/end_device-{host}:{target}",
        protocols="ssp",
        device={"vpd_pgb1": SSD_PAGE if solid else HDD_PAGE},
    )


def sata(host: int, target: int, disk: Disk, *, depth: str = "32") -> Lun:
    """Return a SATA SSD below an end device, behind a SCSI to ATA translation."""
    return Lun(
        f"{host}:0:{target}:0",
        disk,
        vendor="ATA",
        model="MZ7LH960",
        queue_depth=depth,
        port=f"port-{host}:{target}/end_device-{host}:{target}",
        protocols="sata",
        device={"vpd_pgb1": SSD_PAGE, "vpd_pg89": ATA_PAGE},
    )


def flat(address: str, disk: Disk, vendor: str, depth: str, **device: Value) -> Lun:
    """Return a LUN directly below its host: a drive without a transport class, or a volume."""
    return Lun(address, disk, vendor=vendor, model="MODEL", queue_depth=depth, device=device)


def read_only(lun: Lun) -> Lun:
    """Return the LUN of a driver without change_queue_depth (scsi_sysfs.c: the mode is 0444)."""
    return replace(lun, depth_writable=False)
