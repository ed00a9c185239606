"""SATA on the mainboard. It has no firmware; there is one SCSI host for every port."""

from hbatune.facts import classify, family, model


def _find_depth_trap(host: model.Host, evidence: classify.Evidence) -> str | None:
    """Return the reason if libata does not queue for the drive: it refuses any depth but 1."""
    if evidence.ncq_off:
        return f"{evidence.ncq_off} on the kernel's command line switches NCQ off"
    return None


def ncq_off(command_line: str, port: int) -> str | None:
    """Return the option of the command line that switches NCQ off on a port, or None.

    ``libata.force=`` is a list of ``ID:VALUE``. An ID is a port, or a port and a device, and also
    applies to the following values without an ID (drivers/ata/libata-core.c: ata_parse_force_one).
    """
    option_off = None
    for option in command_line.split():
        name, _, values = option.partition("=")
        if name != "libata.force":
            continue
        current_id: str | None = None
        for value in values.split(","):
            id, colon, flag = value.rpartition(":")
            current_id = id.partition(".")[0] if colon else current_id
            if current_id in (None, str(port)) and flag in ("noncq", "ncq"):
                option_off = option if flag == "noncq" else None
    return option_off


FAMILY = family.Family(
    name="ahci",
    drivers=frozenset({"ahci", "ahci_platform"}),
    depth_cap=family.limit_ncq_depth,
    depth_default=family.read_ncq_depth,
    depth_trap=_find_depth_trap,
    # drivers/ata/ahci.c: ahci_init_irq
    interrupts=family.Interrupts(family.Vectors.FREE, (family.Handler(r"ahci.*"),)),
)
