"""iSCSI in software over any network card. It has no PCI function, firmware or interrupt.

Its host's command limit is node.session.cmds_max of open-iscsi, which is set at login.
"""

from hbatune.facts.family import Family, Interrupts, Vectors, read_host_depth

FAMILY = Family(
    name="iscsi_tcp",
    drivers=frozenset({"iscsi_tcp"}),
    depth_ramps=True,
    depth_default=read_host_depth,
    interrupts=Interrupts(Vectors.NONE, "drivers/scsi/iscsi_tcp.c"),
)
