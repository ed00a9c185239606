"""Format numbers, times and workloads. No other module decides their form."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hbatune.policy.profile import ProbeSpec
from hbatune.probe.result import Pattern, Workload
from hbatune.shipped import find_message

if TYPE_CHECKING:
    from hbatune.probe.history import Record


_KIB, _MIB = 1 << 10, 1 << 20

_SHOWN_SETTINGS = ("scheduler", "nr_requests", "queue_depth")
"""The settings that affect results most."""


def format_time(seconds: float) -> str:
    """Return the date and time of a time in seconds since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def format_conditions(record: Record) -> str:
    """Return one sentence with the time and conditions of a measurement."""
    conditions = [f"kernel {record.kernel}"]
    if record.result is not None:
        for setting in record.result.settings:
            if setting.target == record.target and setting.setting in _SHOWN_SETTINGS:
                conditions.append(f"{setting.setting} {setting.value}")
        if record.result.temperature is not None:
            conditions.append(f"{record.result.temperature:.0f} °C")
    return f"Measured {format_time(record.time)}: {', '.join(conditions)}."


def format_latency(us: float) -> str:
    """Return a latency with its unit."""
    if us < 1000:
        return f"{format_digits(us)} µs"
    ms = us / 1000
    return f"{format_digits(ms)} ms" if ms < 1000 else f"{format_digits(us / 1_000_000)} s"


def format_rate(iops: float) -> str:
    """Return I/Os per second, with commas between thousands."""
    return f"{iops:,.0f}" if iops >= 100 else format_digits(iops)


def format_block_size(size: int) -> str:
    """Return a block size: ``4K``, ``1M``, or bytes if it is not a multiple of one K."""
    if size % _MIB == 0:
        return f"{size // _MIB}M"
    return f"{size // _KIB}K" if size % _KIB == 0 else str(size)


def format_pattern(workload: Workload) -> str:
    """Return the pattern of a workload as text, without depth and block size."""
    words = find_message(workload.pattern)
    if workload.trace is not None:
        words = "I/Os of a trace" if workload.writes else "reads of a trace"
    if workload.pattern is Pattern.RANDOM_MIX:
        words += f", {workload.reads} % reads"
    return words


def format_workload(workload: Workload) -> str:
    """Return a workload as text: ``4K random reads, 24 deep``."""
    shape = f"{format_block_size(workload.block_size)} {format_pattern(workload)}"
    return f"{shape}, {workload.issued} deep{format_writer(workload)}"


def format_profile_load(spec: ProbeSpec) -> str:
    """Return the load of a profile as text, with its source."""
    shape = f"{format_block_size(spec.block_bytes)} {find_message(Pattern(spec.pattern))}"
    return f"{shape}, {spec.depth} in flight ({spec.source})"


def format_writer(workload: Workload) -> str:
    """Return a suffix if the workload has a background writer, or an empty string."""
    return " with a bulk writer" if workload.writer else ""


def format_short_workload(workload: Workload) -> str:
    """Return a short text for a workload, with fio's name of the pattern."""
    mix = workload.pattern is Pattern.RANDOM_MIX
    share = f" {workload.reads}/{100 - workload.reads}" if mix else ""
    pattern = "trace" if workload.trace else workload.pattern
    shape = f"{format_block_size(workload.block_size)} {pattern}{share}"
    return f"{shape}, {workload.issued} deep{format_writer(workload)}"


def format_digits(value: float) -> str:
    """Return a number with three significant digits, or all digits before the point."""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f}"


def format_percent(share: float) -> str:
    """Return a fraction (0 to 1) in percent."""
    return f"{share:.0%}".replace("%", " %")


def format_change(ratio: float) -> str:
    """Return a ratio as a change in percent, with its sign."""
    return f"{ratio - 1:+.0%}".replace("%", " %")


def format_duration(seconds: float) -> str:
    """Return a duration in the largest unit that fits."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    if seconds < 7200:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 172_800 else f"{round(seconds / 86_400)} days"
