"""Sweeps are found among the records of the history, whatever else stands there."""

import pytest
from msgspec.structs import replace

from hbatune.probe.history import Record
from hbatune.probe.result import Histogram, Window
from hbatune.probe.sweeps import Sweep, SweptParameter, find_sweeps, list_lone_results
from tests.unit import report_server as reported

HOST = reported.host()
DEPTH = reported.depth_sweep(HOST)
BLOCK = reported.block_sweep(HOST)
MIX = reported.mix_sweep(HOST)


def values(sweep: Sweep) -> list[int]:
    return [sweep.swept.of(each.workload) for each in sweep.results]


def moved(records: list[Record], seconds: float) -> list[Record]:
    return [replace(each, time=each.time + seconds) for each in records]


def test_newest_sweep_comes_first() -> None:
    found = find_sweeps([*DEPTH, *BLOCK, *MIX, *reported.lone(HOST)])
    assert [each.swept for each in found] == [
        SweptParameter.MIX,
        SweptParameter.BLOCK,
        SweptParameter.DEPTH,
    ]
    assert [values(each) for each in found] == [
        [0, 50, 70, 100],
        list(reported.BLOCKS),
        list(reported.DEPTHS),
    ]


def test_newest_duplicate_sweep_wins() -> None:
    again = moved(DEPTH, 3600)
    [found] = find_sweeps([*again, *DEPTH])
    assert found.records == tuple(again)


def test_restarted_sweep_excludes_aborted_runs() -> None:
    [found] = find_sweeps([*DEPTH[:5], *moved(DEPTH, 20)])
    assert values(found) == list(reported.DEPTHS)
    assert len(found.records) == len(reported.DEPTHS)


def test_unrelated_runs_form_no_sweep() -> None:
    first, second = DEPTH[:2], DEPTH[2:4]
    assert find_sweeps([*first, *moved(second, 4000)]) == []
    assert find_sweeps([*first, *(replace(each, boot_id="other") for each in second)]) == []
    assert find_sweeps([*first, *(replace(each, command="other") for each in second)]) == []


def test_sweeps_of_disks_may_interleave() -> None:
    other = [replace(each, id="other", target="sdz", time=each.time + 1) for each in DEPTH]
    found = find_sweeps([*DEPTH, *other])
    assert sorted(sweep.records[0].target for sweep in found) == ["sda", "sdz"]
    assert {len(sweep.results) for sweep in found} == {len(DEPTH)}


def test_two_runs_form_no_sweep() -> None:
    assert find_sweeps(DEPTH[:2]) == []


@pytest.mark.parametrize("others", [BLOCK, MIX])
def test_later_runs_stay_outside_sweep(others: list[Record]) -> None:
    depth = next(
        each for each in find_sweeps([*DEPTH, *others]) if each.swept is SweptParameter.DEPTH
    )
    assert values(depth) == list(reported.DEPTHS)


def test_windowless_knee_has_no_range() -> None:
    [found] = find_sweeps(DEPTH)
    assert found.knee is not None
    assert (found.knee.low, found.knee.depth, found.knee.high) == (32, 32, 32)
    assert not found.ranged


def test_windowed_knee_has_range() -> None:
    def windowed(record: Record) -> Record:
        assert record.result is not None
        figures = record.result.figures
        us = round(figures.p99_us * 1000)
        window = Window(0.5, round(figures.iops / 2), 0, Histogram({us: 9}), 0.0, 0.0)
        whole = replace(figures, windows=(window,) * 4)
        return replace(record, result=replace(record.result, figures=whole))

    [found] = find_sweeps(map(windowed, DEPTH))
    assert found.ranged
    assert found.knee is not None
    assert found.knee.depth == reported.KNEE


def test_recorded_knee_is_used() -> None:
    [found] = find_sweeps(reported.kept(HOST))
    assert found.knee is not None
    assert (found.knee.low, found.knee.depth, found.knee.high) == (16, 32, 64)
    assert found.ranged


def test_multiple_sweeps_have_separate_knees() -> None:
    found = find_sweeps(reported.lun_depths(HOST))
    knees = {each.workload.queue_depth: each.kept and each.kept.depth for each in found}
    assert knees == {8: 8, 16: 16, 32: 32, 64: 64, 128: None}


def test_mismatched_knee_record_is_ignored() -> None:
    *runs, knee = reported.kept(HOST)
    [found] = find_sweeps([*runs, replace(knee, time=knee.time + 1)])
    assert found.kept is None


def test_only_depth_sweeps_have_knees() -> None:
    assert [each.knee for each in find_sweeps([*BLOCK, *MIX])] == [None, None]


def test_newest_lone_result_wins() -> None:
    records = [*reported.lone(HOST), *DEPTH]
    found = list_lone_results(records, find_sweeps(records))
    assert [(each.target, each.command) for each in found] == [
        ("sda", "probe"),
        ("sdc", "probe reference-short"),
        ("nvme0n1", "probe reference-short"),
    ]
    after = moved(reported.lone(HOST)[:1], 9000)
    same_disk = [replace(each, id=DEPTH[0].id, target="sda") for each in after]
    newer = moved(DEPTH, 10_000)
    [alone] = list_lone_results([*same_disk, *newer], find_sweeps(newer))
    assert alone.command == "daemon", "a sweep's runs give way, although newer"
