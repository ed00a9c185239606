"""A comparison measures at the profile's load, and reports the effects that it does not show."""

import pytest

from hbatune.plan.rows import Row, State
from hbatune.policy.profile import ProbeSpec
from hbatune.probe.result import Pattern, Workload
from hbatune.probe.workloads import Hidden, Unexercised, find_unexercised, shape_burst, shape_load

SPEC = ProbeSpec()


def row(setting: str, current: object, value: object, target: str = "sda") -> Row:
    fixed = (State.DRIFT, None, "because", "D0-1", "rule")
    return Row(target, f"id-{target}", "0000:01:00.0", setting, current, value, value, *fixed)  # type: ignore[arg-type]


def shape(*rows: Row, **options: object) -> Workload:
    return shape_load(rows, SPEC, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), [(32, 128), (128, 32), (8, 16), (32, 4096)])
def test_load_ignores_planned_depths(before: int, after: int) -> None:
    rows = [row("queue_depth", before, after), row("nr_requests", 192, 2048)]
    assert shape(*rows).issued == SPEC.depth


def test_unreached_limits_are_named() -> None:
    rows = [row("queue_depth", 32, 64), row("nr_requests", 8, 2048)]
    assert find_unexercised(rows, shape(*rows)) == (
        Unexercised("queue_depth", Hidden.NOT_REACHED, 24, 64),
        Unexercised("nr_requests", Hidden.PARTLY, 24, 2048),
    )
    assert find_unexercised([row("queue_depth", 8, 16)], shape()) == ()


def test_load_keeps_profile_blocks() -> None:
    size, spec = row("max_sectors_kb", 512, 1024), ProbeSpec(pattern="read", block_size="1m")
    assert shape(size).block_size == 4096
    assert find_unexercised([size], shape(size)) == (
        Unexercised("max_sectors_kb", Hidden.TOO_SMALL, 4, 1024),
    )
    assert shape_load([size], spec) == Workload(Pattern.READ, 1 << 20, 24)
    assert find_unexercised([size], shape_load([size], spec)) == ()


@pytest.mark.parametrize(
    ("depths", "deepest", "burst"),
    [((32, 64), 128, 64), ((64, 32), 128, 64), ((32, 4096), 128, 128), ((8, 16), 128, None)],
)
def test_burst_reaches_possible_depth(
    depths: tuple[int, int], deepest: int, burst: int | None
) -> None:
    workload = shape_burst([row("queue_depth", *depths)], shape(), deepest)
    assert (workload and workload.issued) == burst
    assert shape_burst([row("nomerges", 0, 1)], shape(), deepest) is None


def test_map_paths_share_load() -> None:
    rows = [row("queue_depth", 32, 64, "sda"), row("queue_depth", 32, 64, "sdb")]
    assert find_unexercised(rows, Workload(depth=100)) == (
        Unexercised("queue_depth", Hidden.PARTLY, 100, 128),
    )


@pytest.mark.parametrize(("cpus", "jobs"), [(1, 1), (2, 2), (64, 4)])
def test_interrupts_use_several_submitters(cpus: int, jobs: int) -> None:
    workload = shape(row("rq_affinity", 1, 2), cpus=cpus)
    assert (workload.jobs, workload.issued) == (jobs, 24)


def test_writable_probe_mixes_for_scheduler() -> None:
    rows = [row("scheduler", "none", "mq-deadline")]
    assert find_unexercised(rows, shape(*rows)) == (Unexercised("scheduler", Hidden.READS_ALONE),)
    workload = shape(*rows, writable=True)
    assert (workload.pattern, workload.reads) == (Pattern.RANDOM_MIX, 70)
    assert find_unexercised(rows, workload) == ()


@pytest.mark.parametrize("setting", ["read_ahead_kb", "wbt_lat_usec"])
def test_direct_io_hides_cache_settings(setting: str) -> None:
    rows = [row(setting, 128, 4096)]
    assert find_unexercised(rows, shape(*rows)) == (Unexercised(setting, Hidden.BUFFERED),)


def test_busy_drive_hides_sleep_setting() -> None:
    rows = [row("pm_qos_latency_tolerance_us", 100_000, 0)]
    assert [hidden.why for hidden in find_unexercised(rows, shape(*rows))] == [Hidden.AWAKE]


def test_only_sequential_io_shows_merging() -> None:
    rows = [row("nomerges", 0, 2)]
    assert [hidden.why for hidden in find_unexercised(rows, Workload())] == [Hidden.UNMERGED]
    assert find_unexercised(rows, Workload(Pattern.READ)) == ()
