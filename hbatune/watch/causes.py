"""Find the cause of a disk's latency in the events of its requests. Pure.

A request has three stages: an I/O waits for it, it waits for its issue to the driver, and the drive
executes it. If a limit was reached during a wait, its setting is the cause.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from math import ceil
from statistics import fmean, median

from msgspec import Struct

from hbatune.act.block_trace import TracedRequest
from hbatune.facts.cgroups import IoLimit
from hbatune.settings.table import SETTINGS

MIN_REQUESTS = 100
"""The smallest number of requests that has a p99."""
MIN_SHARE = 0.1
"""The smallest share of the p99 that is worth a change."""
_REACHED = 0.9
"""The fraction of a limit that counts as reached: a completion is traced before the kernel reuses
its command, so the number during a wait is slightly below the limit."""


class Stage(StrEnum):
    """A stage of a request."""

    REQUEST = "bio-to-request"
    ISSUE = "request-to-issue"
    DRIVE = "issue-to-completion"


class LatencyCause(StrEnum):
    """A cause of latency. One with the name of a setting is that setting."""

    QUEUE_DEPTH = "queue_depth"
    NR_REQUESTS = "nr_requests"
    ASYNC_DEPTH = "async_depth"
    SCHEDULER = "scheduler"
    WRITEBACK = "wbt_lat_usec"
    TAGS = "hardware-tags"
    SIBLING = "shared-tags"
    IO_MAX = "io.max"
    IO_LATENCY = "io.latency"
    IO_COST = "io.cost"
    IRQ_AFFINITY = "irq_affinity"
    INTERRUPT = "interrupt"
    DRIVE = "drive"
    UNKNOWN = "unknown"


_COMMAND_LIMITS = (LatencyCause.QUEUE_DEPTH, LatencyCause.TAGS, LatencyCause.SIBLING)


class StageTime(Struct, frozen=True):
    """The mean time of a stage, and its shares (0 to 1) of the mean and of the p99."""

    stage: Stage
    mean_us: float
    mean_share: float
    p99_share: float


class QueueLimits(Struct, frozen=True, kw_only=True):
    """The limits of a disk, None if unknown.

    ``depth`` is the number of commands that it may have in the driver, ``tags`` of its tag set.
    ``siblings`` are the mean commands in the driver of other disks with this tag set. The cgroup
    ``limited`` is at its limit in io.max. ``interrupts`` can be moved, and are by their CPU.
    """

    scheduler: str | None = None
    requests: int | None = None
    async_depth: int | None = None
    wbt_us: int | None = None
    depth: int | None = None
    tags: int | None = None
    siblings: Mapping[str, float] = {}
    cgroups: tuple[IoLimit, ...] = ()
    limited: str | None = None
    interrupts: Mapping[int, str] = {}


_NamedCause = tuple[LatencyCause, str | None]  # with its culprit


class Diagnosis(Struct, frozen=True):
    """The cause of a p99, or None if the load was too small.

    ``gain`` is the largest share of the p99 that the setting can win. ``culprit`` is the interrupt
    to move, or the cgroup, the sibling or the CPU behind another cause.
    """

    cause: LatencyCause | None = None
    gain: float = 0.0
    culprit: str | None = None


def select_tail(requests: Iterable[TracedRequest]) -> list[TracedRequest]:
    """Return the requests at and above the p99, the fastest first."""
    ordered = sorted(requests, key=lambda request: sum(request.stages))
    return ordered[ceil(0.99 * len(ordered)) - 1 :]


def measure_stages(requests: Sequence[TracedRequest]) -> tuple[StageTime, ...]:
    """Return the time of each stage of at least one request."""
    tail = select_tail(requests)
    total_us = fmean(sum(request.stages) for request in requests) or 1
    tail_total_us = fmean(sum(request.stages) for request in tail) or 1
    times = []
    for index, stage in enumerate(Stage):
        mean_us = fmean(request.stages[index] for request in requests)
        tail_us = fmean(request.stages[index] for request in tail)
        times.append(StageTime(stage, mean_us, mean_us / total_us, tail_us / tail_total_us))
    return tuple(times)


def find_cause(requests: Sequence[TracedRequest], limits: QueueLimits) -> Diagnosis:
    """Return the cause of the p99, if there are enough requests."""
    by_cgroup = Diagnosis(LatencyCause.IO_MAX, culprit=limits.limited)
    if len(requests) < MIN_REQUESTS:
        return by_cgroup if limits.limited else Diagnosis()
    tail = select_tail(requests)
    request, issue, drive = (time.p99_share for time in measure_stages(requests))
    wait, (cause, culprit) = request, _find_request_wait(tail, limits)
    issue_cause, issue_culprit = _find_issue_wait(tail, limits)
    if issue_cause in _COMMAND_LIMITS and issue >= MIN_SHARE * (issue + drive):
        # It also delays the requests: more of them would only wait longer for their issue.
        wait, cause, culprit = request + issue, issue_cause, issue_culprit
    elif issue > request:
        wait, cause, culprit = issue, issue_cause, issue_culprit
    cpu_wait = sum(request.waited for request in tail) / (sum(sum(r.stages) for r in tail) or 1)
    if cpu_wait >= max(MIN_SHARE, wait):
        cpu = max(tail, key=lambda request: request.waited).cpu
        if interrupt := limits.interrupts.get(cpu):
            return Diagnosis(LatencyCause.IRQ_AFFINITY, cpu_wait, interrupt)
        return Diagnosis(LatencyCause.INTERRUPT, culprit=f"cpu{cpu}")
    if wait >= MIN_SHARE:
        is_vague = cause is LatencyCause.UNKNOWN and (limits.limited or drive > 2 * wait)
        # A cgroup's limit lets I/Os pass in bursts, which then wait in the scheduler.
        if not (is_vague or (limits.limited and cause is LatencyCause.SCHEDULER)):
            return Diagnosis(cause, wait if cause in SETTINGS else 0.0, culprit)
    # The kernel holds such an I/O before its first event (block/blk-throttle.c).
    return by_cgroup if limits.limited else Diagnosis(LatencyCause.DRIVE)


def _find_request_wait(tail: Collection[TracedRequest], limits: QueueLimits) -> _NamedCause:
    """Return the cause of a wait for a request. With scheduler ``none``, a request is a tag."""
    allocated = median(request.allocated for request in tail)
    writes = sum(request.operation[0] == "W" for request in tail) >= len(tail) / 2
    if limits.scheduler == "none" and (tag_wait := _find_tag_wait(allocated, limits)):
        return tag_wait
    if _is_reached(allocated, limits.requests):
        return LatencyCause.NR_REQUESTS, None
    if writes and _is_reached(allocated, limits.async_depth):
        return LatencyCause.ASYNC_DEPTH, None
    # Free requests, and yet a wait: the kernel holds the I/O back (block/blk-rq-qos.h).
    for cause in (LatencyCause.IO_LATENCY, LatencyCause.IO_COST):
        for limit in limits.cgroups:
            if limit.file.startswith(cause):
                return cause, limit.cgroup
    return (LatencyCause.WRITEBACK if writes and limits.wbt_us else LatencyCause.UNKNOWN), None


def _find_issue_wait(tail: Collection[TracedRequest], limits: QueueLimits) -> _NamedCause:
    """Return the cause of a wait between a request and its issue."""
    issued = median(request.issued for request in tail)
    if _is_reached(issued, limits.depth):
        return LatencyCause.QUEUE_DEPTH, None
    if tag_wait := _find_tag_wait(issued, limits):
        return tag_wait
    return (LatencyCause.UNKNOWN if limits.scheduler == "none" else LatencyCause.SCHEDULER), None


def _find_tag_wait(used: float, limits: QueueLimits) -> _NamedCause | None:
    """Return the cause if this disk has used up the tag set, or its part of it.

    Disks that use one tag set get equal parts of it, at least 4 tags (block/blk-mq.h:
    hctx_may_queue).
    """
    active = [name for name, commands in limits.siblings.items() if commands >= 1]
    if active and limits.tags and _is_reached(used, max(ceil(limits.tags / (len(active) + 1)), 4)):
        return LatencyCause.SIBLING, max(active, key=limits.siblings.__getitem__)
    return (LatencyCause.TAGS, None) if _is_reached(used, limits.tags) else None


def _is_reached(count: float, limit: int | None) -> bool:
    return limit is not None and count >= _REACHED * limit
