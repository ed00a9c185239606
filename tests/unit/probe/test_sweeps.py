"""Sweeps are found among the records of the history, whatever else stands there."""

import pytest
from msgspec.structs import replace

from hbatune.probe.history import Record
from hbatune.probe.result import Histogram, ProbeResult, Window
from hbatune.probe.sweeps import (
    Sweep,
    SweptParameter,
    find_sweeps,
    list_depth_sweeps,
    list_lone_results,
)
from tests.unit import report_server as reported

HOST = reported.host()
DEPTH = reported.depth_sweep(HOST)
BLOCK = reported.block_sweep(HOST)
MIX = reported.mix_sweep(HOST)


def values(sweep: Sweep) -> list[int]:
    return [sweep.swept.of(result.workload) for result in sweep.results]


def moved(records: list[Record], seconds: float) -> list[Record]:
    return [replace(record, time=record.time + seconds) for record in records]


def test_newest_sweep_comes_first() -> None:
    sweeps = find_sweeps([*DEPTH, *BLOCK, *MIX, *reported.lone(HOST)])
    assert [sweep.swept for sweep in sweeps] == [
        SweptParameter.MIX,
        SweptParameter.BLOCK,
        SweptParameter.DEPTH,
    ]
    assert [values(sweep) for sweep in sweeps] == [
        [0, 50, 70, 100],
        list(reported.BLOCKS),
        list(reported.DEPTHS),
    ]


def test_newest_duplicate_sweep_wins() -> None:
    again = moved(DEPTH, 3600)
    [sweep] = find_sweeps([*again, *DEPTH])
    assert sweep.records == tuple(again)


def test_restarted_sweep_excludes_aborted_runs() -> None:
    [sweep] = find_sweeps([*DEPTH[:5], *moved(DEPTH, 20)])
    assert values(sweep) == list(reported.DEPTHS)
    assert len(sweep.records) == len(reported.DEPTHS)


def test_unrelated_runs_form_no_sweep() -> None:
    first, second = DEPTH[:2], DEPTH[2:4]
    assert find_sweeps([*first, *moved(second, 4000)]) == []
    assert find_sweeps([*first, *(replace(record, boot_id="other") for record in second)]) == []
    assert find_sweeps([*first, *(replace(record, command="other") for record in second)]) == []


def test_sweeps_of_disks_may_interleave() -> None:
    second_disk = [
        replace(record, id="other", target="sdz", time=record.time + 1) for record in DEPTH
    ]
    sweeps = find_sweeps([*DEPTH, *second_disk])
    assert sorted(sweep.records[0].target for sweep in sweeps) == ["sda", "sdz"]
    assert {len(sweep.results) for sweep in sweeps} == {len(DEPTH)}


def test_two_runs_form_no_sweep() -> None:
    assert find_sweeps(DEPTH[:2]) == []


@pytest.mark.parametrize("later_runs", [BLOCK, MIX])
def test_later_runs_stay_outside_sweep(later_runs: list[Record]) -> None:
    depth = next(
        sweep for sweep in find_sweeps([*DEPTH, *later_runs]) if sweep.swept is SweptParameter.DEPTH
    )
    assert values(depth) == list(reported.DEPTHS)


def test_windowless_knee_has_no_range() -> None:
    [sweep] = find_sweeps(DEPTH)
    assert sweep.knee is not None
    assert (sweep.knee.low, sweep.knee.depth, sweep.knee.high) == (32, 32, 32)
    assert not sweep.ranged


def test_new_runs_give_range_of_knee() -> None:
    def noisy(record: Record) -> ProbeResult:
        assert record.result is not None
        figures = record.result.figures
        windows = tuple(
            Window(0.5, round(figures.iops * share / 2), Histogram({wait: 9}), 0.0, 0.0)
            for share, wait in ((0.6, 300_000), (1.0, 150_000), (1.4, 100_000), (1.0, 200_000))
        )
        return replace(record.result, figures=replace(figures, windows=windows))

    [sweep] = list_depth_sweeps(map(noisy, DEPTH))
    assert sweep.ranged
    assert sweep.knee is not None
    assert sweep.knee.low < sweep.knee.high


def test_recorded_knee_is_used() -> None:
    [sweep] = find_sweeps(reported.kept(HOST))
    assert sweep.knee is not None
    assert (sweep.knee.low, sweep.knee.depth, sweep.knee.high) == (16, 32, 64)
    assert sweep.ranged


def test_multiple_sweeps_have_separate_knees() -> None:
    sweeps = find_sweeps(reported.lun_depths(HOST))
    knees = {sweep.workload.queue_depth: sweep.knee and sweep.knee.depth for sweep in sweeps}
    assert knees == {8: 8, 16: 16, 32: 32, 64: 64, 128: 128}


def test_mismatched_knee_record_is_ignored() -> None:
    *runs, knee = reported.kept(HOST)
    [sweep] = find_sweeps([*runs, replace(knee, time=knee.time + 1)])
    assert not sweep.ranged


def test_only_depth_sweeps_have_knees() -> None:
    assert [sweep.knee for sweep in find_sweeps([*BLOCK, *MIX])] == [None, None]


def test_newest_lone_result_wins() -> None:
    records = [*reported.lone(HOST), *DEPTH]
    lone_results = list_lone_results(records, find_sweeps(records))
    assert [(record.target, record.command) for record in lone_results] == [
        ("sda", "probe"),
        ("sdc", "probe reference-short"),
        ("nvme0n1", "probe reference-short"),
    ]
    after = moved(reported.lone(HOST)[:1], 9000)
    same_disk = [replace(record, id=DEPTH[0].id, target="sda") for record in after]
    newer = moved(DEPTH, 10_000)
    [alone] = list_lone_results([*same_disk, *newer], find_sweeps(newer))
    assert alone.command == "daemon", "a sweep's runs give way, although newer"
