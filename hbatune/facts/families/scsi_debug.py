"""The kernel's own simulated SCSI host."""

from hbatune.facts.family import (
    Family,
    Interrupts,
    Option,
    Parameters,
    Purpose,
    Vectors,
    assume_protocol,
)
from hbatune.facts.model import Attribute, Protocol


def _shares_tags(parameters: Parameters, queues: int) -> bool:
    """Return whether an option limits the entire host (scsi_debug.c: sdebug_driver_probe)."""
    option = parameters.get("host_max_queue")
    return isinstance(option, Attribute) and option.text not in ("", "0")


FAMILY = Family(
    name="scsi_debug",
    drivers=frozenset({"scsi_debug"}),
    protocol=assume_protocol(Protocol.VIRTUAL),
    depth_ramps=True,
    shares_tags=_shares_tags,
    interrupts=Interrupts(Vectors.NONE, "drivers/scsi/scsi_debug.c"),
    options=(Option("max_queue", Purpose.HOST_DEPTH), Option("host_max_queue", Purpose.HOST_DEPTH)),
)
