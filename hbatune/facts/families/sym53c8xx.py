"""Symbios and LSI 53C8xx, parallel SCSI (SYM8751SP). Its queue_depth is read-only.

Ids are from sym_defs.h: the SYM8751SP carries a 53C875, which other boards also carry.
"""

from hbatune.facts import family, model

FAMILY = family.Family(
    name="sym53c8xx",
    products=(
        family.Product("Symbios 53C875", 0x1000, 0x000F, document="Symbios SYM8751SP (D1)"),
        family.Product("LSI 53C895A", 0x1000, 0x0012),
    ),
    protocol=family.assume_protocol(model.Protocol.SPI),
    depth=family.Depth.FIXED,
    # drivers/scsi/sym53c8xx_2/sym_glue.c: sym_attach
    interrupts=family.Interrupts(family.Vectors.INTX),
    # A depth of 0 or 1 means no tagged queuing; 64 is SYM_CONF_MAX_TAG (sym53c8xx.h).
    options=(family.Option("cmd_per_lun", family.Purpose.LUN_DEPTH, 2, 64, shown=False),),
)
