from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.errors import UsageError
from hbatune.probe import replay
from hbatune.probe.replay import (
    MAX_DEPTH,
    MAX_JOBS,
    MAX_RUN,
    SLACK_US,
    IoGroup,
    count_in_flight,
    deal_groups,
    find_groups,
    format_log,
    list_numbers,
    make_jobs,
    make_replay,
    place_io,
)
from hbatune.probe.result import Pattern
from hbatune.probe.trace_file import Trace
from tests.unit.traces import DISK_BYTES, Io, any_traces, save, steady_ios, trace


def list_groups(recorded: Trace) -> list[tuple[int, list[int]]]:
    """Return the depth and the I/Os of each group."""
    numbers = list_numbers(recorded, writes=True)
    return [(group.depth, group.numbers) for group in find_groups(recorded, numbers)]


def find_end(recorded: Trace, number: int) -> int:
    return recorded.arrivals_us[number] + recorded.latencies_us[number]


@given(any_traces(), st.booleans(), st.sampled_from([1, 4, MAX_DEPTH]))
def test_jobs_share_all_ios(recorded: Trace, writes: bool, max_depth: int) -> None:
    permitted = [n for n, write in enumerate(recorded.writes) if writes or not write]
    groups = find_groups(recorded, list_numbers(recorded, writes=writes), max_depth)
    jobs = deal_groups(recorded, groups)
    dealt = [number for job in jobs for group in job.groups for number in group.numbers]
    assert sorted(dealt) == permitted
    for job in jobs:
        assert {group.shape for group in job.groups} == {(job.depth, job.blocks)}
        for first, second in pairwise(job.groups):
            end_us = max(find_end(recorded, number) for number in first.numbers)
            assert end_us + SLACK_US <= recorded.arrivals_us[second.numbers[0]]


@given(any_traces(), st.sampled_from([1, 4, MAX_DEPTH]))
def test_group_never_exceeds_depth(recorded: Trace, max_depth: int) -> None:
    for group in find_groups(recorded, list_numbers(recorded, writes=True), max_depth):
        assert group.depth <= max_depth
        ends_us = list[int]()
        for number in group.numbers:
            in_flight = [end_us for end_us in ends_us if end_us > recorded.arrivals_us[number]]
            assert len(in_flight) < group.depth
            ends_us = [*in_flight, find_end(recorded, number)]


@given(any_traces())
def test_ios_in_flight_are_counted(recorded: Trace) -> None:
    spans = list(zip(recorded.arrivals_us, recorded.latencies_us, strict=True))
    in_flight = [
        sum(start + max(1, length) > arrival for start, length in spans[:number]) + 1
        for number, (arrival, _) in enumerate(spans)
    ]
    assert count_in_flight(recorded, range(len(spans))) == max(in_flight, default=0)


def test_io_follows_completed_one() -> None:
    recorded = trace([(0, 0, 8, 100, 0), (100, 8, 8, 100, 0), (199, 16, 8, 100, 0)])
    assert list_groups(recorded) == [(1, [0, 1]), (1, [2])]


