"""The kernel's own simulated SCSI host."""

from hbatune.facts import family, model


def _shares_tags(parameters: family.Parameters, queues: int) -> bool:
    """Return whether an option limits the entire host (scsi_debug.c: sdebug_driver_probe)."""
    option = parameters.get("host_max_queue")
    return isinstance(option, model.Attribute) and option.text not in ("", "0")


FAMILY = family.Family(
    name="scsi_debug",
    protocol=family.assume_protocol(model.Protocol.VIRTUAL),
    depth_ramps=True,
    shares_tags=_shares_tags,
    # drivers/scsi/scsi_debug.c
    interrupts=family.Interrupts(family.Vectors.NONE),
    options=(
        family.Option("max_queue", family.Purpose.HOST_DEPTH),
        family.Option("host_max_queue", family.Purpose.HOST_DEPTH),
    ),
)
