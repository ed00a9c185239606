"""What is kept of results: bounded, whole or as it was, and stale once its ground has changed."""

import csv
import io
import json
import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import files
from hbatune.facts.model import Adapter, Machine, Missing, Reason
from hbatune.policy.profile import ProbeSpec
from hbatune.probe.history import (
    SCHEMA,
    HistoryError,
    Record,
    Stale,
    append,
    find_latest_knees,
    list_entries,
    load,
)
from hbatune.probe.knee import Knee, KneeDoubt
from hbatune.probe.result import Histogram, Pattern, ProbeResult, Served, Window, Workload
from hbatune.text.probe_tables import list_csv_rows
from hbatune.text.terminal import show_csv
from tests.unit import report_server as reported
from tests.unit.machines import adapter, endpoint, machine
from tests.unit.noisy_disks import figures

DISK = endpoint()
HOST = machine(DISK)


def served(hba: Adapter) -> Served:
    return Served(hba.target, hba.driver, hba.driver_version, hba.firmware)


def record(number: int = 0, iops: float = 1000.0, **overrides: object) -> Record:
    workload = overrides.pop("workload", Workload())
    assert isinstance(workload, Workload)
    result = ProbeResult(
        "sda", DISK.id, workload, figures(iops, 24e6 / iops, 1e8 / iops), "3.33", ()
    )
    result = replace(result, served=(served(adapter()),))
    entry = Record(
        time=1000.0 + number,
        command="probe",
        kernel=machine().kernel,
        boot_id="b",
        profile="oltp",
        target="sda",
        id=DISK.id,
        result=result,
    )
    return replace(entry, **overrides)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.json"


def test_records_stay_ordered_private(path: Path) -> None:
    assert load(path).records == ()
    assert append(path, [record(1)]) == 0
    assert append(path, [record(2), record(3)]) == 0
    assert [loaded_record.time for loaded_record in load(path).records] == [1001, 1002, 1003]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f'"schema":"{SCHEMA}"' in path.read_text()


def test_append_preserves_newer_fields(path: Path) -> None:
    append(path, [record(1), record(2)])
    newer = json.loads(path.read_text())
    newer["records"][0]["note"] = "of a newer version"
    newer["index"] = [1]
    path.write_text(json.dumps(newer))
    append(path, [record(3)])
    document = json.loads(path.read_text())
    assert [entry.get("note") for entry in document["records"]] == [
        "of a newer version",
        None,
        None,
    ]
    assert document["index"] == [1]


def test_empty_append_creates_no_file(path: Path) -> None:
    assert append(path, []) == 0
    assert not path.exists()


def test_limit_drops_oldest_records(path: Path) -> None:
    most = 5000
    dropped = sum(append(path, [record(number)], max_bytes=most) for number in range(20))
    records = load(path).records
    assert path.stat().st_size <= most
    assert len(records) == 20 - dropped
    assert [entry.time for entry in records] == [1000.0 + n for n in range(dropped, 20)]
    assert dropped > 5


def test_oversized_record_is_dropped(path: Path) -> None:
    assert append(path, [record(profile="x" * 9000)], max_bytes=5000) == 1
    assert load(path).records == ()