def test_single_ios_follow_each_other() -> None:
    """Each of two jobs starts its next I/O 100 µs after the last one, but not for ever."""
    begins = [1100 * (n // 2) + 400 * (n % 2) for n in range(4 * MAX_RUN)]
    recorded = trace([(begin, 8 * n, 8, 1000, 0) for n, begin in enumerate(begins)])
    runs = list_groups(recorded)
    assert [depth for depth, _ in runs] == 4 * [1]
    for place, (_, numbers) in enumerate(runs[:2]):
        assert numbers == [2 * number + place for number in range(MAX_RUN)]


@pytest.mark.parametrize(
    ("latency_us", "pause_us", "follows"),
    [(4000, 0, True), (4000, 500, True), (4000, 501, False), (400, 100, True), (400, 101, False)],
)
def test_io_follows_recent_completion(latency_us: int, pause_us: int, follows: bool) -> None:
    recorded = trace([(0, 0, 8, latency_us, 0), (latency_us + pause_us, 8, 8, 4000, 0)])
    assert list_groups(recorded) == ([(1, [0, 1])] if follows else [(1, [0]), (1, [1])])


def make_loop(depth: int, rounds: int, *, pause_us: int, stalls: Collection[int] = ()) -> list[Io]:
    """Return I/Os of 1 ms, of which ``depth`` start 10 µs apart, and others after completions.

    The pause before a round of ``stalls`` is 400 µs longer.
    """
    ios, begin_us = list[Io](), 0
    for number in range(rounds):
        begin_us += (1000 + pause_us) * (number > 0) + 400 * (number in stalls)
        ios += [(begin_us + 10 * place, 8 * place, 8, 1000, 0) for place in range(depth)]
    return ios


def test_ios_start_together() -> None:
    """They are a group, and those that start after completions belong to it."""
    ios = make_loop(16, 2, pause_us=20)
    for begin_us, sector, sectors, latency_us, write in tuple(ios):
        ios.append((begin_us + 50_000, sector, sectors, latency_us, write))
    assert list_groups(trace(ios)) == [
        (16, list(range(32))),
        (16, list(range(32, 64))),
    ]


def test_group_survives_stalls() -> None:
    """Something else may take the CPU of the application, but not in most of the rounds."""
    recorded = trace(make_loop(8, 10, pause_us=20, stalls=[3, 7]))
    assert list_groups(recorded) == [(8, list(range(80)))]
    others = trace(make_loop(8, 10, pause_us=20, stalls=[3, 5, 7, 9]))
    assert list_groups(others)[0] == (8, list(range(8)))


def test_group_has_no_pauses() -> None:
    """A job that starts I/Os together replays none, so I/Os with pauses are dealt singly."""
    groups = list_groups(trace(make_loop(2, 10, pause_us=70)))
    assert groups[0] == (2, [0, 1])
    assert [depth for depth, _ in groups[1:]] == [1] * len(groups[1:])


def test_group_ends_after_long_run() -> None:
    """The next group begins on time."""
    groups = list_groups(trace(make_loop(2, MAX_RUN + 1, pause_us=20), seconds=9.0))
    assert groups == [(2, list(range(2 * MAX_RUN))), (2, [2 * MAX_RUN, 2 * MAX_RUN + 1])]


@pytest.mark.parametrize(("gap_us", "together"), [(62, True), (63, False)])
def test_distant_ios_start_apart(gap_us: int, together: bool) -> None:
    recorded = trace([(0, 0, 8, 1000, 0), (gap_us, 8, 8, 1000, 0)])
    assert list_groups(recorded) == ([(2, [0, 1])] if together else [(1, [0]), (1, [1])])


def test_old_fio_does_single_ios(tmp_path: Path) -> None:
    replayed = make_replay(save(tmp_path / "disk.trace", make_loop(4, 3, pause_us=20)))
    assert [job.depth for job in make_jobs(replayed, DISK_BYTES, 1)[0]] == 5 * [1]
    assert [job.depth for job in make_jobs(replayed, DISK_BYTES, MAX_DEPTH)[0]] == [4, 1]


def test_follower_waits_for_completion() -> None:
    recorded = trace([(0, 0, 8, 4000, 0), (4100, 8, 8, 4000, 0), (12_000, 8, 8, 4000, 0)])
    assert list_waits(recorded, [IoGroup([0, 1]), IoGroup([2])]) == ["1000", "1003", "1012", "2100"]


def test_group_waits_once() -> None:
    """fio would complete no I/O during a further wait."""
    recorded = trace([(9000, 0, 8, 4000, 0), (9010, 8, 8, 4000, 0), (13_000, 8, 8, 4000, 0)])
    assert list_waits(recorded, [IoGroup([0, 1, 2], depth=2)]) == ["1009", "2100"]


def list_waits(recorded: Trace, groups: list[IoGroup]) -> list[str]:
    """Return the milliseconds of all waits in the log. The last one is a grace."""
    lines = format_log(recorded, groups, 1000, DISK_BYTES).splitlines()
    return [line.split()[2] for line in lines if "wait" in line]


def test_pauses_are_originals_medians(tmp_path: Path) -> None:
    """Each job has its own pause, without the time of its start. The last job only waits."""
    ios = []
    for number in range(10):
        ios.append((5000 * number, 0, 8, 5000 - (9 if number == 4 else 150), 0))
        ios.append((5000 * number + 1000, 0, 8, 4960, 0))
    replayed = make_replay(save(tmp_path / "disk.trace", ios))
    jobs, _ = make_jobs(replayed, DISK_BYTES, MAX_DEPTH)
    assert [job.pause_us for job in jobs] == [130, 20, 0]


def test_excess_ios_wait_for_jobs() -> None:
    ios = [(600 * number, 8 * number, 8, 900_000, 0) for number in range(MAX_JOBS + 10)]
    recorded = trace(ios)
    jobs = deal_groups(recorded, find_groups(recorded, range(len(ios))))
    assert len(jobs) == MAX_JOBS
    assert sorted(len(job.groups) for job in jobs) == [1] * (MAX_JOBS - 10) + [2] * 10


def test_excess_groups_wait_for_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group without a job of its shape goes to the job for single I/Os."""
    monkeypatch.setattr(replay, "MAX_JOBS", 2)
    recorded = trace([(0, 0, 8, 9000, 0) for _ in range(7)])
    pairs = [IoGroup([0, 1], depth=2), IoGroup([2, 3], depth=2)]
    triple = IoGroup([4, 5, 6], depth=3)
    single, pair = deal_groups(recorded, [*pairs, triple])
    assert (single.depth, single.groups) == (1, [triple])
    assert (pair.depth, pair.groups) == (2, pairs)


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
    assert format_log(recorded, [IoGroup([0]), IoGroup([1])], 1500, DISK_BYTES).splitlines() == [
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
    jobs, moved = make_jobs(reading, 16 * 512 * 60, MAX_DEPTH)
    assert moved == 15
    assert sum(job.log.count(" read ") for job in jobs[:-1]) == 75
    writing = make_replay(path, writes=True)
    assert writing.trace is not None
    assert (writing.trace.rate, writing.trace.unwritten) == (100.0, 0.0)
    jobs, moved = make_jobs(writing, DISK_BYTES, MAX_DEPTH)
    assert moved == 0
    assert sum(job.log.count(" write ") for job in jobs) == 25
    assert jobs[-1].log.count("disk read") == 1, "the last job only ends the others"
