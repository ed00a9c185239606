"""virtio-blk: one disk per device, no SCSI host and no queue_depth."""

from hbatune.facts.family import Family

FAMILY = Family(name="virtio_blk", drivers=frozenset({"virtio_blk"}))
