"""Broadcom MegaRAID and Dell PERC. The firmware's version is in no sysfs attribute.

Device ids and chip names are from megaraid_sas.h; nothing in sysfs names the card.
"""

from hbatune.facts import classify, family
from hbatune.facts.model import Host, Protocol

_LSI = 0x1000
_CHIPS = {
    0x0060: "SAS1078R",
    0x0079: "SAS0079GEN2",
    0x005B: "Fusion",
    0x005D: "Invader",
    0x005F: "Fury",
    0x0014: "Ventura",
    0x0016: "Harpoon",
    0x10E1: "Aero",
    0x10E2: "Aero",
    0x10E5: "Aero",
    0x10E6: "Aero",
}
_PHYSICAL_CHANNELS = 2  # megaraid_sas.h: MEGASAS_MAX_PD_CHANNELS; logical drives come after them
# megaraid_sas.h: MEGASAS_SAS_QD, MEGASAS_SATA_QD, MEGASAS_NVME_QD, MEGASAS_DEFAULT_CMD_PER_LUN
_DEPTHS = {Protocol.SAS: 256, Protocol.SATA: 32, Protocol.NVME: 64, Protocol.VOLUME: 256}
_THROTTLED = 16  # megaraid_sas.h: MEGASAS_THROTTLE_QUEUE_DEPTH


def _classify(evidence: classify.Evidence) -> Protocol | None:
    """Distinguish volumes from drives, which are both flat below the host.

    The LUN's own report comes first, since the channel is not reliable: a PERC H755N also shows
    drives without RAID on channel 2.
    """
    if evidence.channel is None:
        return None
    if evidence.access is not None:
        return Protocol.VOLUME
    if evidence.sas_designator:
        return Protocol.SAS
    return Protocol.SAS if evidence.channel < _PHYSICAL_CHANNELS else Protocol.VOLUME


def _find_depth_trap(host: Host, evidence: classify.Evidence) -> str | None:
    """Return the reason for a throttled host, whose can_queue does not give the right depth."""
    if isinstance(host.can_queue, int) and host.can_queue <= _THROTTLED:
        return "the driver holds the adapter at 16 commands after timeouts, until its load falls"
    return None


FAMILY = family.Family(
    name="megaraid_sas",
    products=tuple(family.Product(f"MegaRAID {name}", _LSI, chip) for chip, name in _CHIPS.items()),
    protocol=_classify,
    # The firmware may replace it for a drive (megaraid_sas_base.c: megasas_set_fw_assisted_qd). A
    # lower depth is then the firmware's decision.
    depth_default=lambda endpoint, parameters, pci: _DEPTHS.get(endpoint.protocol),
    depth_trap=_find_depth_trap,
    shares_tags=lambda parameters, queues: queues > 1,  # with one, host_tagset is not set
    # drivers/scsi/megaraid/megaraid_sas_base.c: __megasas_alloc_irq_vectors
    interrupts=family.Interrupts(
        family.Vectors.MIXED,
        (
            # The first one, which is the only one in the MFI series, is not managed.
            family.Handler(r"megasas|megasas\d+-msix0"),
            family.Handler(r"megasas\d+-msix\d+", managed=True),
        ),
        "smp_affinity_enable=0, which also leaves one hardware queue",
    ),
    coalescing=(
        # 0 to 2; 2 switches it off.
        # megaraid_sas_base.c: megasas_init_fw
        "perf_mode",
    ),
    options=(
        family.Option("msix_vectors", family.Purpose.VECTORS, own=0),
        family.Option("msix_disable", family.Purpose.VECTORS),
        family.Option("smp_affinity_enable", family.Purpose.VECTORS, 0, 1, neutral=1),
        family.Option("host_tagset_enable", family.Purpose.VECTORS, 0, 1, neutral=1),
        family.Option("poll_queues", family.Purpose.VECTORS),
        family.Option("perf_mode", family.Purpose.COALESCING, 0, 2, own=-1),
    ),
)
