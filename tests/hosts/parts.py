"""What described machines are put together from: drives, vectors, parameters, links."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.hosts.machines import ATA_PAGE, HDD_PAGE, SSD_PAGE
from tests.hosts.tree import (
    Disk,
    Link,
    Lun,
    Moded,
    Value,
    Vector,
)

MODULES = Path(__file__).with_name("modules.json")
"""The parameters of Debian's modules: ``tools.module_parameters`` writes them."""

GEN1 = Link("2.5 GT/s PCIe", "8", "8.0 GT/s PCIe", "8")
GEN3 = Link("8.0 GT/s PCIe", "8", "8.0 GT/s PCIe", "8")
GEN4 = Link("16.0 GT/s PCIe", "16", "16.0 GT/s PCIe", "16")


def parameters(module: str, **loaded_with: str) -> dict[str, Value]:
    """Return the parameters of Debian's own module, as it is loaded with these options.

    ``modules.json`` has their names, the modes of their files and what they say without options. A
    parameter of mode 0 has no file (fs/sysfs/group.c: create_files).
    """
    module_parameters = real_parameters(module, loaded_with)
    return {
        name: Moded(loaded_with.get(name, text), mode)
        for name, (mode, text) in module_parameters.items()
        if mode
    }


def real_parameters(module: str, options: Iterable[str] = ()) -> dict[str, tuple[int, str]]:
    """Return mode and text of each parameter of a module, of the newest kernel in the file.

    AssertionError if the file does not have the module, or the module not one of these options.
    """
    kernels = _load_modules()
    *_, newest = kernels.values()
    packages = " ".join(kernel.partition(" ")[0] for kernel in kernels)
    assert module in newest, (
        f"{MODULES.name} does not have the module {module}: add it to MODULES in "
        f"tools/module_parameters.py, then run `apt-get download {packages}` and "
        "`.venv/bin/python -m tools.module_parameters linux-*.deb` (CONTRIBUTING.md: Add a family)"
    )
    lines = newest[module]["parameters"]
    unknown = ", ".join(name for name in options if name not in lines)
    assert not unknown, f"the module {module} has no option {unknown}: `modinfo {module}` lists all"
    return {name: (int(line[:4], 8), line[5:]) for name, line in lines.items()}


@cache
def _load_modules() -> dict[str, dict[str, Any]]:
    return dict(json.loads(MODULES.read_text(encoding="utf-8")))


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
