from bisect import bisect_left
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.errors import UsageError
from hbatune.probe.trace_file import (
    Trace,
    anonymise_trace,
    encode_trace,
    load_trace,
    select_busiest,
)
from tests.unit.traces import any_traces, save, steady_ios, trace

in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@in_folder
@given(any_traces())
def test_file_preserves_trace(tmp_path: Path, recorded: Trace) -> None:
    path = tmp_path / "disk.trace"
    path.write_bytes(encode_trace(recorded))
    assert load_trace(path) == recorded


@in_folder
@given(st.data())
def test_damaged_file_raises_usage_error(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(encode_trace(trace(steady_ios(5))))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "disk.trace"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        loaded = load_trace(path)
    except UsageError:
        return
    assert list(loaded.arrivals_us) == sorted(loaded.arrivals_us)
    assert {len(column) for column in loaded.columns} == {loaded.header.ios}


@pytest.mark.parametrize(
    ("io", "message"),
    [
        ((1, 0, 8, 1, 0), "out of order"),
        ((2_000_000, 0, 8, 1, 0), "out of order"),
        ((900_000, 0, 0, 1, 0), "impossible size"),
        ((900_000, 0, 1 << 20, 1, 0), "impossible size"),
        ((900_000, (1 << 21) - 7, 8, 1, 0), "beyond the end"),
        ((900_000, 0, 8, 1, 2), "neither reads nor writes"),
    ],
)
def test_impossible_io_is_refused(
    tmp_path: Path, io: tuple[int, int, int, int, int], message: str
) -> None:
    path = save(tmp_path / "disk.trace", [*steady_ios(3), io])
    with pytest.raises(UsageError, match=message):
        load_trace(path)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"not a trace\n", b"[" * 3000 + b"\n"])
def test_other_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "disk.trace"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load_trace(path)
    assert "hbatune capture" in (caught.value.hint or "")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_trace(tmp_path / "disk.trace")


@given(any_traces(), st.floats(0.001, 1.5))
def test_busiest_part_has_most_ios(recorded: Trace, seconds: float) -> None:
    part, arrivals = select_busiest(recorded, seconds), list(recorded.arrivals_us)
    length_us = round(seconds * 1_000_000)
    counts = [bisect_left(arrivals, start + length_us) - n for n, start in enumerate(arrivals)]
    assert part.header.ios == len(part.arrivals_us) <= max(counts, default=0)
    assert not arrivals or part.arrivals_us[0] == 0
    assert all(arrival < length_us for arrival in part.arrivals_us)
    assert part.header.seconds == min(seconds, 1.0)


def test_burst_is_busiest_part() -> None:
    calm, burst = steady_ios(10, every_us=50_000), steady_ios(50, every_us=100)
    shifted = [(arrival + 600_000, *io) for arrival, *io in burst]
    part = select_busiest(trace([*calm, *shifted]), 0.01)  # type: ignore[list-item]
    assert part.header.ios == 50
    assert list(part.arrivals_us) == list(range(0, 5000, 100))


@given(any_traces(), st.integers(0, 9))
def test_anonymous_trace_moves_zones(recorded: Trace, seed: int) -> None:
    large = replace(recorded, header=replace(recorded.header, disk_bytes=(7 << 30) + 4096))
    moved = anonymise_trace(large, Random(seed))
    assert moved.header.target == ""
    assert moved.columns[2:] == large.columns[2:]
    assert moved.arrivals_us == large.arrivals_us
    for sector, size in zip(moved.sectors, moved.sizes, strict=True):
        assert (sector + size) * 512 <= large.header.disk_bytes
    zones = {sector >> 21 for sector in moved.sectors}
    assert len(zones) <= 1, "all I/Os were in one zone"
