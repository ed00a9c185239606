"""NVMe controllers, on PCI Express and over fabrics."""

from hbatune.facts.family import Family

FAMILY = Family(
    name="nvme",
    drivers=frozenset({"nvme"}),
    firmware=("firmware_rev",),
)
