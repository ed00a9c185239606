"""`probe` as a person sees it, with a machine and a fio that are made up."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hbatune.act.lock import read_held_ids
from hbatune.act.paths import Paths
from hbatune.cli import main
from hbatune.errors import HbatuneError, LockedError
from hbatune.facts.model import Machine, Medium, Protocol, Storage
from hbatune.operations import probe as operation
from hbatune.operations.verify import find_mount_point
from hbatune.probe import guard, history
from hbatune.probe import run as running
from hbatune.probe.comparison import export_results
from hbatune.probe.guard import ScratchFile
from hbatune.probe.replay import make_replay
from hbatune.probe.result import (
    Failed,
    Failure,
    Histogram,
    Pattern,
    Prepare,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
    Window,
    Workload,
    Zone,
)
from hbatune.probe.sweeps import find_sweeps
from tests.documented import validate
from tests.unit.command_runs import see_machine
from tests.unit.disk_files import Disk
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.probe_results import FIGURES
from tests.unit.traces import save, steady_ios


class Bench:
    """A machine with one disk, and the results of its probes; ``asked`` lists the runs."""

    def __init__(self) -> None:
        self.asked: list[Workload] = []
        self.depths: list[object] = []
        self.fails = False
        self.falls_at = 1000
        self.blank: bool | None = False
        self.moved = 0
        self.machine = machine(endpoint())

    def gather(self, attributes: Sequence[str], *_: Any, **__: Any) -> Machine:
        return self.machine

    def probe(
        self,
        subject: Subject,
        workload: Workload,
        *,
        prepare: Prepare | None = None,
        write: bool = False,
        look: bool = False,
    ) -> ProbeOutcome:
        assert prepare is None, "other I/O is looked for"
        assert write == workload.writes
        assert look != write
        self.asked.append(workload)
        if self.fails:
            return Failed(subject.target, Failure.STUCK)
        iops = FIGURES.iops if workload.issued < self.falls_at else FIGURES.iops / 10
        wait, ios = workload.issued / iops, round(iops)
        window = Window(1.0, ios, Histogram({round(wait * 1e9): ios}), 0.0, 0.0)
        figures = msgspec.structs.replace(FIGURES, iops=iops, mean_us=wait * 1e6)
        figures = msgspec.structs.replace(figures, windows=(window,) * 5)
        figures = msgspec.structs.replace(figures, moved=self.moved)
        figures = msgspec.structs.replace(figures, busy=0.95 if workload.issued > 64 else 0.5)
        id, settings = subject.endpoint.id, subject.settings
        self.depths.append(
            {setting.setting: setting.value for setting in settings}.get("queue_depth")
        )
        result = ProbeResult(subject.target, id, workload, figures, "3.33", (), blank=self.blank)
        return msgspec.structs.replace(result, settings=settings)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """Replace this machine by the simulated one."""
    new_bench = Bench()
    monkeypatch.setattr(operation, "gather_machine", new_bench.gather)
    monkeypatch.setattr(running, "probe_subject", new_bench.probe)
    monkeypatch.setattr(guard, "find_busy_subjects", lambda subjects: {})
    return new_bench


def test_bare_probe_lists_workloads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe"]) == 0
    out = capsys.readouterr().out
    assert "depth-sweep" in out
    assert "D0-11" in out


def test_sweep_runs_in_order(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "depth-sweep", "sda", "--json", "--runtime", "1"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    validate(document)
    assert [workload.depth for workload in bench.asked] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert {workload.runtime for workload in bench.asked} == {1.0}
    assert {entry["doubt"] for entry in document["runs"]} == {None}
    assert "9 runs, which take about" in captured.err


def test_small_blocks_are_excluded(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    files = {**endpoint().attributes, **attributes(queue__logical_block_size="4096")}
    bench.machine = machine(endpoint(attributes=files), endpoint(target="sdb"))
    assert main(["probe", "block-sweep-small", "sda", "sdb"]) == 1
    captured = capsys.readouterr()
    blocks = [workload.block_size for workload in bench.asked]
    assert blocks[:5] == [4096, 8192, 16384, 32768, 65536]
    assert blocks[5:] == [512, 1024, 2048, *blocks[:5]], "sdb reports no block size"
    assert "13 runs, which take about" in captured.err
    out = " ".join(captured.out.split())
    assert "its logical block is larger than these I/Os, in bytes (512, 1024, 2048)" in out


def test_impossible_workload_runs_nothing(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    files = attributes(queue__logical_block_size="4096")
    bench.machine = machine(endpoint(attributes=files))
    assert main(["probe", "--block", "512", "sda", "--json"]) == 1
    captured = capsys.readouterr()
    assert bench.asked == []
    assert "which take about" not in captured.err
    document = json.loads(captured.out)
    validate(document)
    [entry] = document["runs"]
    assert (entry["outcome"]["reason"], entry["outcome"]["detail"]) == ("block_size", "512")


@pytest.mark.parametrize(
    ("block", "asked"), [("512", []), ("4k", [4096]), ("6k", [])], ids=["small", "fits", "odd"]
)
def test_file_run_respects_logical_block(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, block: str, asked: list[int]
) -> None:
    """One of the two disks of the filesystem has large blocks."""
    probed: list[int] = []

    def measure(target: str, path: str, size: int, workload: Workload) -> ProbeOutcome:
        probed.append(workload.block_size)
        return ProbeResult(target, f"file:{target}", workload, FIGURES, "3.33", ())

    disks = []
    for target, size in (("sda", "512"), ("sdb", "4096")):
        files = attributes(queue__logical_block_size=size)
        mounts = (find_mount_point(tmp_path),)
        disks.append(endpoint(target=target, attributes=files, mounts=mounts))
    other = endpoint(target="sdc", attributes=attributes(queue__logical_block_size="65536"))
    bench.machine = machine(*disks, other)
    monkeypatch.setattr(running, "probe_file", measure)
    file = nullcontext(ScratchFile("/proc/1/fd/3", 1 << 30))
    monkeypatch.setattr(operation, "make_scratch_file", lambda *_: file)
    assert main(["probe", "--block", block, "--file", str(tmp_path)]) == (0 if asked else 1)
    assert probed == asked


def test_probe_reads_block_size(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def gather(files: Sequence[str], *_: Any, **__: Any) -> Machine:
        requested.extend(files)
        return bench.machine

    monkeypatch.setattr(operation, "gather_machine", gather)
    assert main(["probe", "qd1", "sda"]) == 0
    assert "queue/logical_block_size" in requested


def test_unresponsive_disk_ends_sweep(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.fails = True
    assert main(["probe", "depth-sweep", "sda"]) == 1
    assert len(bench.asked) == 1
    assert "does not answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["no-such", "sda"],
        ["qd1"],
        ["qd1", "sdzz"],
        ["qd1", "sda", "--runtime", "0"],
        ["qd1", "sda", "--runtime", "nan"],
        ["qd1", "sda", "--runtime", "601"],
    ],
)
def test_bad_usage_exits_2(bench: Bench, words: list[str]) -> None:
    assert main(["probe", *words]) == 2
    assert bench.asked == []


@pytest.mark.parametrize("workload", ["oltp1", "oltp2", "oltp3", "mix-sweep", "four-corners"])
def test_writing_workload_requires_destructive(
    bench: Bench, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", workload, "sda"]) == 2
    assert bench.asked == []
    assert "destroys what is on a disk" in capsys.readouterr().err


def test_destructive_spares_mounted_disk(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.machine = machine(endpoint(mounts=("/srv",)))
    assert main(["probe", "oltp1", "sda", "--destructive"]) == 1
    assert bench.asked == []
    assert "it is mounted (/srv)" in capsys.readouterr().out


def test_runs_recheck_disk_contents(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([None, None, Skipped("sda", Skip.SIGNED, detail="ext4")])
    for module in (operation, guard):
        monkeypatch.setattr(module, "find_write_refusal", lambda subject, named: next(answers))
    monkeypatch.setattr(guard, "claim_device", lambda subject: nullcontext())
    assert main(["probe", "mix-sweep", "sda", "--destructive"]) == 1
    assert len(bench.asked) == 1
    captured = capsys.readouterr()
    assert "they WRITE" in captured.err
    assert "it holds data (ext4)" in captured.out


@pytest.mark.parametrize(
    "words",
    [
        ("qd1", "sda", "--runtime", "1"),
        ("qd1", "--runtime", "1", "sda"),
        ("--runtime", "1", "qd1", "sda"),
        ("--runtime=1", "qd1", "--json", "sda"),
    ],
)
def test_options_stand_anywhere(bench: Bench, words: tuple[str, ...]) -> None:
    assert main(["probe", *words]) == 0
    assert {workload.runtime for workload in bench.asked} == {1.0}


def test_blank_disk_is_reported(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "qd1", "sda"]) == 0
    assert "is zero" not in capsys.readouterr().out
    bench.blank = True
    assert main(["probe", "qd1", "sda"]) == 0
    assert capsys.readouterr().out.count("every block sampled is zero") == 1


def test_depth_sweep_names_knee(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "depth-sweep", "sda"]) == 0
    answer, *lines = capsys.readouterr().out.splitlines()
    assert answer == "sda: past depth 1: 0 % more IOPS for 100 % more p99."
    assert any(line.startswith("TARGET  PATTERN") for line in lines), "the runs come later"


def test_fall_in_iops_is_measured_again(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.falls_at = 64
    assert main(["probe", "depth-sweep", "sda"]) == 0
    assert "IOPS fell: 3 runs again, which take about" in capsys.readouterr().err
    depths = [workload.depth for workload in bench.asked]
    assert depths == [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 128, 64]
    records = history.load(Paths.history).records
    [knee] = [record.knee for record in records if record.knee]
    assert (knee.depth, knee.doubt) == (1, None)
    assert [len(sweep.results) for sweep in find_sweeps(records)] == [9], "no second sweep"


def test_documented_knee_is_next_to_measured(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.machine = machine(endpoint(protocol=Protocol.NVME, medium=Medium.NVME))
    assert main(["probe", "depth-sweep", "sda"]) == 0
    text = "for 100 % more p99; on such a medium it is at depth 64 to 128"
    assert text in capsys.readouterr().out


def test_history_shows_documented_knee(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.machine = machine(endpoint(protocol=Protocol.NVME, medium=Medium.NVME))
    assert main(["probe", "depth-sweep", "sda"]) == 0
    see_machine(monkeypatch, lambda: bench.machine)
    capsys.readouterr()
    assert main(["history"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "on such a medium it is at depth 64 to 128 (D0-12)" in out


def test_history_shows_depth_and_jobs(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["probe", "jobs-sweep", "sda"]) == 0
    see_machine(monkeypatch, lambda: bench.machine)
    capsys.readouterr()
    assert main(["history", "--runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    load = "probe jobs-sweep, 4K random reads, 64 in flight in 4 jobs"
    run = rf"sda +{load} +[\d,]+ IOPS, mean .* p99 "
    assert sum(bool(re.search(run, line)) for line in lines) == 1, lines
    assert not any("past depth" in line for line in lines)


def test_sweep_is_one_row(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["probe", "reference-short", "sda"]) == 0
    assert main(["probe", "jobs-sweep", "sda"]) == 0
    see_machine(monkeypatch, lambda: bench.machine)
    capsys.readouterr()
    assert main(["history"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if " sda  " in line]
    assert ["jobs-sweep" in line for line in lines] == [True] * 4 + [False], "the latest first"
    load = "4K random reads, 8 to 512 in flight in 8 jobs"
    row = rf"{load} +up to [\d,]+ IOPS in 7 runs, past depth 8:"
    assert sum(bool(re.search(row, line)) for line in lines) == 1, lines


def test_history_ends_with_documents(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["probe", "depth-sweep", "sda"]) == 0
    see_machine(monkeypatch, lambda: bench.machine)
    capsys.readouterr()
    assert main(["history"]) == 0
    _, _, table = capsys.readouterr().out.partition("D0: 05-50111-01 HBA Performance Report\n")
    assert re.search(r"sda +4K randread, 32 deep +p99 +1.25 ms +.* D0-12", table)


def test_jobs_sweep_gives_advice(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "jobs-sweep", "sda"]) == 0
    depths = (1, 2, 4, 8, 16, 32, 64)
    shapes = [(workload.jobs, workload.depth) for workload in bench.asked]
    assert shapes == [(jobs, depth) for jobs in (1, 2, 4, 8) for depth in depths]
    out = " ".join(capsys.readouterr().out.split())
    assert "sda, 4K random reads in 8 jobs: past depth 8:" in out
    assert "sda: 1 job 1 deep do as much as 8 jobs, within 5 %" in out
    knees = [record.knee.depth for record in history.load(Paths.history).records if record.knee]
    assert knees == [1, 2, 4, 8], "each number of jobs has its own"


def test_mix_shows_document_cost(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(subject: Subject, workload: Workload, names: Sequence[str]) -> ProbeOutcome:
        return bench.probe(subject, workload, write=True)

    monkeypatch.setattr(operation, "find_write_refusal", lambda *a: None)
    monkeypatch.setattr(running, "probe_guarded", written)
    assert main(["probe", "mix-sweep", "sda", "--destructive"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "sda: 70 % reads cost 0 % of the read-only IOPS, compared with 10 to 25 % (D0-15)." in out
    )


def test_sweep_shows_cpu_limit(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "depth-sweep", "sda"]) == 0
    out = capsys.readouterr().out
    [middle] = [line for line in out.splitlines() if "middle" in line]
    assert middle.split()[:3] == ["sda", "16", "middle"]
    assert "sda: from depth 128 on the CPUs are the limit: those involved are busy 95 %" in out


def test_history_records_sweep_knee(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "depth-sweep", "sda", "--json", "--profile", "oltp"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    *results, last = history.load(Paths.history).records
    assert [result.result.workload.depth for result in results if result.result] == [
        workload.depth for workload in bench.asked
    ]
    assert {result.command for result in results} == {"probe depth-sweep"}
    assert {result.profile for result in results} == {"oltp"}
    assert len({result.time for result in (*results, last)}) == 1
    assert last.knee is not None
    assert last.knee.depth == document["knees"][0]["knee"]["depth"] == 1
    assert last.workload == bench.asked[-1]
    [settings] = {result.result.settings for result in results if result.result}
    assert {setting.setting for setting in settings} == {"scheduler", "nr_requests", "queue_depth"}


def test_result_shows_profile_objective(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "depth-sweep", "sda", "--profile", "oltp"]) == 0
    out = capsys.readouterr().out
    assert "oltp requires at most 2 ms (D3-8): met" in out
    assert re.search(r"sda +4K randread, 32 deep +p99 +1.25 ms +.* D0-12", out)


DEPTH = "device/queue_depth"


@pytest.fixture
def lun(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return a LUN of depth 64, and make this user root."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    disk = Disk(tmp_path / "sys", "sda", device__queue_depth="64")
    bench.machine = machine(msgspec.structs.replace(disk.endpoint(), depth_cap=64))
    return disk


def test_depth_sweep_restores_depth(
    bench: Bench, lun: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "queue-depth", "sda", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    # A plain file keeps its length, so that 8 in the place of 64 is ignored, as a device may.
    assert list(dict.fromkeys(bench.depths)) == [16, 32, 64]
    assert [knee["queue_depth"] for knee in document["knees"]] == [16, 32, 64]
    refused = [
        entry["outcome"] for entry in document["runs"] if entry["outcome"]["type"] == "skipped"
    ]
    assert {outcome["detail"] for outcome in refused} == {"ignored", "the device takes 64 at most"}
    assert lun.value(DEPTH) == "64"
    assert not Paths.journal.exists()
    assert read_held_ids(Paths.holds) == frozenset()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_depth_change_ends_sweep(
    bench: Bench,
    lun: Disk,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    at: int,
) -> None:
    def probe(*words: Any, **options: Any) -> ProbeOutcome:
        if len(bench.asked) == at - 1:
            (lun.path / DEPTH).write_text("48")
        return bench.probe(*words, **options)

    monkeypatch.setattr(running, "probe_subject", probe)
    (lun.path / DEPTH).write_text("63")
    assert main(["probe", "queue-depth", "sda", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    validate(document)
    [last] = [
        entry["outcome"]
        for entry in document["runs"]
        if entry["outcome"].get("reason") == "conflict"
    ]
    assert last["detail"] == "48"
    assert lun.value(DEPTH) == "48"
    assert len(bench.asked) == at


def test_depth_sweep_requires_root(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["probe", "queue-depth", "sda"]) == 2
    assert bench.asked == []


def test_locked_depth_sweep_exits_3(
    bench: Bench, lun: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_locked() -> object:
        raise LockedError(123)

    monkeypatch.setattr("hbatune.cli.command_context.take_lock_after_pass", raise_locked)
    assert main(["probe", "queue-depth", "sda"]) == 3
    assert bench.asked == []


@pytest.mark.parametrize(("name", "probed"), [("0000:01:00.0", 0), ("sda", 2), ("/dev/sda", 2)])
def test_shared_lun_needs_name(
    bench: Bench, name: str, probed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.machine = machine(endpoint(protocol=Protocol.FC))
    assert main(["probe", "qd1", name]) == (0 if probed else 1)
    assert len(bench.asked) == probed
    assert ("other hosts share its array" in capsys.readouterr().out) == (not probed)


def test_file_probe_is_recorded(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def measured(target: str, path: str, size: int, workload: Workload) -> ProbeOutcome:
        return ProbeResult(target, f"file:{target}", workload, FIGURES, "3.33", ())

    monkeypatch.setattr(running, "probe_file", measured)
    monkeypatch.setattr(
        operation,
        "make_scratch_file",
        lambda *_: nullcontext(ScratchFile("/proc/1/fd/3", 1 << 30)),
    )
    assert main(["probe", "oltp1", "--file", str(tmp_path)]) == 0
    [row] = [line for line in capsys.readouterr().out.splitlines() if "randrw" in line]
    assert row.split()[5:7] == ["60000", "0.25"], "IOPS and GB/s"
    [record] = history.load(Paths.history).records
    assert (record.command, record.target) == ("probe oltp1", str(tmp_path))
    [entry] = history.list_entries([record], bench.machine)
    assert entry.stale == (), "no disk is missed"


@pytest.mark.parametrize(
    ("protocol", "storage", "warned"),
    [
        (Protocol.SAS, Storage.LOCAL, False),
        (Protocol.VOLUME, Storage.LOCAL, True),
        (Protocol.FC, Storage.ARRAY, True),
        (Protocol.VIRTIO, Storage.VIRTUAL, True),
    ],
)
def test_file_size_is_announced(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    protocol: Protocol,
    storage: Storage,
    warned: bool,
) -> None:
    def make(folder: Path, size: int, announce: Callable[[int, float], None]) -> Any:
        announce(size, 100.0)
        return nullcontext(ScratchFile("/proc/1/fd/3", size))

    def measure(target: str, path: str, size: int, workload: Workload) -> ProbeOutcome:
        assert size == 10 << 30
        return ProbeResult(target, f"file:{target}", workload, FIGURES, "3.33", ())

    mounts = (find_mount_point(tmp_path),)
    bench.machine = machine(endpoint(protocol=protocol, storage=storage, mounts=mounts))
    monkeypatch.setattr(running, "probe_file", measure)
    monkeypatch.setattr(operation, "make_scratch_file", make)
    words = ["probe", "--depth", "1", "--runtime", "9.5", "--file", str(tmp_path)]
    assert main([*words, "--size", "10g"]) == 0
    text = " ".join(capsys.readouterr().err.split())
    assert re.search("1 run on a file of 10240 MiB, which takes about 11[0-5] s with filling", text)
    assert ("a cache of the adapter or array answers, unless the file exceeds" in text) == warned
    assert main([*words, "--size", "10g", "--quiet"]) == 0
    assert ("cache" in capsys.readouterr().err) == warned


def export_corners(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, rate: float, folder: Path, program: str
) -> int:
    """Export the four corners of a file; ``rate`` is the rate at the maximum depth."""

    def measure(target: str, path: str, size: int, workload: Workload) -> ProbeOutcome:
        deepest = 192 if workload.block_size == 4096 else 96
        iops = rate * workload.depth / deepest
        figures = msgspec.structs.replace(FIGURES, iops=iops, bandwidth=iops * workload.block_size)
        figures = msgspec.structs.replace(figures, mean_us=workload.issued / iops * 1e6)
        return ProbeResult(target, f"file:{target}", workload, figures, "3.33", ())

    monkeypatch.setattr(running, "probe_file", measure)
    file = nullcontext(ScratchFile("/proc/1/fd/3", 1 << 30))
    monkeypatch.setattr(operation, "make_scratch_file", lambda *_: file)
    return main(["probe", "four-corners", "--file", str(folder), "--export", program])


def test_scylla_export_is_yaml(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("hbatune.cli.commands.probe.find_mount_point", lambda _: '/srv/a: "b" #')
    assert export_corners(bench, monkeypatch, 1000, tmp_path, "scylla") == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == f"# {tmp_path}"
    assert lines == [
        "disks:",
        r'  - mountpoint: "/srv/a: \"b\" #"',
        "    read_iops: 1000",
        f"    read_bandwidth: {1000 << 20}",
        "    write_iops: 1000",
        f"    write_bandwidth: {1000 << 20}",
    ]


@pytest.mark.parametrize(
    ("media", "iops", "option"),
    [
        ((Medium.HDD,), 49, None),
        ((Medium.HDD,), 50, "osd_mclock_max_capacity_iops_hdd = 50"),
        ((Medium.HDD, Medium.HDD), 500, "osd_mclock_max_capacity_iops_hdd = 500"),
        ((Medium.HDD,), 501, None),
        ((Medium.SSD,), 999, None),
        ((Medium.SSD,), 1000, "osd_mclock_max_capacity_iops_ssd = 1000"),
        ((Medium.NVME,), 80_000, "osd_mclock_max_capacity_iops_ssd = 80000"),
        ((Medium.NVME,), 80_001, None),
        ((Medium.UNKNOWN,), 1000, None),
        ((Medium.SSD, Medium.HDD), 1000, None),
        ((), 1000, None),
    ],
)
def test_ceph_export_obeys_limits(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    media: tuple[Medium, ...],
    iops: float,
    option: str | None,
) -> None:
    mounts = (find_mount_point(tmp_path),)
    disks = [
        endpoint(target=f"sd{n}", medium=medium, mounts=mounts) for n, medium in enumerate(media)
    ]
    bench.machine = machine(*disks)
    code = export_corners(bench, monkeypatch, iops, tmp_path, "ceph")
    captured = capsys.readouterr()
    if option is not None:
        assert (code, captured.out) == (0, f"# {tmp_path}\n{option}\n")
        return
    assert (code, captured.out) == (1, "")
    is_certain = len(set(media)) == 1 and media != (Medium.UNKNOWN,)
    reason = f"{iops} IOPS are outside of Ceph's limits for" if is_certain else "medium is unknown"
    assert reason in " ".join(captured.err.split())


def test_untrusted_rates_are_not_exported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ProbeResult("sda", "wwn-1", Workload(Pattern.RANDOM_WRITE), FIGURES, "3.33", ())
    likes = [
        Workload(Pattern.RANDOM_WRITE, rate=100),
        Workload(Pattern.RANDOM_WRITE, zones=(Zone(100),)),
        Workload(Pattern.RANDOM_WRITE, block_size=8192),
        Workload(Pattern.RANDOM_WRITE, depth=12),  # 24 in flight, by Little's law
    ]
    results = [msgspec.structs.replace(plain, workload=workload) for workload in likes]
    with pytest.raises(HbatuneError, match="randwrite has no result that can be trusted"):
        export_results("ceph", results, Medium.SSD, "sda")
    assert export_results("ceph", [plain], Medium.SSD, "sda")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("qd1", "sda", "--export", "ceph"), "qd1 does not measure all rates"),
        (("qd1", "sda", "--export", "ceph", "--json"), "omit --json"),
        (("qd1", "sda", "--export", "scylla"), "name a directory with --file"),
        (("block-sweep-writes", "--file", "/srv", "--export", "scylla"), "use the workload"),
        (("four-corners", "--file", "/srv", "--export", "iotune"), "takes ceph, scylla"),
    ],
)
def test_export_needs_its_workload(
    bench: Bench, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert main(["probe", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert bench.asked == []


def test_refused_disk_is_not_exported(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.machine = machine(endpoint(mounts=("/srv",)))
    assert main(["probe", "four-corners", "--destructive", "sda", "--export", "ceph"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "sda: not probed: " in captured.err


def test_options_describe_custom_workload(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("probe", "--depth", "8", "--block", "8k", "--jobs", "2", "sda")
    assert main(list(words)) == 0
    assert bench.asked == [Workload(block_size=8192, depth=8, jobs=2)]
    [record, *_] = history.load(Paths.history).records
    assert record.command == "probe custom"
    assert main(["probe", "--mix", "70", "--rate", "500", "sda"]) == 2
    assert "destroys what is on a disk" in capsys.readouterr().err
    assert main(["probe", "--depth", "8", "qd1", "sda"]) == 2
    assert "omit the name" in capsys.readouterr().err


def record(path: Path, *depths: float) -> str:
    """Write what `watch --json` prints of sda with these means in flight, and of another disk."""
    lines = []
    for depth in depths:
        rates = dict.fromkeys(("iops", "read_bytes_per_s", "write_bytes_per_s"), 1.0)
        readings = [
            {**rates, "target": "sda", "id": "wwn-1", "in_flight": depth},
            {**rates, "target": "sdz", "id": "wwn-2", "in_flight": 900.0},
        ]
        lines.append(json.dumps({"schema": "hbatune.watch/1", "readings": readings}))
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("depths", "expected"), [((20.0, 0.0, 27.2), 24), ((0.2,), 1), ((9000.0,), 4096)]
)
def test_probe_takes_running_depth(
    bench: Bench, tmp_path: Path, depths: tuple[float, ...], expected: int
) -> None:
    file = record(tmp_path / "load.json", *depths)
    assert main(["probe", "--watch", file, "--block", "8k", "sda"]) == 0
    assert bench.asked == [Workload(block_size=8192, depth=expected)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sdx",), "watch has seen no I/O of 'sdx'"),
        (("sda", "sdb"), "--watch has the depth of one disk"),
        (("--depth", "8", "sda"), "--watch has the depth of one disk"),
        ((), "--watch has the depth of one disk"),
        (("qd1", "sda"), "omit the name"),
    ],
)
def test_running_depth_needs_one_disk(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    file = record(tmp_path / "load.json", 7.0)
    assert main(["probe", "--watch", file, *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert bench.asked == []


def test_trace_is_replayed(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ios = steady_ios(75_000, every_us=13, writes=10_500)  # 60,000 of 64,500 reads are done
    path = save(tmp_path / "disk.trace", ios, lost=5)
    bench.moved = 3
    assert main(["probe", "--trace", str(path), "sda"]) == 0
    assert bench.asked == [make_replay(path)]
    out, err = (" ".join(text.split()) for text in capsys.readouterr())
    assert "sda trace at 64500/s 8192" in out
    assert "the rate could not be held: 60000 of 64500 a second" in out
    assert "sda: 14 % of the I/Os are writes, which were not replayed" in err
    assert "sda: the replay fell behind: 93 % of the I/Os were done in time" in err
    assert "sda: 3 I/Os beyond the end of the disk or file went to other addresses" in err
    assert "sda: the capture lost 5 % of its events" in err
    assert main(["probe", "--trace", str(path), "sda", "--json", "--runtime", "0.5"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    [run] = document["runs"]
    part = run["workload"]["trace"]
    assert (run["workload"]["runtime"], part["path"], part["lost"]) == (0.5, str(path), 5 / 105)
    assert run["outcome"]["figures"]["moved"] == 3
    assert {record.command for record in history.load(Paths.history).records} == {"probe trace"}


def test_punctual_replay_has_no_remarks(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(60_300, every_us=16), lost=1)
    assert main(["probe", "--trace", str(path), "sda"]) == 0
    out, err = capsys.readouterr()
    assert "sda     trace" in out
    assert "sda:" not in err
    assert main(["probe", "--trace", str(path), "sda", "--runtime", "5"]) == 0
    assert bench.asked[0] == bench.asked[1], "the trace has only 1 s"


def test_replay_writes_to_empty_disk_only(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(1000, writes=140))
    bench.machine = machine(endpoint(mounts=("/srv",)))
    assert main(["probe", "--trace", str(path), "--destructive", "sda"]) == 1
    assert "sda: not probed: it is mounted" in " ".join(capsys.readouterr().out.split())
    assert bench.asked == []


def test_file_replay_includes_writes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, probed = save(tmp_path / "disk.trace", steady_ios(1000, writes=140)), list[Workload]()

    def measure(target: str, path: str, size: int, workload: Workload) -> ProbeOutcome:
        probed.append(workload)
        return ProbeResult(target, f"file:{target}", workload, FIGURES, "3.33", ())

    monkeypatch.setattr(running, "probe_file", measure)
    file = nullcontext(ScratchFile("/proc/1/fd/3", 1 << 30))
    monkeypatch.setattr(operation, "make_scratch_file", lambda *_: file)
    assert main(["probe", "--trace", str(path), "--file", str(tmp_path)]) == 0
    assert probed == [make_replay(path, writes=True)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--depth", "8", "sda"), "--trace is the complete load"),
        (("--watch", "load.json", "sda"), "--trace is the complete load"),
        (("--together", "sda"), "--trace is the complete load"),
        (("qd1", "sda"), "omit the name"),
        ((), "nothing to probe"),
        (("--runtime", "0", "sda"), "--runtime must be above 0"),
    ],
)
def test_trace_excludes_other_loads(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(10))
    assert main(["probe", "--trace", str(path), *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert bench.asked == []


def test_damaged_trace_is_usage_error(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(10))
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["probe", "--trace", str(path), "sda"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "is not a trace" in error
    assert "hbatune capture" in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "words",
    [
        ("--depth", "0"),
        ("--depth", "many"),
        ("--block", "1000"),
        ("--block", "32m"),
        ("--mix", "101"),
        ("--jobs", "257"),
        ("--rate", "-1"),
    ],
)
def test_invalid_numbers_are_refused(bench: Bench, words: tuple[str, ...]) -> None:
    assert main(["probe", *words, "sda"]) == 2
    assert bench.asked == []


@pytest.mark.parametrize(
    ("rate", "message"), [(60_500, ""), (90_000, "could not be held: 60000 of")]
)
def test_missed_rate_is_reported(
    bench: Bench, capsys: pytest.CaptureFixture[str], rate: int, message: str
) -> None:
    assert main(["probe", "--rate", str(rate), "sda", "--json"]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert run["doubt"] == ("rate" if message else None)
    assert run["workload"]["depth"] == 256
    main(["probe", "--rate", str(rate), "sda"])
    out = capsys.readouterr().out
    assert f"randread at {rate}/s" in out
    assert message in out
    assert ("could not be held" in out) == bool(message)


def test_busy_disk_is_not_announced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = {"sda": Skipped("sda", Skip.BUSY, "62 %")}
    monkeypatch.setattr(guard, "find_busy_subjects", lambda subjects: busy)
    assert main(["probe", "depth-sweep", "sda", "--profile", "oltp"]) == 1
    output = capsys.readouterr()
    assert output.out == "sda: not probed: it is busy (62 %)\n"
    assert output.err == ""
    assert not bench.asked


@pytest.mark.parametrize("words", [("probe", "reference-short"), ("autotune",)])
def test_missing_fio_is_no_announcement(
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert main([*words, "sda"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("hbatune: nothing was probed: fio is not installed")
