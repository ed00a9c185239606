"""Broadcom SAS2, SAS3 and SAS3.5 HBAs (9200 to 9500).

Device ids and chip names are from mpt3sas's mpi/mpi2_cnfg.h; ``board_name`` is the card's own name.
"""

from hbatune.facts import classify, family
from hbatune.facts.model import Endpoint, Host, Missing, Pci, Protocol

_LSI = 0x1000
_CHIPS = {
    0x0072: "SAS2008",
    0x0087: "SAS2308",
    0x0097: "SAS3008",
    0x00AB: "SAS3516",
    0x00AC: "SAS3416",
    0x00AF: "SAS3408",
    0x00D1: "SAS3616",
    0x00E1: "SAS3916",
    0x00E2: "SAS3916",
    0x00E5: "SAS3816",
    0x00E6: "SAS3816",
}
_GEN35 = 0x00AA  # mpt3sas_scsih.c: _scsih_probe, is_gen35_ioc; older chips have lower ids ...
_SAS3_LATE = range(0x00C0, 0x00CA)  # ... except these
_CHANNELS = {1: Protocol.VOLUME, 2: Protocol.NVME}  # RAID_CHANNEL and PCIE_CHANNEL

# mpt3sas_base.h: MPT3SAS_SAS_QUEUE_DEPTH, MPT3SAS_SATA_QUEUE_DEPTH, MPT3SAS_NVME_QUEUE_DEPTH, and
# MPT3SAS_RAID_QUEUE_DEPTH. The depth of a RAID 0 volume depends on its members.
_DEPTHS = {Protocol.SAS: 254, Protocol.SATA: 32, Protocol.NVME: 128}
_VOLUME_DEPTHS = dict.fromkeys(("1", "1e", "10"), 128)


def _is_sas35(pci: Pci | None) -> bool | None:
    device = pci.device if pci else None
    return device >= _GEN35 and device not in _SAS3_LATE if isinstance(device, int) else None


def _get_default_depth(
    endpoint: Endpoint, parameters: family.Parameters, pci: Pci | None
) -> int | None:
    """Return None for drives on SAS3.5 chips: the firmware sets it (_base_assign_fw_reported_qd).

    Volumes have the driver's own depth on all chips (mpt3sas_scsih.c: scsih_sdev_configure).
    """
    if endpoint.protocol is Protocol.VOLUME:
        return _VOLUME_DEPTHS.get(endpoint.raid_level or "")
    return _DEPTHS.get(endpoint.protocol) if _is_sas35(pci) is False else None


def _limit_depth(pci: Pci | None, host: Host, evidence: classify.Evidence) -> int | Missing:
    """Return 32 for SATA on chips before SAS3.5: the driver silently clamps to it.

    With enable_sdev_max_qd it would not; this option is not read (scsih_change_queue_depth).
    """
    # 32 is MPT3SAS_SATA_QUEUE_DEPTH (mpt3sas_base.h).
    return 32 if evidence.is_ata and not _is_sas35(pci) else host.can_queue


FAMILY = family.Family(
    name="mpt3sas",
    drivers=frozenset({"mpt3sas", "mpt2sas"}),
    products=tuple(family.Product(f"Broadcom {name}", _LSI, chip) for chip, name in _CHIPS.items()),
    model=("board_name",),
    firmware=("version_fw",),
    protocol=family.classify_by_channel(_CHANNELS),
    depth_cap=_limit_depth,
    depth_default=_get_default_depth,
    initial_depths=_DEPTHS,
    depth_ramps=True,
    resets=("queue_depth",),  # mpt3sas_scsih.c: _scsih_update_device_qdepth
    shares_tags=lambda parameters, queues: queues > 1,  # with one, host_tagset is not set
    credits=("fw_queue_depth",),
    # drivers/scsi/mpt3sas/mpt3sas_base.c: _base_alloc_irq_vectors
    interrupts=family.Interrupts(
        family.Vectors.MIXED,
        (family.Handler(r"mpt[23]sas\d+-msix\d+", managed=True),),
        "smp_affinity_enable=0, which also leaves one hardware queue",
    ),
    coalescing=(
        # mpt3sas_base.c: _base_update_ioc_page1_inlinewith_perf_mode
        "perf_mode",
        # mpi/mpi2_cnfg.h: MPI2_CONFIG_PAGE_IOC_1
        "firmware_coalescing",
    ),
    options=(
        family.Option("max_queue_depth", family.Purpose.HOST_DEPTH, 1, 30000, own=-1),
        family.Option("max_msix_vectors", family.Purpose.VECTORS, own=-1),
        family.Option("msix_disable", family.Purpose.VECTORS),
        family.Option("smp_affinity_enable", family.Purpose.VECTORS, 0, 1, neutral=1),
        family.Option("host_tagset_enable", family.Purpose.VECTORS, 0, 1, neutral=1),
        family.Option("poll_queues", family.Purpose.VECTORS),
        family.Option("perf_mode", family.Purpose.COALESCING, 0, 2, own=-1),
    ),
)
