"""Turn a trace into logs for fio, which replays its I/Os at their original times.

Several jobs share the I/Os. A wait in a log of version 2 ends at a time since fio's start
(read_iolog_get), so no replay drifts, unlike with relative waits. It lasts whole milliseconds.

I/Os that start together, or as soon as an earlier one is completed, are a group without such waits:
an asynchronous job starts as many at once as the application did, and the others after completions.
During a wait, fio collects no completions (read_iolog_get), so latencies would be too long. The job
therefore first waits for all I/Os of the group, by fio's ``thinktime``.
"""

import math
import os
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from statistics import median_low

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.probe.result import REPLAY_GRACE_S, Pattern, TracePart, Workload
from hbatune.probe.trace_file import SECTOR_BYTES, Trace, load_trace, select_busiest

MAX_JOBS = 1024
MAX_DEPTH = 256
"""I/Os that start together, at most."""
SLACK_US = 2000  # between two groups of a job: waits are imprecise, and a disk may be slower
FOLLOW_US = 500
"""The longest pause before an I/O of a job that does one at a time, or the longest gap between two
that start together. Both are also small parts of a latency."""
MAX_RUN = 512  # I/Os that follow each other; the next begins on time, so delays end
_START_US = 20  # from a completion to the next I/O of a job without a pause
_MAX_BUFFERS = 1 << 30  # bytes of all jobs; the file may be a stranger's
_LEAD_IN_S = 1.0
_IOS_PER_LEAD_IN_S = 200_000  # read from the logs while the first I/O waits
_ALIGNMENT = 4096  # of an I/O at another address: no disk has larger logical blocks


class IoGroup(Struct):
    """I/Os by number: ``depth`` of them start together, and each other one after a completion.

    Before some, there are ``long_pauses``. One that is not ``open`` gets no further I/O. Mutable.
    """

    numbers: list[int]
    depth: int = 1
    long_pauses: int = 0
    is_open: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """The depth, and the number of I/Os if it matters: all groups of a job have one shape."""
        return self.depth, len(self.numbers) if self.depth > 1 else 1


class ReplayJob(Struct):
    """A job of fio: its log, and the groups in it. Mutable.

    A job with a ``depth`` above 1 waits for its I/Os after each group of ``blocks``. Another one
    does one I/O at a time, and waits ``pause_us`` after each.
    """

    depth: int = 1
    blocks: int = 1
    groups: list[IoGroup] = []
    log: str = ""
    pause_us: int = 0


def make_replay(path: Path, seconds: float | None = None, *, writes: bool = False) -> Workload:
    """Return the workload that replays the trace in a file, or its busiest part of this length.

    Without ``writes`` it only reads. Raises UsageError for a file without such I/Os.
    """
    name = os.path.abspath(path)
    if not name.isprintable():  # the history contains it
        raise UsageError(f"the name {name!r} is not printable", hint="rename the trace")
    part = load_part(name, seconds)
    numbers = list_numbers(part, writes=writes)
    if not numbers:
        raise UsageError(f"{name!r} has no I/Os to replay", hint="--file also replays writes")
    buffers = 0
    for job in deal_groups(part, find_groups(part, numbers)):
        sizes = (part.sizes[number] for group in job.groups for number in group.numbers)
        buffers += SECTOR_BYTES * job.depth * max(sizes)
    if buffers > _MAX_BUFFERS:
        problem = f"{name!r} takes {buffers >> 20} MiB of buffers, more than {_MAX_BUFFERS >> 20}"
        raise UsageError(problem, hint="replay a part with fewer large I/Os: --runtime")
    reads = 1 - sum(part.writes[number] for number in numbers) / len(numbers)
    pattern = {0.0: Pattern.RANDOM_WRITE, 1.0: Pattern.RANDOM_READ}.get(reads)
    mean_kib = sum(part.sizes[number] for number in numbers) / len(numbers) / 2
    trace_part = TracePart(
        path=name,
        rate=len(numbers) / part.header.seconds,
        unit=SECTOR_BYTES * math.gcd(*part.sectors, *part.sizes),
        unwritten=0.0 if writes else part.write_fraction,
        lost=part.header.lost_fraction,
    )
    return Workload(
        pattern=pattern or Pattern.RANDOM_MIX,
        block_size=1024 * max(1, round(mean_kib)),
        depth=count_in_flight(part, numbers),
        ramp=_LEAD_IN_S + len(numbers) / _IOS_PER_LEAD_IN_S,
        runtime=part.header.seconds,
        reads=round(100 * reads),
        rate=max(1, round(trace_part.rate)),
        trace=trace_part,
    )


