from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.errors import UsageError
from hbatune.probe import replay
from hbatune.probe.replay import (
    MAX_JOBS,
    MAX_RUN,
    SLACK_US,
    deal_ios,
    format_log,
    format_logs,
    make_replay,
    place_io,
)
from hbatune.probe.result import Pattern
from hbatune.probe.trace_file import Trace
from tests.unit.traces import DISK_BYTES, any_traces, save, steady_ios, trace


@given(any_traces(), st.booleans(), st.sampled_from([0, SLACK_US]))
def test_jobs_share_all_ios(recorded: Trace, writes: bool, slack_us: int) -> None:
    jobs, pauses = deal_ios(recorded, writes=writes, slack_us=slack_us)
    permitted = [n for n, write in enumerate(recorded.writes) if writes or not write]
    assert sorted(number for job in jobs for number in job) == permitted
    for job in jobs:
        for first, second in pairwise(job):
            end = recorded.arrivals_us[first] + recorded.latencies_us[first]
            assert end + pauses.get(second, slack_us) <= recorded.arrivals_us[second]


@given(any_traces())
def test_jobs_equal_ios_in_flight(recorded: Trace) -> None:
    jobs, _ = deal_ios(recorded, writes=True, slack_us=0)
    spans = list(zip(recorded.arrivals_us, recorded.latencies_us, strict=True))
    in_flight = [
        sum(start + length > arrival for start, length in spans[:number]) + 1
        for number, (arrival, _) in enumerate(spans)
    ]
    assert len(jobs) == max(in_flight, default=0)


def test_completed_job_takes_next_io() -> None:
    recorded = trace([(0, 0, 8, 100, 0), (100, 8, 8, 100, 0), (199, 16, 8, 100, 0)])
    assert deal_ios(recorded, writes=False, slack_us=0) == ([[0, 1], [2]], {1: 0})


