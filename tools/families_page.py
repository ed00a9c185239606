"""Generate docs/families.md: the capabilities of each family, from its declaration."""

import json
import tomllib
from pathlib import Path

from hbatune.facts.families import families
from hbatune.facts.family import Family
from tests.lab.topology import Topology, adapters
from tools.capabilities import COLUMNS, Cell, capabilities

PAGE = Path(__file__).resolve().parents[1] / "docs" / "families.md"

_HEAD = """\
# Adapter families

The settings of each adapter family. The driver determines the family. This page is generated from
the modules in `hbatune/facts/families`.

- **read**: shown, and there is nothing to set.
- **set**: can be set.
- **fixed**: the driver makes the value read-only.
- **absent**: the driver does not have this setting.

*Depth* is the `queue_depth` of a LUN while the driver runs; an option next to it sets the
initial value. *Host depth* is the total limit of the adapter. Only an option sets it, at the next
load of the module. *Vectors* are the interrupt vectors that carry data, with the driver's
defaults. *Coalescing* is set immediately or by an option. hbatune detects the actual state on
each machine, such as a read-only file or a locked vector.

*Rests on* is the evidence for the facts about a family:

- **real driver**: the driver ran in the project's lab, on an emulated adapter, under Debian's
  kernels.
- **module's own parameters**: the modes and defaults in Debian's packages, and the driver's source.
- **source only**: only the driver's source.
"""

DRIVEN = {
    "ipr": "ipr",
    "megasas-gen2": "megaraid_sas",
    "mpi3mr": "mpi3mr",
    "mpt3sas": "mpt3sas",
    "mptsas1068": "mptsas",
    "lsi53c895a": "sym53c8xx",
    "nvme": "nvme",
    "virtio-scsi-pci": "virtio_scsi",
    "pvscsi": "vmw_pvscsi",
    "ide-hd": "ahci",
}
"""The family whose driver serves each of QEMU's devices."""

_ALWAYS = ("scsi_debug", "virtio_blk")
"""The driver that the lab loads itself, and the driver of its root disk."""

TRAPS = Path(__file__).with_name("driver_traps.toml")
"""The surprising behaviours of drivers, by family. The program does not need them."""

_MODULES = Path(__file__).resolve().parents[1] / "tests" / "hosts" / "modules.json"


def page() -> str:
    """Return the whole page as Markdown."""
    lines = [_HEAD, _line(["family", *COLUMNS, "rests on"]), "|" + " --- |" * (2 + len(COLUMNS))]
    for family in families():
        cells = [_cell(cell) for cell in capabilities(family).values()]
        lines.append(_line([f"`{family.name}`", *cells, rests_on(family)]))
    lines += ["", "## Products in the documents", ""]
    lines += [_line(["document", "product", "family"]), "| --- | --- | --- |"]
    lines += [line for family in families() for line in _documents(family)]
    lines += ["", "## Traps", ""]
    for name, traps in load_traps().items():
        lines += [f"- `{name}`: {trap['says']} ({trap['source']})" for trap in traps]
    return "\n".join(lines) + "\n"


def load_traps() -> dict[str, list[dict[str, str]]]:
    """Return the traps of each family, each with ``says`` and ``source``."""
    return tomllib.loads(TRAPS.read_text())


def rests_on(family: Family) -> str:
    """Return the test basis of the facts about a family."""
    if family.name in driven():
        return "real driver"
    module_names = {
        name for modules in json.loads(_MODULES.read_text()).values() for name in modules
    }
    return (
        "module's own parameters"
        if {family.name, *family.drivers} & module_names
        else "source only"
    )


def driven() -> frozenset[str]:
    """Return the families whose real drivers serve the adapters of the lab's machines."""
    lines = (line for topology in Topology for line in adapters(topology, Path("disk")))
    devices = {line.partition(",")[0] for line in lines}
    return frozenset((*(DRIVEN[device] for device in devices & DRIVEN.keys()), *_ALWAYS))


def _documents(family: Family) -> list[str]:
    return [
        _line([product.document, product.name, f"`{family.name}`"])
        for product in family.products
        if product.document
    ]


def _cell(cell: Cell) -> str:
    return f"{cell.access} ({', '.join(cell.by)})" if cell.by else str(cell.access)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
