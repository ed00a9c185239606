"""Virtual SCSI of IBM Power: disks that a VIOS serves. Its hosts have no PCI function.

A LUN starts at a depth of 16 (ibmvscsi.h: IBMVSCSI_CMDS_PER_LUN_DEFAULT).
"""

from hbatune.facts import family, model

FAMILY = family.Family(
    name="ibmvscsi",
    protocol=family.assume_protocol(model.Protocol.VIRTUAL),
    depth_cap=lambda pci, host, evidence: 64,  # ibmvscsi.h: IBMVSCSI_MAX_CMDS_PER_LUN
    depth_default=family.read_host_depth,
    # drivers/scsi/ibmvscsi/ibmvscsi.c
    interrupts=family.Interrupts(family.Vectors.NONE),
)
