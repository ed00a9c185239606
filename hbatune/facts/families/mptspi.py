"""LSI Fusion-MPT, parallel SCSI (53C1020 and 53C1030). ``board_name`` is the card's own name.

Unlike the other drivers of parallel SCSI, it allows writes to queue_depth. VMware emulates the
chip.
"""

from hbatune.facts import family, model

FAMILY = family.Family(
    name="mptspi",
    products=(family.Product("LSI 53C1030", 0x1000, 0x0030),),
    model=("board_name",),
    firmware=("version_fw",),
    protocol=family.assume_protocol(model.Protocol.SPI),
    depth_cap=lambda pci, host, evidence: 64,  # mptscsih.h: MPT_SCSI_CMD_PER_DEV_HIGH
    # drivers/message/fusion/mptbase.c: mpt_do_ioc_recovery
    interrupts=family.Interrupts(family.Vectors.INTX, (family.Handler(r"ioc\d+"),)),
)