@lru_cache(maxsize=4)  # for all runs of a comparison
def load_part(name: str, seconds: float | None) -> Trace:
    """Return the trace in a file, or its busiest part of this length."""
    if seconds is None:
        return load_trace(Path(name))
    trace = load_part(name, None)
    return trace if seconds >= trace.header.seconds else select_busiest(trace, seconds)


def make_jobs(workload: Workload, size: int, max_depth: int) -> tuple[list[ReplayJob], int]:
    """Return the jobs of a workload on a device of ``size`` bytes; none without a trace.

    At most ``max_depth`` I/Os start together. The number of I/Os beyond the end of the device
    follows.
    """
    if workload.trace is None:
        return [], 0
    part = load_part(workload.trace.path, workload.runtime)
    numbers = list_numbers(part, writes=workload.writes)
    ends = (part.sectors[number] + part.sizes[number] for number in numbers)
    moved = sum(SECTOR_BYTES * end > size for end in ends)
    # The last job has no I/Os, so it is never late, and ends the others.
    jobs = [*deal_groups(part, find_groups(part, numbers, max_depth)), ReplayJob()]
    lead_in_ms = round(1000 * workload.ramp)
    for job in jobs:
        job.log = format_log(part, job.groups, lead_in_ms, size)
        job.pause_us = find_pause(part, job.groups)
    return jobs, moved


def list_numbers(trace: Trace, *, writes: bool) -> list[int]:
    """Return the numbers of the I/Os to replay: without ``writes`` those that read."""
    return [number for number, write in enumerate(trace.writes) if writes or not write]


def count_in_flight(trace: Trace, numbers: Sequence[int]) -> int:
    """Return the maximum number of these I/Os that are in flight together."""
    ends_us = sorted(trace.arrivals_us[n] + max(1, trace.latencies_us[n]) for n in numbers)
    counts = []
    for begun, number in enumerate(numbers, 1):
        counts.append(begun - bisect_right(ends_us, trace.arrivals_us[number]))
    return max(counts, default=0)


def find_groups(trace: Trace, numbers: Sequence[int], max_depth: int = MAX_DEPTH) -> list[IoGroup]:
    """Return these I/Os in groups of at most this depth, by their begins."""
    groups = []
    for group in _collect_groups(trace, numbers, max_depth):
        # Its job replays no pauses, so most of them have to be short.
        if 4 * group.long_pauses > len(group.numbers) - group.depth:
            del group.numbers[group.depth :]
        if group.depth > 1:
            groups.append(group)
    together = {number for group in groups for number in group.numbers}
    others = [number for number in numbers if number not in together]
    groups += _collect_groups(trace, others, 1)
    return sorted(groups, key=lambda group: group.numbers[0])


