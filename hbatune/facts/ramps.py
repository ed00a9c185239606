"""Read evidence of a lowered queue depth: error counts and the pace of the ramp."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from msgspec import Struct

from hbatune.facts.attributes import ERROR_COUNTER, parse_error_count, parse_integer
from hbatune.facts.families import family_named
from hbatune.facts.model import Endpoint
from hbatune.facts.survey import survey_requests
from hbatune.workers import WorkerPool

# Milliseconds; it exists if the driver lets queue_depth be set (drivers/scsi/scsi_sysfs.c).
_PERIOD = "device/queue_ramp_up_period"


class Ramp(Struct, frozen=True):
    """The errors of all LUNs of the target, and the seconds in which a depth rises by one.

    The kernel lowers and raises all LUNs of a target together (drivers/scsi/scsi_error.c:
    scsi_handle_queue_full). The seconds are None if they were not requested.
    """

    errors: int
    step_seconds: float | None


def find_ramps(
    endpoints: Iterable[Endpoint],
    lowered: Collection[str],
    *,
    deadline: float,
    worker_pool: WorkerPool | None = None,
) -> dict[str, Ramp]:
    """Return, by id, the ramps of the LUNs whose driver lowers their depth on a full queue.

    The pace is read only for ``lowered`` ids; ``deadline`` is in seconds.
    """
    luns = [lun for lun in endpoints if lun.address and family_named(lun.family).depth_ramps]
    wanted = {}
    for lun in luns:
        wanted[lun.sysfs] = (ERROR_COUNTER, _PERIOD) if lun.id in lowered else (ERROR_COUNTER,)
    survey = survey_requests(wanted, deadline=deadline, worker_pool=worker_pool)
    # Summed by target: one LUN's full queue lowers all of them (scsi_handle_queue_full).
    errors: dict[str, int] = defaultdict(int)
    for lun in luns:
        errors[lun.scsi_target] += parse_error_count(survey[lun.sysfs]) or 0
    ramps = {}
    for lun in luns:
        period = parse_integer(survey[lun.sysfs], _PERIOD)
        seconds = period / 1000 if isinstance(period, int) else None
        ramps[lun.id] = Ramp(errors[lun.scsi_target], seconds)
    return ramps
