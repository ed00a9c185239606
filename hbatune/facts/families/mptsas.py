"""LSI Fusion-MPT SAS 1064, 1068 and 1078. ``board_name`` is the card's own name."""

from hbatune.facts import family

FAMILY = family.Family(
    name="mptsas",
    model=("board_name",),
    firmware=("version_fw",),
    # drivers/message/fusion/mptbase.c: mpt_do_ioc_recovery
    interrupts=family.Interrupts(family.Vectors.INTX, (family.Handler(r"ioc\d+"),)),
)
