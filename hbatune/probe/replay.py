"""Turn a trace into logs for fio, which replays its I/Os at their original times.

Several jobs share the I/Os, and each does one at a time, as a log with waits requires: fio 3.23 to
3.36 sleeps between two I/Os of one asynchronous job without collecting completions (iolog.c:
iolog_delay), so its latencies are too long. These waits also add up. A wait in a log of version 2
ends at a time since fio's start (read_iolog_get), so no replay drifts. It lasts whole milliseconds.

An I/O that the application started as soon as another one was completed would often start before
that. The same job therefore does both. It pauses as long as the median of the originals.
"""

import math
import os
from collections import deque
from collections.abc import Collection
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path
from statistics import median_low

from hbatune.errors import UsageError
from hbatune.probe.result import REPLAY_GRACE_S, Pattern, TracePart, Workload
from hbatune.probe.trace_file import SECTOR_BYTES, Trace, load_trace, select_busiest

MAX_JOBS = 1024
SLACK_US = 2000  # between two I/Os of a job: waits are imprecise, and a disk may be slower
FOLLOW_US = 500
"""The longest pause after a completion that an I/O follows, if this is a quarter of its latency."""
MAX_RUN = 64  # I/Os of a job that follow each other; the next begins on time, so delays end
_START_US = 20  # from a completion to the next I/O of a job without a pause
_MAX_BUFFERS = 1 << 30  # bytes of all jobs; the file may be a stranger's
_LEAD_IN_S = 1.0
_IOS_PER_LEAD_IN_S = 200_000  # read from the logs while the first I/O waits
_ALIGNMENT = 4096  # of an I/O at another address: no disk has larger logical blocks


def make_replay(path: Path, seconds: float | None = None, *, writes: bool = False) -> Workload:
    """Return the workload that replays the trace in a file, or its busiest part of this length.

    Without ``writes`` it only reads. Raises UsageError for a file without such I/Os.
    """
    name = os.path.abspath(path)
    if not name.isprintable():  # the history contains it
        raise UsageError(f"the name {name!r} is not printable", hint="rename the trace")
    part = load_part(name, seconds)
    jobs, _ = deal_ios(part, writes=writes, slack_us=0)
    numbers = [number for job in jobs for number in job]
    if not numbers:
        raise UsageError(f"{name!r} has no I/Os to replay", hint="--file also replays writes")
    buffers = SECTOR_BYTES * sum(max(part.sizes[number] for number in job) for job in jobs)
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
        depth=len(jobs),
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


def format_logs(workload: Workload, size: int) -> tuple[list[str], list[int], int]:
    """Return the logs of a workload's jobs on a device of ``size`` bytes; none without a trace.

    The pause in µs of each job follows, and the number of I/Os beyond the end of the device.
    """
    if workload.trace is None:
        return [], [], 0
    part = load_part(workload.trace.path, workload.runtime)
    jobs, pauses = deal_ios(part, writes=workload.writes)
    # The last job has no I/Os, so it is never late, and ends the others.
    jobs.append([])
    ends = (part.sectors[number] + part.sizes[number] for job in jobs for number in job)
    moved = sum(SECTOR_BYTES * end > size for end in ends)
    medians_us = []
    for job in jobs:
        values = [pauses[number] for number in job if number in pauses]
        medians_us.append(max(0, median_low(values or [0]) - _START_US))
    lead_in_ms = round(1000 * workload.ramp)
    logs = [format_log(part, job, pauses, lead_in_ms, size) for job in jobs]
    return logs, medians_us, moved


def deal_ios(
    trace: Trace, *, writes: bool, slack_us: int = SLACK_US
) -> tuple[list[list[int]], dict[int, int]]:
    """Return the numbers of the I/Os of each job, and the pauses in µs before those that follow.

    By the original times, an I/O follows the last one of a job, or goes to a job whose last one was
    completed ``slack_us`` before. Without slack, there are as many jobs as there were I/Os in
    flight. With ``MAX_JOBS`` jobs, the one that is free first gets the I/O, and starts it late.
    """
    jobs, pauses = list[list[int]](), dict[int, int]()
    # Times in µs with jobs: of the completion, the same shortly after it, and of the end of slack.
    busy, recent, free = list[tuple[int, int]](), deque[tuple[int, int]](), list[tuple[int, int]]()
    columns = zip(trace.arrivals_us, trace.latencies_us, trace.writes, strict=True)
    for number, (begin_us, latency_us, write) in enumerate(columns):
        if write and not writes:
            continue
        while busy and busy[0][0] <= begin_us:
            recent.append(heappop(busy))
        while recent:
            end_us, job = recent.popleft()
            longest_us = min(FOLLOW_US, trace.latencies_us[jobs[job][-1]] // 4)
            if begin_us - end_us <= longest_us and len(jobs[job]) % MAX_RUN:
                pauses[number] = begin_us - end_us
                break
            heappush(free, (end_us + slack_us, job))
        else:
            if len(jobs) == MAX_JOBS or (free and free[0][0] <= begin_us):
                free_us, job = heappop(free or busy)
                begin_us = max(begin_us, free_us)
            else:
                job = len(jobs)
                jobs.append([])
        jobs[job].append(number)
        heappush(busy, (begin_us + latency_us, job))
    return jobs, pauses


def format_log(
    trace: Trace, numbers: list[int], pauses: Collection[int], lead_in_ms: int, size: int
) -> str:
    """Return the log of one job, whose I/Os begin after the lead-in (fio's HOWTO: Trace files).

    The job file replaces the name of the device.
    """
    lines = ["fio version 2 iolog", "disk add", "disk open"]
    for number in numbers:
        offset, length = SECTOR_BYTES * trace.sectors[number], SECTOR_BYTES * trace.sizes[number]
        offset, length = place_io(offset, length, size)
        # An I/O with a pause may be a little early, but no run of them gets ahead.
        begin_ms = trace.arrivals_us[number] // 1000 - (number in pauses)
        lines.append(f"disk wait {lead_in_ms + begin_ms} 0")
        lines.append(f"disk {'write' if trace.writes[number] else 'read'} {offset} {length}")
    end_ms = lead_in_ms + round(1000 * (trace.header.seconds + REPLAY_GRACE_S))
    lines.append(f"disk wait {end_ms} 0")
    if not numbers:
        # fio 3.39 opens the disk of a log without I/O for writes. An engine without a disk does it.
        lines.append("disk read 0 512")
    return "\n".join([*lines, "disk close", ""])


def place_io(offset: int, length: int, size: int) -> tuple[int, int]:
    """Return the offset and length of an I/O on a device of ``size`` bytes, wrapped into it."""
    if offset + length <= size:
        return offset, length
    length = min(length, size)
    offset %= size - length + 1
    return offset - offset % _ALIGNMENT, length
