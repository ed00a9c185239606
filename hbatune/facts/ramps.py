"""Evidence whether the kernel or another tool lowered a queue depth: error counts, ramp pace."""

from collections import defaultdict
from collections.abc import Collection, Iterable

from msgspec import Struct

from hbatune.facts.attributes import Attributes
from hbatune.facts.families import family_named
from hbatune.facts.model import Attribute, Endpoint
from hbatune.facts.survey import survey_each
from hbatune.workers import WorkerPool

_ERRORS = "device/ioerr_cnt"
_PERIOD = "device/queue_ramp_up_period"
"""Milliseconds; it exists if the driver lets queue_depth be set (drivers/scsi/scsi_sysfs.c)."""


class Ramp(Struct, frozen=True):
    """The errors of all LUNs of the target, and the seconds in which a depth rises by one.

    The kernel lowers and raises all LUNs of a target together (drivers/scsi/scsi_error.c:
    scsi_handle_queue_full). The seconds are None if they were not asked for.
    """

    errors: int
    step_seconds: float | None


def ramps(
    endpoints: Iterable[Endpoint],
    lowered: Collection[str],
    *,
    deadline: float,
    worker_pool: WorkerPool | None = None,
) -> dict[str, Ramp]:
    """Return, by id, the ramps of the LUNs whose driver lowers their depth on a full queue.

    The pace is read for ``lowered`` ids alone; ``deadline`` is in seconds.
    """
    luns = [each for each in endpoints if each.address and family_named(each.family).depth_ramps]
    wanted = {each.sysfs: (_ERRORS, _PERIOD) if each.id in lowered else (_ERRORS,) for each in luns}
    found = survey_each(wanted, deadline=deadline, worker_pool=worker_pool) if wanted else {}
    # Summed by target: one LUN's full queue lowers all of them (scsi_handle_queue_full).
    errors: dict[str, int] = defaultdict(int)
    for each in luns:
        errors[_target(each)] += _number(found[each.sysfs], _ERRORS) or 0
    return {
        each.id: Ramp(errors[_target(each)], _seconds(_number(found[each.sysfs], _PERIOD)))
        for each in luns
    }


def _target(endpoint: Endpoint) -> str:
    """Return the host, channel and target of a LUN."""
    assert endpoint.address is not None
    return endpoint.address.rpartition(":")[0]


def _number(found: Attributes, name: str) -> int | None:
    value = found.get(name)
    try:
        # Base 0: the counter is hexadecimal with its 0x, the period is decimal.
        return int(value.text, 0) if isinstance(value, Attribute) else None
    except ValueError:
        return None


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
