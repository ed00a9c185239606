"""Read evidence of a lowered queue depth: error counts and the pace of the ramp."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from msgspec import Struct

from hbatune.facts.attributes import ERROR_COUNTER, parse_integer
from hbatune.facts.attributes import parse_error_count as counted
from hbatune.facts.families import family_named
from hbatune.facts.model import Endpoint, Missing
from hbatune.facts.survey import survey_requests
from hbatune.workers import WorkerPool

_PERIOD = "device/queue_ramp_up_period"
"""Milliseconds; it exists if the driver lets queue_depth be set (drivers/scsi/scsi_sysfs.c)."""


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
    luns = [
        endpoint
        for endpoint in endpoints
        if endpoint.address and family_named(endpoint.family).depth_ramps
    ]
    wanted = {
        lun.sysfs: (ERROR_COUNTER, _PERIOD) if lun.id in lowered else (ERROR_COUNTER,)
        for lun in luns
    }
    survey = survey_requests(wanted, deadline=deadline, worker_pool=worker_pool) if wanted else {}
    # Summed by target: one LUN's full queue lowers all of them (scsi_handle_queue_full).
    errors: dict[str, int] = defaultdict(int)
    for lun in luns:
        errors[_get_scsi_target(lun)] += counted(survey[lun.sysfs]) or 0
    return {
        lun.id: Ramp(
            errors[_get_scsi_target(lun)],
            _convert_to_seconds(parse_integer(survey[lun.sysfs], _PERIOD)),
        )
        for lun in luns
    }


def _get_scsi_target(endpoint: Endpoint) -> str:
    """Return the host, channel and target of a LUN."""
    assert endpoint.address is not None
    return endpoint.address.rpartition(":")[0]


def _convert_to_seconds(milliseconds: int | Missing) -> float | None:
    return None if isinstance(milliseconds, Missing) else milliseconds / 1000