def test_closed_loop_stays_in_its_jobs() -> None:
    """Each of two jobs starts its next I/O 100 µs after the last one, but not for ever."""
    recorded = trace([(1100 * (n // 2), 8 * n, 8, 1000, 0) for n in range(4 * MAX_RUN)])
    jobs, pauses = deal_ios(recorded, writes=False)
    assert [job[:MAX_RUN] for job in jobs[:2]] == [
        [2 * place + job for place in range(MAX_RUN)] for job in range(2)
    ]
    assert [pauses.get(number) for number in jobs[0]] == [None, *[100] * (MAX_RUN - 1)]
    assert [len(job) for job in jobs] == 4 * [MAX_RUN]


@pytest.mark.parametrize(
    ("latency_us", "pause_us", "follows"),
    [(4000, 0, True), (4000, 500, True), (4000, 501, False), (400, 100, True), (400, 101, False)],
)
def test_io_follows_recent_completion(latency_us: int, pause_us: int, follows: bool) -> None:
    recorded = trace([(0, 0, 8, latency_us, 0), (latency_us + pause_us, 8, 8, 4000, 0)])
    jobs, pauses = deal_ios(recorded, writes=False)
    assert pauses == ({1: pause_us} if follows else {})
    assert len(jobs) == (1 if follows else 2)


def test_follower_waits_for_completion() -> None:
    recorded = trace([(0, 0, 8, 4000, 0), (4100, 8, 8, 4000, 0), (12_000, 8, 8, 4000, 0)])
    waits = [
        line.split()[2]
        for line in format_log(recorded, [0, 1, 2], {1: 100}, 1000, DISK_BYTES).splitlines()
        if "wait" in line
    ]
    assert waits == ["1000", "1003", "1012", "2100"], "the last one is a grace"


def test_pauses_are_originals_medians(tmp_path: Path) -> None:
    """Each job has its own pause, without the time of its start. The last job only waits."""
    ios = []
    for number in range(10):
        ios.append((5000 * number, 0, 8, 5000 - (9 if number == 4 else 150), 0))
        ios.append((5000 * number + 1000, 0, 8, 4960, 0))
    replayed = make_replay(save(tmp_path / "disk.trace", ios))
    assert format_logs(replayed, DISK_BYTES)[1] == [130, 20, 0]


def test_excess_ios_wait_for_jobs() -> None:
    recorded = trace([(0, 8 * number, 8, 500_000, 0) for number in range(MAX_JOBS + 10)])
    jobs, _ = deal_ios(recorded, writes=False)
    assert len(jobs) == MAX_JOBS
    assert sorted(map(len, jobs)) == [1] * (MAX_JOBS - 10) + [2] * 10


def test_trace_with_huge_buffers_is_refused(tmp_path: Path) -> None:
    largest = 64 << 11  # 64 MiB
    ios = [(number, 0, largest, 500_000, 0) for number in range(17)]
    assert make_replay(save(tmp_path / "16.trace", ios[1:])).depth == 16
    with pytest.raises(UsageError, match="1088 MiB of buffers"):
        make_replay(save(tmp_path / "17.trace", ios))


@given(st.integers(0, 1 << 24), st.integers(1, 1 << 12), st.integers(1, 1 << 12))
def test_io_stays_on_target(offset: int, sectors: int, size: int) -> None:
    length, size = 512 * sectors, 4096 * size
    placed, placed_length = place_io(512 * offset, length, size)
    assert placed >= 0
    assert placed + placed_length <= size
    assert placed_length == min(length, size)
    if 512 * offset + length <= size:
        assert placed == 512 * offset
    else:
        assert placed % 4096 == 0


def test_log_has_absolute_times() -> None:
    recorded = trace([(0, 8, 16, 100, 0), (2_999, 0, 8, 100, 1)])
    assert format_log(recorded, [0, 1], {}, 1500, DISK_BYTES).splitlines() == [
        "fio version 2 iolog",
        "disk add",
        "disk open",
        "disk wait 1500 0",
        "disk read 4096 8192",
        "disk wait 1502 0",
        "disk write 0 4096",
        "disk wait 2600 0",
        "disk close",
    ]


def test_workload_describes_trace(tmp_path: Path) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(100, writes=25))
    reading = make_replay(path)
    assert (reading.pattern, reading.rate, reading.reads) == (Pattern.RANDOM_READ, 75, 100)
    assert not reading.writes
    writing = make_replay(path, writes=True)
    assert (writing.pattern, writing.rate, writing.reads) == (Pattern.RANDOM_MIX, 100, 75)
    assert writing.writes
    assert (writing.block_size, writing.issued, writing.runtime) == (8192, 1, 1.0)
    assert writing.fits_block(8192)
    assert not writing.fits_block(16384)


def test_workload_is_busiest_part(tmp_path: Path) -> None:
    path = save(tmp_path / "disk.trace", [*steady_ios(100), (900_000, 0, 8, 100, 0)])
    part = make_replay(path, 0.1)
    assert (part.rate, part.runtime) == (1000, 0.1)
    assert make_replay(path, 5.0).runtime == 1.0, "the trace is no longer"


def test_long_logs_get_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(100))
    short = make_replay(path).ramp
    monkeypatch.setattr(replay, "_IOS_PER_LEAD_IN_S", 50)
    assert make_replay(path).ramp == pytest.approx(short + 2, rel=0.01)


@pytest.mark.parametrize("ios", [[], steady_ios(3, writes=3)])
def test_trace_without_ios_is_refused(
    tmp_path: Path, ios: list[tuple[int, int, int, int, int]]
) -> None:
    path = save(tmp_path / "disk.trace", ios)
    with pytest.raises(UsageError, match="has no I/Os to replay") as caught:
        make_replay(path)
    assert caught.value.hint


def test_unprintable_name_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "disk\n.trace", steady_ios(3))
    with pytest.raises(UsageError, match="is not printable"):
        make_replay(path)


def test_replay_counts_differences(tmp_path: Path) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(100, writes=25), lost=25)
    reading = make_replay(path)
    assert reading.trace is not None
    assert (reading.trace.rate, reading.trace.unwritten, reading.trace.lost) == (75.0, 0.25, 0.2)
    logs, _, moved = format_logs(reading, 16 * 512 * 60)
    assert moved == 15
    assert sum(log.count(" read ") for log in logs[:-1]) == 75
    writing = make_replay(path, writes=True)
    assert writing.trace is not None
    assert (writing.trace.rate, writing.trace.unwritten) == (100.0, 0.0)
    logs, _, moved = format_logs(writing, DISK_BYTES)
    assert moved == 0
    assert sum(log.count(" write ") for log in logs) == 25
    assert logs[-1].count("disk read") == 1, "the last job only ends the others"
