"""LSI Fusion-MPT SAS 1064, 1068 and 1078. ``board_name`` is the card's own name."""

from hbatune.facts import family, model

_DEPTH = 64  # mptscsih.h: MPT_SCSI_CMD_PER_DEV_HIGH; mptscsih.c: mptscsih_slave_configure

FAMILY = family.Family(
    name="mptsas",
    model=("board_name",),
    firmware=("version_fw",),
    depth_default=lambda endpoint, parameters, pci: _DEPTH,
    initial_depths={model.Protocol.SAS: _DEPTH, model.Protocol.SATA: _DEPTH},
    # drivers/message/fusion/mptbase.c: mpt_do_ioc_recovery
    interrupts=family.Interrupts(family.Vectors.INTX, (family.Handler(r"ioc\d+"),)),
)
