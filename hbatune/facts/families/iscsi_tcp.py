"""iSCSI in software over any network card. It has no PCI function, firmware or interrupt.

Its host's command limit is node.session.cmds_max of open-iscsi, which is set at login.
"""

from hbatune.facts import family

FAMILY = family.Family(
    name="iscsi_tcp",
    depth_ramps=True,
    depth_default=family.read_host_depth,
    # drivers/scsi/iscsi_tcp.c
    interrupts=family.Interrupts(family.Vectors.NONE),
)