@pytest.fixture
def full(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file system that has no room when all is to be on disk."""
    append(path, [record(1)])

    def refuse(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", refuse)
    return path


def test_full_disk_preserves_history(full: Path) -> None:
    before = full.read_bytes()
    with pytest.raises(HistoryError) as caught:
        append(full, [record(2)])
    assert "No space left" in caught.value.message
    assert full.read_bytes() == before
    assert os.listdir(full.parent) == [full.name], "no half of a file takes the room that lacks"


@pytest.mark.parametrize("text", ["", "{", '{"records": 3}', "[]", '{"schema":"other/1"}'])
def test_invalid_history_stays_untouched(path: Path, text: str) -> None:
    files.replace(path, text.encode())
    with pytest.raises(HistoryError):
        load(path)
    with pytest.raises(HistoryError):
        append(path, [record()])
    assert path.read_text() == text


def test_result_compares_with_same_workload() -> None:
    shallow = Workload(depth=1)
    entries = list_entries(
        [record(3, 1200.0), record(1, 1000.0), record(2, 100.0, workload=shallow)], machine(DISK)
    )
    assert [entry.record.time for entry in entries] == [1001, 1002, 1003]
    assert [entry.since is None for entry in entries] == [True, True, False]
    assert entries[2].since is not None
    assert entries[2].since.iops == pytest.approx(1.2)
    assert entries[2].since.p99 == pytest.approx(1 / 1.2)


def stale(host: Machine) -> list[Stale]:
    [entry] = list_entries([record()], host)
    return [reason.what for reason in entry.stale]


def test_unchanged_system_preserves_result() -> None:
    assert stale(machine(DISK)) == []
    unknown = adapter(firmware=Missing(Reason.ABSENT))
    assert stale(machine(DISK, adapters=(unknown,))) == [Stale.FIRMWARE]


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({"driver_version": "44.0"}, [Stale.DRIVER]),
        ({"firmware": "17.0"}, [Stale.FIRMWARE]),
        ({"driver_version": "44.0", "firmware": "17.0"}, [Stale.DRIVER, Stale.FIRMWARE]),
        ({"target": "0000:09:00.0"}, [Stale.GONE]),
    ],
)
def test_driver_firmware_change_makes_stale(
    changed: dict[str, object], reasons: list[Stale]
) -> None:
    assert stale(machine(DISK, adapters=(adapter(**changed),))) == reasons


def test_kernel_or_disk_change_makes_stale() -> None:
    assert stale(machine(DISK, kernel="6.99")) == [Stale.KERNEL]
    assert stale(machine(endpoint(target="sdb"))) == [Stale.GONE]


def test_stale_reason_shows_values() -> None:
    [entry] = list_entries([record()], machine(DISK, adapters=(adapter(firmware="17.0"),)))
    [reason] = entry.stale
    assert (reason.then, reason.now) == ("16.00.12.00", "17.0")


def test_windows_are_not_stored(path: Path) -> None:
    original = record()
    assert original.result is not None
    window = Window(1.0, 10, Histogram({1000: 10}), 0.1, 0.1)
    cut = replace(original.result.figures, windows=(window,) * 5)
    append(path, [replace(original, result=replace(original.result, figures=cut))])
    assert load(path).records == (original,)


def test_concurrent_appends_lose_nothing(path: Path) -> None:
    children = []
    for number in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                for offset in range(20):
                    append(path, [record(100 * number + offset)])
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    assert len(load(path).records) == 40


def knee(
    number: int,
    depth: int,
    workload: Workload | None,
    past: int | None = 512,
    doubt: KneeDoubt | None = None,
) -> Record:
    measured_knee = Knee(depth, depth, depth, past, 0.0, 1.0, doubt)
    return replace(record(number), result=None, knee=measured_knee, workload=workload)


READS = Workload(depth=256, runtime=5.0)
LARGE = Workload(Pattern.WRITE, 1 << 20, 96)


def test_knee_belongs_to_workload() -> None:
    corners = [knee(1, 64, READS), knee(1, 1, LARGE), knee(1, 2, replace(READS, block_size=8192))]
    assert find_latest_knees(corners, HOST, ProbeSpec()) == {DISK.id: 64}
    assert find_latest_knees(corners, HOST, ProbeSpec(block_size="8k")) == {DISK.id: 2}
    assert find_latest_knees(corners[1:], HOST, ProbeSpec()) == {}
    own_depth_set = knee(2, 8, replace(READS, queue_depth=8))
    assert find_latest_knees([*corners, own_depth_set, knee(3, 4, None)], HOST, ProbeSpec()) == {
        DISK.id: 64
    }


def test_newest_sweep_wins_even_partial() -> None:
    first, second = knee(1, 64, READS), knee(2, 32, READS)
    assert find_latest_knees([second, first], HOST, ProbeSpec()) == {DISK.id: 32}
    assert (
        find_latest_knees([first, second, knee(3, 256, READS, past=None)], HOST, ProbeSpec()) == {}
    )


@pytest.mark.parametrize("doubt", list(KneeDoubt))
def test_doubtful_knee_does_not_count(doubt: KneeDoubt) -> None:
    first, second = knee(1, 64, READS), knee(2, 4, READS, doubt=doubt)
    assert find_latest_knees([first, second], HOST, ProbeSpec()) == {DISK.id: 64}
    assert Knee(4, 4, 4, 8, 0.0, 1.0).doubt is KneeDoubt.SHORT, "of an older version"


def test_stale_knee_does_not_count() -> None:
    newer = replace(HOST, kernel="6.12.0")
    assert find_latest_knees([knee(1, 64, READS)], newer, ProbeSpec()) == {}
    other_firmware = machine(DISK, adapters=(adapter(firmware="99"),))
    sweep = [record(1), knee(1, 64, READS)]
    assert find_latest_knees(sweep, HOST, ProbeSpec()) == {DISK.id: 64}
    assert find_latest_knees(sweep, other_firmware, ProbeSpec()) == {}


def test_csv_has_row_per_run(capsys: pytest.CaptureFixture[str]) -> None:
    host = reported.host()
    entries = list_entries([*reported.kept(host), *reported.block_sweep(host)], host)
    show_csv("history", list_csv_rows(entries))
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(reported.DEPTHS) + len(reported.BLOCKS), "a knee is no run"
    swept = [row for row in rows if row["command"] == "probe depth-sweep"]
    assert [int(row["depth"]) for row in swept] == list(reported.DEPTHS)
    first = entries[0].record.result
    assert first is not None
    assert float(swept[0]["iops"]) == first.figures.iops
    assert float(swept[0]["p999_us"]) == first.figures.p999_us
    assert swept[0]["pattern"] == "randread"
    assert "too_few" in {row["doubt"] for row in rows}


def test_adapter_run_stored_without_windows(capsys: pytest.CaptureFixture[str]) -> None:
    host = reported.host()
    [first, *_] = reported.all_disks(host)
    assert first.result is None
    assert first.together is not None
    assert first.together.figures.windows == ()
    assert len(first.together.alone_iops) == 2
    [entry] = list_entries([first], host)
    assert entry.stale == ()
    show_csv("history", list_csv_rows([entry]))
    [row] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["target"], row["driver"]) == (first.target, "mpt3sas")
    assert float(row["iops"]) == first.together.figures.iops
    newer = replace(host, adapters=tuple(replace(a, firmware="99") for a in host.adapters))
    [stale] = list_entries([first], newer)
    assert [reason.what for reason in stale.stale] == [Stale.FIRMWARE]
