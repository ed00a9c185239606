"""The workload that exercises what a plan changes, and what it cannot show of it. Pure.

A limit shows only where it is reached: two queue depths differ for a load that keeps more I/Os in
flight than the lower of them, and the load has to reach the higher one to be held back by it. So a
probe is as deep as the deepest limit that the plan changes, before or after, within what the medium
serves in the time of a short run.
"""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.model import Medium
from hbatune.plan.rows import Row
from hbatune.policy.model import ProbeSpec
from hbatune.probe.model import Pattern, Workload
from hbatune.probe.workloads import LARGEST_BLOCK, short_form

DEEPEST = 1024
"""I/Os in flight at most: at 6,000 a second the last of them waits a sixth of a second."""
DEEPEST_SPINNING = 128
"""The same on a spinning disk, where 128 at 150 a second wait for most of a second already."""
READS = 70
"""Percentage of reads where a probe may write: the mix of the documents' third OLTP (D4-7)."""
MOST_JOBS = 4
"""Jobs where the plan moves interrupts: one submitter alone meets one of them."""

_LIMITS = ("queue_depth", "nr_requests")
_SPREAD = frozenset({"irq_affinity", "rq_affinity"})
_BUFFERED = frozenset({"read_ahead_kb", "wbt_lat_usec"})
_SIZE = "max_sectors_kb"
_SLEEP = "pm_qos_latency_tolerance_us"


class Hidden(StrEnum):
    """Why a probe shows nothing, or not all, of what a setting does."""

    NOT_REACHED = "not_reached"  # the load stays below both values
    PARTLY = "partly"  # the load reaches the lower value, and not the higher one
    READS_ALONE = "reads_alone"  # a scheduler chooses between reads and writes
    BUFFERED = "buffered"  # for the page cache, which a probe passes by
    UNMERGED = "unmerged"  # random I/Os are next to nothing that they could be merged with
    TOO_SMALL = "too_small"  # no I/O is larger than the lower value
    AWAKE = "awake"  # a drive sleeps where nothing is asked of it for a while


class Unexercised(Struct, frozen=True):
    """A setting that a workload exercises in part or not at all.

    ``reach`` are the I/Os in flight or the KiB of a request that the probe reached, ``needed`` what
    it would take to exercise both values; None where the setting is no such limit.
    """

    setting: str
    why: Hidden
    reach: int | None = None
    needed: int | None = None


def follow_plan(
    rows: Sequence[Row], spec: ProbeSpec, medium: Medium, *, cpus: int = 1, writable: bool = False
) -> Workload:
    """Return the workload for what these rows change on one endpoint, its paths and adapters.

    ``spec`` is the profile's own probe, which is the least. ``cpus`` are those that the load may
    run on. With ``writable`` it is a mix that writes, for a file or an empty disk.
    """
    own = short_form(spec, Workload().runtime)
    deepest = DEEPEST_SPINNING if medium is Medium.HDD else DEEPEST
    wanted = max((_needed(rows, name) for name in _LIMITS), default=0)
    depth = max(own.depth, min(deepest, wanted))
    jobs = 1
    if any(row.setting in _SPREAD for row in rows):
        # All jobs together keep as many in flight as one would.
        jobs = max(1, min(MOST_JOBS, cpus, depth))
    block = own.block_size
    if rows and all(row.setting in (_SIZE, *_BUFFERED) for row in rows):
        # Larger I/Os would hide all else, so they are for requests' sizes alone.
        block = max(block, min(LARGEST_BLOCK, _needed(rows, _SIZE) * 1024))
    asked = replace(own, depth=-(-depth // jobs), jobs=jobs, block_size=block)
    return replace(asked, pattern=Pattern.RANDOM_MIX, reads=READS) if writable else asked


def unexercised_settings(rows: Sequence[Row], workload: Workload) -> tuple[Unexercised, ...]:
    """Return the settings of these rows that a workload does not exercise, each once."""
    found: dict[str, Unexercised] = {}
    for row in rows:
        hidden = _hidden(row.setting, rows, workload)
        if hidden is not None:
            found[row.setting] = hidden
    return tuple(found.values())


def _hidden(name: str, rows: Sequence[Row], workload: Workload) -> Unexercised | None:
    if name in _LIMITS:
        # Requests are counted for each hardware queue, and a job submits to one of them.
        reach = workload.depth if name == "nr_requests" else workload.issued
        return _reached(name, rows, reach, Hidden.NOT_REACHED)
    if name == _SIZE:
        return _reached(name, rows, workload.block_size // 1024, Hidden.TOO_SMALL)
    if name in _BUFFERED:
        return Unexercised(name, Hidden.BUFFERED)
    if name == _SLEEP:
        return Unexercised(name, Hidden.AWAKE)
    if name == "scheduler" and not workload.writes:
        return Unexercised(name, Hidden.READS_ALONE)
    if name == "nomerges" and workload.pattern not in (Pattern.READ, Pattern.WRITE):
        return Unexercised(name, Hidden.UNMERGED)
    return None


def _reached(name: str, rows: Sequence[Row], reach: int, below: Hidden) -> Unexercised | None:
    lower, upper = _least(rows, name), _needed(rows, name)
    if reach >= upper:
        return None
    return Unexercised(name, Hidden.PARTLY if reach > lower else below, reach, upper)


def _needed(rows: Sequence[Row], name: str) -> int:
    """Return what it takes to reach the higher value of a limit; paths share the load."""
    upper = {row.target: max(_values(row), default=0) for row in rows if row.setting == name}
    return max(upper.values(), default=0) * _shares(name, upper)


def _least(rows: Sequence[Row], name: str) -> int:
    """Return the load beyond which the two values differ."""
    lower = {row.target: min(_values(row), default=0) for row in rows if row.setting == name}
    return min(lower.values(), default=0) * _shares(name, lower)


def _shares(name: str, by_target: dict[str, int]) -> int:
    return 1 if name == _SIZE else len(by_target)


def _values(row: Row) -> list[int]:
    return [each for each in (row.current, row.value) if isinstance(each, int)]
