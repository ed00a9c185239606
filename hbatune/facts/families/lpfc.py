"""Emulex and Broadcom Fibre Channel, including the LP10000 of 2 Gb/s.

Device ids are from lpfc_hw.h: FA00 is Thor, which is sold as LP10000, FC00 the LP10000-S. The model
is a host attribute.
"""

from hbatune.facts import family, model

_EMULEX = 0x10DF
_LP10000 = "Emulex LP10000 (D2)"

FAMILY = family.Family(
    name="lpfc",
    products=(
        family.Product("Emulex LP10000", _EMULEX, 0xFA00, document=_LP10000),
        family.Product("Emulex LP10000-S", _EMULEX, 0xFC00, document=_LP10000),
    ),
    model=("modelname",),
    firmware=("fwrev",),
    version=("lpfc_drvr_version",),
    depth_ramps=True,
    depth_default=family.read_option_depth("lpfc_lun_queue_depth"),
    credits=("max_xri",),
    inspected=(
        *("lpfc_tgt_queue_depth", "lpfc_max_scsicmpl_time"),
        *("lpfc_cr_delay", "lpfc_cr_count"),
    ),
    # drivers/scsi/lpfc/lpfc_init.c: lpfc_sli4_enable_msix
    interrupts=family.Interrupts(
        family.Vectors.PINNED,
        (
            family.Handler(r"lpfc:sp", model.Role.ADMIN),
            family.Handler(r"lpfc:fp"),
            family.Handler(r"lpfc:\d+", managed=True),
        ),
    ),
    coalescing=(
        # 5,000 to 5,000,000 interrupts/s, on SLI-4 only; SLI-3 returns EINVAL. With 0, the driver
        # adapts the delay to the load; a fixed high rate is an interrupt storm.
        # lpfc_attr.c: lpfc_fcp_imax_store
        "lpfc_fcp_imax",
        # SLI-3, such as the LP10000, takes both when it configures its link: 0 (off) to 63 ms, and
        # 1 (off) to 255 commands.
        # lpfc_mbox.c: lpfc_config_link
        "lpfc_cr_delay",
        # lpfc_mbox.c: lpfc_config_link
        "lpfc_cr_count",
    ),
    options=(
        family.Option("lpfc_lun_queue_depth", family.Purpose.LUN_DEPTH, 1, 512),
        family.Option("lpfc_hba_queue_depth", family.Purpose.HOST_DEPTH, 32, 8192),
        family.Option("lpfc_irq_chann", family.Purpose.VECTORS),
        family.Option("lpfc_hdw_queue", family.Purpose.VECTORS),
        family.Option("lpfc_use_msi", family.Purpose.VECTORS, 0, 2, neutral=2),
        family.Option("lpfc_fcp_imax", family.Purpose.COALESCING),
    ),
)
