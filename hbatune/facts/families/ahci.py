"""SATA on the mainboard. No firmware of its own; one SCSI host for every port."""

from hbatune.facts.classify import Evidence
from hbatune.facts.family import Family, Handler, Interrupts, Parameters, Trap, Vectors
from hbatune.facts.model import Endpoint, Host, Missing, Pci

_NCQ = 32  # linux/ata.h: ATA_MAX_QUEUE


def _depth_cap(pci: Pci | None, host: Host, evidence: Evidence) -> int | Missing:
    """Return the drive's own depth, above which libata clamps or refuses (libata-scsi.c)."""
    return _NCQ if evidence.ncq_depth is None else evidence.ncq_depth


def _depth_default(endpoint: Endpoint, parameters: Parameters) -> int | None:
    """Return the drive's own depth less one: kernels differ in whether they keep a tag for EH.

    None for a drive that queues nothing or does not say, which may start at one command, too.
    """
    depth = endpoint.ncq_depth
    return depth - 1 if depth is not None and depth > 1 else None


def _depth_trap(host: Host, evidence: Evidence) -> str | None:
    """Know drives that libata was told not to queue for: it refuses any other depth than 1."""
    if evidence.ncq_off:
        return f"{evidence.ncq_off} on the kernel's command line switches NCQ off"
    return None


def ncq_off(command_line: str, port: int) -> str | None:
    """Return the word of the command line that switches NCQ off on a port, None without one.

    ``libata.force=`` is a list of ``ID:VALUE``; an ID is a port, or a port and a device, and holds
    for the values after it that have none (drivers/ata/libata-core.c: ata_parse_force_one).
    """
    found = None
    for word in command_line.split():
        name, _, values = word.partition("=")
        if name != "libata.force":
            continue
        own: str | None = None
        for value in values.split(","):
            id, colon, what = value.rpartition(":")
            own = id.partition(".")[0] if colon else own
            if own in (None, str(port)) and what in ("noncq", "ncq"):
                found = word if what == "noncq" else None
    return found


FAMILY = Family(
    name="ahci",
    drivers=frozenset({"ahci", "ahci_platform"}),
    depth_cap=_depth_cap,
    depth_default=_depth_default,
    depth_trap=_depth_trap,
    interrupts=Interrupts(Vectors.FREE, "drivers/ata/ahci.c: ahci_init_irq", (Handler(r"ahci.*"),)),
    traps=(
        Trap(
            "A depth of 1 switches native command queuing off.",
            "drivers/ata/libata-sata.c: ata_change_queue_depth",
        ),
    ),
)
