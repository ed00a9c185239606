"""Symbios and LSI 53C8xx, parallel SCSI (SYM8751SP). Its queue_depth is read-only.

Ids are from sym_defs.h: the SYM8751SP carries a 53C875, which other boards also carry.
"""

from hbatune.facts.family import (
    Depth,
    Family,
    Interrupts,
    Option,
    Product,
    Purpose,
    Vectors,
    assume_protocol,
)
from hbatune.facts.model import Protocol

FAMILY = Family(
    name="sym53c8xx",
    drivers=frozenset({"sym53c8xx"}),
    products=(
        Product("Symbios 53C875", 0x1000, 0x000F, document="Symbios SYM8751SP (D1)"),
        Product("LSI 53C895A", 0x1000, 0x0012),
    ),
    protocol=assume_protocol(Protocol.SPI),
    depth=Depth.FIXED,
    interrupts=Interrupts(Vectors.INTX, "drivers/scsi/sym53c8xx_2/sym_glue.c: sym_attach"),
    # A depth of 0 or 1 means no tagged queuing; 64 is SYM_CONF_MAX_TAG (sym53c8xx.h).
    options=(Option("cmd_per_lun", Purpose.LUN_DEPTH, 2, 64, shown=False, default=16),),
)
