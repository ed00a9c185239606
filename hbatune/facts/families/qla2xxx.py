"""QLogic and Marvell Fibre Channel. The model is a host attribute."""

from hbatune.facts import family, model

FAMILY = family.Family(
    name="qla2xxx",
    model=("model_name",),
    firmware=("fw_version",),
    version=("driver_version",),
    depth_ramps=True,
    inspected=("zio", "zio_timer"),
    depth_default=family.read_option_depth("ql2xmaxqdepth"),
    # drivers/scsi/qla2xxx/qla_isr.c: qla24xx_enable_msix
    interrupts=family.Interrupts(
        family.Vectors.MIXED,
        (
            family.Handler(r"qla2xxx\d+_(default|atio_q)", model.Role.ADMIN),
            family.Handler(r"qla2xxx\d+_rsp_q"),
            family.Handler(r"qla2xxx\d+_qpair.*", managed=True),
        ),
    ),
    coalescing=(
        # Both take effect when the adapter is reset. The timer is 100 to 25,500 µs.
        # qla_attr.c: qla2x00_zio_timer_store
        "zio_timer",
        # 0 or 1; a write resets the link.
        # qla_attr.c: qla2x00_zio_store
        "zio",
    ),
    options=(
        family.Option("ql2xmaxqdepth", family.Purpose.LUN_DEPTH),
        family.Option("ql2xiniexchg", family.Purpose.HOST_DEPTH),
        family.Option("ql2xenablemsix", family.Purpose.VECTORS, neutral=1),
        family.Option("ql2xmqsupport", family.Purpose.VECTORS, neutral=1),
    ),
)
