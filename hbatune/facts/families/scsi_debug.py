"""The kernel's own simulated SCSI host."""

from hbatune.facts import family, model

FAMILY = family.Family(
    name="scsi_debug",
    protocol=family.assume_protocol(model.Protocol.VIRTUAL),
    depth_ramps=True,
    # The option limits the entire host (scsi_debug.c: sdebug_driver_probe).
    shares_tags=lambda parameters, queues: family.get_number(parameters, "host_max_queue") > 0,
    # drivers/scsi/scsi_debug.c
    interrupts=family.Interrupts(family.Vectors.NONE),
    options=(
        family.Option("max_queue", family.Purpose.HOST_DEPTH),
        family.Option("host_max_queue", family.Purpose.HOST_DEPTH),
    ),
)
