"""IBM Power SAS RAID. The PCI subsystem of a card gives its CCIN, which identifies it.

Ids and CCINs are from ipr_pci_table (ipr.c) and IPR_SUBS_DEV_ID_* (ipr.h).
"""

from hbatune.facts import classify, family, model

_IBM = 0x1014
_CROCODILE = 0x034A
_CROC_FPGA_E2 = 0x033D
_CCINS = {
    "57CE": (_CROCODILE, 0x035E),
    "57B4": (_CROCODILE, 0x033B),
    "57B5": (_CROC_FPGA_E2, 0x033C),
    "57C4": (_CROC_FPGA_E2, 0x0354),
}
_CACHELESS = {"57B4", "57C4"}  # D4, Benefits of 57B4 RAID SAS Adapter; Comparisons
_VOLUMES = {0x02, 0xFF}  # ipr.h: IPR_VSET_VIRTUAL_BUS of SIS-64, IPR_VSET_BUS of SIS-32


def _find_depth_trap(host: model.Host, evidence: classify.Evidence) -> str | None:
    """Return the reason for SATA drives: a write sets their depth to 1 (ipr_change_queue_depth)."""
    if evidence.is_ata:
        return "the driver drops SATA drives to one command at any write"
    return None


FAMILY = family.Family(
    name="ipr",
    products=tuple(
        family.Product(
            *(f"IBM {ccin} SAS RAID", _IBM, device, (_IBM, card), f"{ccin} (D4)"),
            cache=ccin not in _CACHELESS,
        )
        for ccin, (device, card) in _CCINS.items()
    ),
    firmware=("fw_version",),
    protocol=family.classify_by_channel(dict.fromkeys(_VOLUMES, model.Protocol.VOLUME)),
    depth_default=lambda endpoint, parameters, pci: 6,  # ipr.h: IPR_MAX_CMD_PER_LUN
    depth_trap=_find_depth_trap,
    # drivers/scsi/ipr.c: ipr_probe_ioa, ipr_get_hrrq_index
    interrupts=family.Interrupts(
        family.Vectors.FREE,
        (family.Handler(r"host\d+-0", model.Role.ADMIN), family.Handler(r"host\d+-\d+|ipr")),
        driver_queues=15,  # ipr.h: IPR_MAX_HRRQ_NUM (16), without the driver's own queue
    ),
    options=(family.Option("number_of_msix", family.Purpose.VECTORS, 1, 16, shown=False),),
)
