"""iSCSI in software over any network card. No PCI function, no firmware, no interrupt of its own.

What its host takes in all is node.session.cmds_max of open-iscsi, which is set at login.
"""

from hbatune.facts.family import Family, Interrupts, Vectors, by_host

FAMILY = Family(
    name="iscsi_tcp",
    drivers=frozenset({"iscsi_tcp"}),
    depth_ramps=True,
    depth_default=by_host,
    interrupts=Interrupts(Vectors.NONE, "drivers/scsi/iscsi_tcp.c"),
)