def _collect_groups(trace: Trace, numbers: Iterable[int], max_depth: int) -> list[IoGroup]:
    """Return these I/Os in groups by their begins.

    An I/O follows a completion shortly before it that no other I/O follows. Otherwise it starts
    together with the latest group, if it arrived right after it, or a new group.
    """
    groups = list[IoGroup]()
    # The completion in µs, the number and the group of I/Os in flight, and of completed ones.
    busy, recent = list[tuple[int, int, IoGroup]](), deque[tuple[int, int, IoGroup]]()
    for number in numbers:
        begin_us = trace.arrivals_us[number]
        while busy and busy[0][0] <= begin_us:
            recent.append(heappop(busy))
        group = None
        while recent and group is None:
            completed_us, completed, earlier = recent.popleft()
            pause_us, latency_us = begin_us - completed_us, trace.latencies_us[completed]
            # Something else may have taken the CPU of an application that starts many together.
            longest_us = min(FOLLOW_US, latency_us // 4) if earlier.depth == 1 else latency_us // 2
            if pause_us > longest_us:
                earlier.is_open = False  # fewer of its I/Os are in flight from now on
            elif earlier.is_open:
                group = earlier
                group.long_pauses += pause_us > latency_us // 16
        latest = groups[-1] if groups else None
        if group is None and latest and len(latest.numbers) == latest.depth < max_depth:
            last = latest.numbers[-1]  # none of its I/Os has been completed
            gap_us, latency_us = begin_us - trace.arrivals_us[last], trace.latencies_us[last]
            if latest.is_open and gap_us <= min(FOLLOW_US, latency_us // 16):
                group = latest
                group.depth += 1
        if group is None:
            group = IoGroup([])
            groups.append(group)
        group.numbers.append(number)
        if len(group.numbers) == MAX_RUN * group.depth:
            group.is_open = False
        heappush(busy, (begin_us + trace.latencies_us[number], number, group))
    return groups


def deal_groups(trace: Trace, groups: Iterable[IoGroup]) -> list[ReplayJob]:
    """Return the jobs that do the groups. Between two of its groups, each has ``SLACK_US``.

    All groups of a job have one shape. With ``MAX_JOBS`` jobs, the job that is free first gets a
    group, and starts it late. If none has the group's shape, it is one that does single I/Os.
    """
    single = (1, 1)
    jobs = [ReplayJob()]
    free = defaultdict(list, {single: [(0, 0)]})  # the time in µs and the index of jobs, by shape
    for group in groups:
        begin_us = trace.arrivals_us[group.numbers[0]]
        heap = free[group.shape]
        if len(jobs) < MAX_JOBS and not (heap and heap[0][0] <= begin_us):
            late_us, index = 0, len(jobs)
            jobs.append(ReplayJob(*group.shape))
        else:
            heap = heap or free[single]
            free_us, index = heappop(heap)
            late_us = max(0, free_us - begin_us)
        jobs[index].groups.append(group)
        end_us = max(trace.arrivals_us[n] + trace.latencies_us[n] for n in group.numbers)
        heappush(heap, (end_us + late_us + SLACK_US, index))
    return [job for job in jobs if job.groups]


def find_pause(trace: Trace, groups: Iterable[IoGroup]) -> int:
    """Return the median of the pauses in µs before the I/Os of a job that follow another one."""
    pauses = []
    for group in groups:
        for earlier, later in pairwise(group.numbers):
            completed_us = trace.arrivals_us[earlier] + trace.latencies_us[earlier]
            pauses.append(trace.arrivals_us[later] - completed_us)
    return max(0, median_low(pauses or [0]) - _START_US)


def format_log(trace: Trace, groups: Iterable[IoGroup], lead_in_ms: int, size: int) -> str:
    """Return the log of one job, whose I/Os begin after the lead-in (fio's HOWTO: Trace files).

    The job file replaces the name of the device.
    """
    lines = ["fio version 2 iolog", "disk add", "disk open"]
    end_ms = lead_in_ms + round(1000 * (trace.header.seconds + REPLAY_GRACE_S))
    closing = [f"disk wait {end_ms} 0"]
    if not groups:
        # fio 3.39 opens the disk of a log without I/O for writes. An engine without a disk does it.
        closing.append("disk read 0 512")
    for group in groups:
        for place, number in enumerate(group.numbers):
            if group.depth == 1 or place == 0:
                # An I/O after a pause may be a little early, but no run of them gets ahead.
                begin_ms = trace.arrivals_us[number] // 1000 - (place > 0)
                lines.append(f"disk wait {lead_in_ms + begin_ms} 0")
            offset, length = (
                SECTOR_BYTES * trace.sectors[number],
                SECTOR_BYTES * trace.sizes[number],
            )
            offset, length = place_io(offset, length, size)
            lines.append(f"disk {'write' if trace.writes[number] else 'read'} {offset} {length}")
    return "\n".join([*lines, *closing, "disk close", ""])


def place_io(offset: int, length: int, size: int) -> tuple[int, int]:
    """Return the offset and length of an I/O on a device of ``size`` bytes, wrapped into it."""
    if offset + length <= size:
        return offset, length
    length = min(length, size)
    offset %= size - length + 1
    return offset - offset % _ALIGNMENT, length
