"""SATA on the mainboard. No firmware of its own; one SCSI host for every port."""

from hbatune.facts.classify import Evidence
from hbatune.facts.family import Family, Handler, Interrupts, Trap, Vectors
from hbatune.facts.model import Host, Missing, Pci

_NCQ = 32  # linux/ata.h: ATA_MAX_QUEUE


def _depth_cap(pci: Pci | None, host: Host, evidence: Evidence) -> int | Missing:
    """Return the drive's own depth, above which libata clamps or refuses (libata-scsi.c)."""
    return _NCQ if evidence.ncq_depth is None else evidence.ncq_depth


FAMILY = Family(
    name="ahci",
    drivers=frozenset({"ahci", "ahci_platform"}),
    depth_cap=_depth_cap,
    interrupts=Interrupts(Vectors.FREE, "drivers/ata/ahci.c: ahci_init_irq", (Handler(r"ahci.*"),)),
    traps=(
        Trap(
            "A depth of 1 switches native command queuing off.",
            "drivers/ata/libata-sata.c: ata_change_queue_depth",
        ),
    ),
)
