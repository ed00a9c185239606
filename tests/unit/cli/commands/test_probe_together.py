"""Disks of one adapter that are probed at once, and what holds them back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.cli import main
from hbatune.probe import fio, guard, history
from hbatune.probe import run as running
from hbatune.probe.result import (
    Failed,
    Failure,
    Figures,
    Pattern,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.run import TogetherOutcome
from tests.documented import validate
from tests.unit.command_runs import see_machine
from tests.unit.machines import adapter, endpoint, machine
from tests.unit.probe_results import FIGURES

RECORDED = Path(__file__).parents[2] / "probe" / "recorded" / "fio-3.33-1-jobs.json"


def test_one_fio_loads_all_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "fio"
    script.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo fio-3.33; exit; fi\n'
        f"cat >{tmp_path}/job\ncat '{RECORDED}' >out\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(guard, "find_busy_subjects", lambda subjects: {})
    subjects = prepared(tmp_path, "sda", "sdb", "sdc")
    figures = running.probe_together("hba", subjects, Workload(ramp=0, runtime=0.1, depth=7))
    assert isinstance(figures, Figures)
    job = (tmp_path / "job").read_text().splitlines()
    files = [line for line in job if line.startswith("filename=")]
    assert files == [f"filename={tmp_path}/{name}" for name in ("sda", "sdb", "sdc")]
    assert job.count("iodepth=7") == job.count("rw=randread") == 3


class Bench:
    """Two disks of one adapter and one of another; ``at_once`` is what disks do together."""

    def __init__(self) -> None:
        self.at_once: TogetherOutcome = replace(FIGURES, iops=70_000.0, bandwidth=0.3e9)
        self.loaded: list[list[str]] = []
        self.machine = machine(
            endpoint(target="sda"),
            endpoint(target="sdb"),
            endpoint(target="sdc", adapter="0000:02:00.0"),
            adapters=(adapter(), adapter(target="0000:02:00.0")),
        )

    def probe(self, subject: Subject, workload: Workload, **_: Any) -> ProbeOutcome:
        wait = workload.issued / FIGURES.iops * 1e6
        figures = replace(FIGURES, mean_us=wait)
        id = subject.endpoint.id
        return ProbeResult(subject.target, id, workload, figures, "3.33", (), blank=False)

    def together(
        self, target: str, subjects: Sequence[Subject], workload: Workload, names: Sequence[str]
    ) -> TogetherOutcome:
        self.loaded.append([subject.target for subject in subjects])
        return self.at_once


def prepared(folder: Path, *names: str) -> list[Subject]:
    """Return disks whose device nodes are files in the folder."""
    subjects = []
    for name in names:
        (folder / name).touch()
        file_endpoint = endpoint(target=name, device_node=str(folder / name), sysfs=str(folder))
        subjects.append(Subject(file_endpoint, adapters=(adapter(),)))
    return subjects


WRITES = Workload(pattern=Pattern.RANDOM_WRITE, ramp=0, runtime=0.1)


def test_joint_writes_need_empty_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bool] = []

    def measure(*_: object, write: bool, **__: object) -> Figures:
        writes.append(write)
        return FIGURES

    monkeypatch.setattr(fio, "find", lambda target: fio.Fio("fio", "3.33"))
    monkeypatch.setattr(fio, "measure", measure)
    monkeypatch.setattr(guard, "find_busy_subjects", lambda subjects: {})
    content: dict[str, str | None] = {}
    monkeypatch.setattr(
        "hbatune.probe.guard.read_signature", lambda node: content.get(Path(node).name)
    )
    disks = prepared(tmp_path, "sda", "sdb")
    assert running.probe_together("hba", disks, WRITES, ("sda", "sdb")) == FIGURES
    unnamed = running.probe_together("hba", disks, WRITES, ("sda",))
    assert unnamed == Skipped("sdb", Skip.NOT_NAMED)
    content["sdb"] = "ext4"
    signed = running.probe_together("hba", disks, WRITES, ("sda", "sdb"))
    assert signed == Skipped("sdb", Skip.SIGNED, detail="ext4")
    assert writes == [True], "nothing was written to the other two times"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    new_bench = Bench()
    see_machine(monkeypatch, lambda: new_bench.machine)
    monkeypatch.setattr(running, "probe_subject", new_bench.probe)
    monkeypatch.setattr(guard, "find_busy_subjects", lambda subjects: {})
    monkeypatch.setattr(running, "probe_together", new_bench.together)
    return new_bench


ALL = ("sda", "sdb", "sdc")


def test_adapter_disks_run_together(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "reference-short", *ALL, "--together", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert bench.loaded == [["sda", "sdb"]], "and not with the disk of another adapter"
    [together] = document["together"]
    assert together["adapter"] == "0000:01:00.0"
    assert together["bottleneck"] == "adapter"
    assert len(document["runs"]) == 3


def test_history_records_joint_run(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["probe", "reference-short", *ALL, "--together"]) == 0
    *single_records, joint = history.load(Paths.history).records
    assert [record.target for record in single_records] == list(ALL)
    assert joint.together is not None
    assert joint.together.targets == ("sda", "sdb")
    assert joint.together.figures.iops == 70_000
    see_machine(monkeypatch, lambda: bench.machine)
    capsys.readouterr()
    assert main(["history", "0000:01:00.0"]) == 0
    out = capsys.readouterr().out
    assert "4K random reads, 24 in flight on each of 2 disks at once" in " ".join(out.split())
    assert "limit: adapter" in out


def test_bottleneck_text_includes_figures(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.at_once = replace(FIGURES, iops=110_000.0, bandwidth=7.0e9)
    assert main(["probe", "reference-short", *ALL, "--together"]) == 0
    out = capsys.readouterr().out
    assert "0000:01:00.0: 2 disks together do 110,000 IOPS (7.00 GB/s), 92 % of the 120,000" in out
    assert "the link is the limit: 89 % of the 7.88 GB/s that it carries as it runs now." in out


def test_implausible_concurrency_is_untrusted(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of two disks, each 24 deep, there are 48 in flight at most.
    bench.at_once = replace(FIGURES, iops=70_000.0, mean_us=60 / 0.07)
    assert main(["probe", "reference-short", *ALL, "--together", "--json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)["together"]
    assert entry["doubt"] == "too_many"
    bench.at_once = replace(FIGURES, iops=70_000.0, mean_us=47 / 0.07)
    assert main(["probe", "reference-short", *ALL, "--together"]) == 0
    assert "untrusted" not in capsys.readouterr().out
    bench.at_once = replace(FIGURES, iops=70_000.0, mean_us=30 / 0.07)
    assert main(["probe", "reference-short", *ALL, "--together"]) == 0
    out = capsys.readouterr().out
    assert "0000:01:00.0: that is untrusted: under 90 % of the depth issued" in out


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Skipped("sdb", Skip.BUSY), "sdb: not probed together: it is busy"),
        (Failed("0000:01:00.0", Failure.TIMEOUT), "not probed together: passed its deadline"),
    ],
)
def test_failed_joint_run_gives_reason(
    bench: Bench,
    outcome: Skipped | Failed,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench.at_once = outcome
    assert main(["probe", "reference-short", *ALL, "--together"]) == 1
    assert words in capsys.readouterr().out


def test_single_disk_cannot_run_together(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "reference-short", "sda", "--together"]) == 1
    assert "no adapter has two of these disks" in capsys.readouterr().out


@pytest.mark.parametrize("workload", ["queue-depth", "interference"])
def test_single_disk_workloads_reject_together(
    bench: Bench, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert main(["probe", workload, *ALL, "--destructive", "--together"]) == 2
    assert bench.loaded == []


def test_joint_writes_need_destructive_option(bench: Bench) -> None:
    assert main(["probe", "block-sweep-writes", *ALL, "--together"]) == 2
    assert bench.loaded == []
