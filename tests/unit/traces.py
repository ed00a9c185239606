"""Traces of made-up disks."""

from array import array
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

from hbatune.probe.trace_file import Trace, TraceHeader, encode_trace

DISK_BYTES = 1 << 30

Io = tuple[int, int, int, int, int]
"""Arrival in µs, first sector, sectors, latency in µs, and 1 for a write."""


def trace(ios: Sequence[Io], *, seconds: float = 1.0, lost: int = 0) -> Trace:
    """Return the trace of these I/Os."""
    header = TraceHeader(
        target="sda",
        disk_bytes=DISK_BYTES,
        seconds=seconds,
        ios=len(ios),
        events=100,
        lost=lost,
        time=1.8e9,
    )
    columns = [array(type, [io[place] for io in ios]) for place, type in enumerate("QQIIB")]
    return Trace(header, *columns)


def save(path: Path, ios: Sequence[Io], *, seconds: float = 1.0, lost: int = 0) -> Path:
    """Write the file of such a trace."""
    path.write_bytes(encode_trace(trace(ios, seconds=seconds, lost=lost)))
    return path


def steady_ios(count: int, *, every_us: int = 1000, writes: int = 0) -> list[Io]:
    """Return I/Os of 8 KiB at regular times, the last of which write."""
    return [
        (number * every_us, 16 * number, 16, 200, int(number >= count - writes))
        for number in range(count)
    ]


def any_traces() -> st.SearchStrategy[Trace]:
    """Return a strategy for traces of up to 60 I/Os within one second."""
    sectors = DISK_BYTES // 512
    io = st.tuples(
        st.integers(0, 1_000_000),
        st.integers(0, sectors - 1024),
        st.integers(1, 1024),
        st.integers(0, 50_000),
        st.integers(0, 1),
    )
    return st.lists(io, max_size=60).map(lambda ios: trace(sorted(ios)))
