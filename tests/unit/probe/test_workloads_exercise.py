"""The workload follows what a plan changes, and what it does not show is told."""

import pytest

from hbatune.facts.model import Medium
from hbatune.plan.rows import Row, State
from hbatune.policy.profile import ProbeSpec
from hbatune.probe.result import Pattern, Workload
from hbatune.probe.workloads import (
    MAX_DEPTH,
    MAX_HDD_DEPTH,
    Hidden,
    Unexercised,
    find_unexercised,
    follow_plan,
)

SPEC = ProbeSpec()


def row(setting: str, current: object, value: object, target: str = "sda") -> Row:
    fixed = (State.DRIFT, None, "because", "D0-1", "rule")
    return Row(target, f"id-{target}", "0000:01:00.0", setting, current, value, value, *fixed)  # type: ignore[arg-type]


def follow(*rows: Row, medium: Medium = Medium.SSD, **options: object) -> Workload:
    return follow_plan(rows, SPEC, medium, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "depth"),
    [(32, 128, 128), (128, 32, 128), (8, 16, 24), (32, 4096, MAX_DEPTH)],
)
def test_probe_reaches_both_depths(before: int, after: int, depth: int) -> None:
    rows = [row("queue_depth", before, after)]
    assert follow(*rows).issued == depth
    reached = depth >= max(before, after)
    assert bool(find_unexercised(rows, follow(*rows))) is not reached


def test_deepest_setting_decides_probe_depth() -> None:
    rows = [row("queue_depth", 32, 64), row("nr_requests", 256, 512)]
    assert follow(*rows).issued == 512
    assert find_unexercised(rows, follow(*rows)) == ()
    more = [row("queue_depth", 32, 64), row("nr_requests", 256, 2048)]
    assert find_unexercised(more, follow(*more)) == (
        Unexercised("nr_requests", Hidden.PARTLY, MAX_DEPTH, 2048),
    )


def test_spinning_disk_depth_is_capped() -> None:
    rows = [row("queue_depth", 32, 64), row("nr_requests", 256, 2048)]
    workload = follow(*rows, medium=Medium.HDD)
    assert workload.issued == MAX_HDD_DEPTH
    assert find_unexercised(rows, workload) == (
        Unexercised("nr_requests", Hidden.NOT_REACHED, MAX_HDD_DEPTH, 2048),
    )


def test_profile_probe_is_minimum() -> None:
    rows = [row("nomerges", 0, 1)]
    assert follow_plan(rows, ProbeSpec(pattern="read", block_size="1m", depth=4), Medium.SSD) == (
        Workload(Pattern.READ, 1 << 20, 4)
    )


def test_map_paths_share_load() -> None:
    rows = [row("queue_depth", 32, 64, "sda"), row("queue_depth", 32, 64, "sdb")]
    assert follow(*rows).issued == 128
    assert find_unexercised(rows, Workload(depth=100)) == (
        Unexercised("queue_depth", Hidden.PARTLY, 100, 128),
    )


@pytest.mark.parametrize(("cpus", "jobs"), [(1, 1), (2, 2), (64, 4)])
def test_interrupts_use_several_submitters(cpus: int, jobs: int) -> None:
    workload = follow(row("rq_affinity", 1, 2), cpus=cpus)
    assert (workload.jobs, workload.issued) == (jobs, 24)


def test_writable_probe_mixes_for_scheduler() -> None:
    rows = [row("scheduler", "none", "mq-deadline")]
    assert find_unexercised(rows, follow(*rows)) == (Unexercised("scheduler", Hidden.READS_ALONE),)
    workload = follow(*rows, writable=True)
    assert (workload.pattern, workload.reads) == (Pattern.RANDOM_MIX, 70)
    assert find_unexercised(rows, workload) == ()


def test_request_sizes_need_large_blocks() -> None:
    size = row("max_sectors_kb", 512, 1024)
    assert follow(size).block_size == 1 << 20
    assert find_unexercised([size], follow(size)) == ()
    both = [size, row("queue_depth", 32, 64)]
    assert find_unexercised(both, follow(*both)) == (
        Unexercised("max_sectors_kb", Hidden.TOO_SMALL, 4, 1024),
    )


@pytest.mark.parametrize("setting", ["read_ahead_kb", "wbt_lat_usec"])
def test_direct_io_hides_cache_settings(setting: str) -> None:
    rows = [row(setting, 128, 4096)]
    assert find_unexercised(rows, follow(*rows)) == (Unexercised(setting, Hidden.BUFFERED),)


def test_busy_drive_hides_sleep_setting() -> None:
    rows = [row("pm_qos_latency_tolerance_us", 100_000, 0)]
    assert [hidden.why for hidden in find_unexercised(rows, follow(*rows))] == [Hidden.AWAKE]


def test_only_sequential_io_shows_merging() -> None:
    rows = [row("nomerges", 0, 2)]
    assert [hidden.why for hidden in find_unexercised(rows, Workload())] == [Hidden.UNMERGED]
    assert find_unexercised(rows, Workload(Pattern.READ)) == ()


def test_unread_value_adds_no_depth() -> None:
    rows = [row("queue_depth", None, 64), row("nr_requests", 256, None)]
    assert follow(*rows).issued == 256
