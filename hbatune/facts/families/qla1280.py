"""QLogic ISP1x80 and ISP1x160, parallel SCSI (QLA1040). Its queue_depth is read-only.

The id and the name are from qla1280_pci_tbl and ql1280_board_tbl (qla1280.c). The adapter's own
per-target limit, the execution throttle, is in its NVRAM, which Linux does not change.
"""

from hbatune.facts import family, model

FAMILY = family.Family(
    name="qla1280",
    products=(family.Product("QLogic QLA1040", 0x1077, 0x1020, document="QLogic QLA1040 (D1)"),),
    protocol=family.assume_protocol(model.Protocol.SPI),
    depth=family.Depth.FIXED,
    # drivers/scsi/qla1280.c: qla1280_probe_one
    interrupts=family.Interrupts(family.Vectors.INTX),
)
