"""Adaptec AIC-7xxx, parallel SCSI (2940UW). Its queue_depth is read-only.

The id is ID_AHA_2940U of aic7xxx_pci.c, which the narrow and the wide card share.
"""

from hbatune.facts import family, model

FAMILY = family.Family(
    name="aic7xxx",
    products=(
        family.Product("Adaptec AHA-2940U/UW", 0x9004, 0x8178, document="Adaptec 2940UW (D1)"),
    ),
    protocol=family.assume_protocol(model.Protocol.SPI),
    depth=family.Depth.FIXED,
    # drivers/scsi/aic7xxx/aic7xxx_osm_pci.c: ahc_pci_map_int
    interrupts=family.Interrupts(family.Vectors.INTX),
    # The depth of every drive on every such card (aic7xxx_osm.c: ahc_linux_setup_tag_info_global);
    # 253 is AHC_MAX_QUEUE.
    options=(family.Option("aic7xxx", family.Purpose.LUN_DEPTH, 2, 253, key="global_tag_depth"),),
)
