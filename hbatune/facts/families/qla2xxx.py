"""QLogic and Marvell Fibre Channel. The model is a host attribute."""

from hbatune.facts.family import (
    Coalescing,
    Family,
    Handler,
    Interrupts,
    Mechanism,
    Option,
    Purpose,
    Trap,
    Vectors,
    read_option_depth,
)
from hbatune.facts.model import Role

FAMILY = Family(
    name="qla2xxx",
    drivers=frozenset({"qla2xxx"}),
    model=("model_name",),
    firmware=("fw_version",),
    version=("driver_version",),
    depth_ramps=True,
    inspected=("zio", "zio_timer"),
    depth_default=read_option_depth("ql2xmaxqdepth"),
    interrupts=Interrupts(
        Vectors.MIXED,
        "drivers/scsi/qla2xxx/qla_isr.c: qla24xx_enable_msix",
        (
            Handler(r"qla2xxx\d+_(default|atio_q)", Role.ADMIN),
            Handler(r"qla2xxx\d+_rsp_q"),
            Handler(r"qla2xxx\d+_qpair.*", managed=True),
        ),
    ),
    coalescing=(
        # Both take effect when the adapter is reset. The timer is 100 to 25,500 µs.
        Coalescing(Mechanism.HOST_ATTRIBUTE, "zio_timer", "qla_attr.c: qla2x00_zio_timer_store"),
        # 0 or 1; a write resets the link.
        Coalescing(Mechanism.HOST_ATTRIBUTE, "zio", "qla_attr.c: qla2x00_zio_store"),
    ),
    options=(
        Option("ql2xmaxqdepth", Purpose.LUN_DEPTH),
        Option("ql2xiniexchg", Purpose.HOST_DEPTH),
        Option("ql2xenablemsix", Purpose.VECTORS),
        Option("ql2xmqsupport", Purpose.VECTORS),
    ),
    traps=(
        Trap(
            "Writing 1 to zio, or anything while it is on, resets the adapter and its link.",
            "qla_attr.c: qla2x00_zio_store",
        ),
        Trap(
            "zio_timer only stores a number until the adapter is reset; it reads back at once.",
            "qla_attr.c: qla2x00_zio_timer_store",
        ),
    ),
)
