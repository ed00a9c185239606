"""`autotune` as a person sees it, on a closed loop whose truth is known."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act import journal
from hbatune.act.chain import WriteResult
from hbatune.act.executor import Means
from hbatune.act.lock import read_held_ids
from hbatune.act.paths import Paths
from hbatune.act.restore import plan_rollback, restore_values
from hbatune.act.trial import Experiment
from hbatune.cli import main
from hbatune.cli.command_context import make_context
from hbatune.facts.model import Endpoint, Kind, Machine, Protocol
from hbatune.operations.autotune import SEARCHED_SETTINGS
from hbatune.operations.context import Note, Phase
from hbatune.operations.disk_probes import MAX_TRIES, RAMP_S
from hbatune.plan.rows import Outcome
from hbatune.probe import guard, history
from hbatune.probe import run as running
from hbatune.probe.guard import ScratchFile
from hbatune.probe.result import (
    Failed,
    Failure,
    Histogram,
    Load,
    Prepare,
    ProbeOutcome,
    ProbeResult,
    Served,
    Skip,
    Skipped,
    Subject,
    Window,
    Workload,
)
from hbatune.probe.selection import choose_representatives
from hbatune.settings.setting import parse_selected
from hbatune.text.notes import show_note
from tests.documented import validate
from tests.unit.command_runs import see_machine
from tests.unit.disk_files import Disk
from tests.unit.machines import endpoint, machine
from tests.unit.probe_results import FIGURES, result
from tests.unit.site_folder import SiteFolder

DEPTH, AFFINITY = "device/queue_depth", "queue/rq_affinity"
QUEUE = ("queue/scheduler", "queue/nr_requests")
SERVED = Served("0000:01:00.0", "mpt3sas", "43.100.00.00", "16.00.12.00")
TUNED = """
title = "a profile for tests"
[probe]
depth = 24
"""
GOAL = """
[[objective]]
p99_ms = {}
because = "a test"
source = "site"
"""


class Bench:
    """A disk of so many servers of 1 ms each, whose probes are computed; ``seen`` are all of them.

    Beside a bulk writer, a reader's p99 is that of the scheduler in force, in ms.
    """

    def __init__(self, top: Path) -> None:
        self.disk = Disk(
            top,
            "sda",
            device__queue_depth="254",
            queue__scheduler="mq-deadline [none] kyber",
            queue__nr_requests="960",
        )
        self.servers, self.noise, self.tail_noise = 60, 0.01, 0.02
        self.mounts: tuple[str, ...] = ()
        self.factors: dict[int, float] = {}
        self.unreached = 1 << 20
        self.others: tuple[Endpoint, ...] = ()
        self.faster: dict[str, float] = {}
        self.waits = {"none": 50.0, "mq-deadline": 50.0, "kyber": 50.0}
        self.written_to: set[str] = set()
        self.seen: list[tuple[Workload, str, str]] = []
        self.instead: dict[int, ProbeOutcome] = {}
        self.before_probe: Callable[[], None] = lambda: None
        self.random = Random(1)
        self.steps, self.total = 0, 0
        self.notes: list[Note] = []

    @property
    def machine(self) -> Machine:
        disk_endpoint = replace(self.disk.endpoint(), depth_cap=960, tags=960, mounts=self.mounts)
        return machine(disk_endpoint, *self.others)

    def probe(
        self,
        subject: Subject,
        workload: Workload,
        *,
        look: bool = False,
        write: bool = False,
        prepare: Prepare | None = None,
    ) -> ProbeOutcome:
        self.before_probe()
        assert write == workload.writes == (workload.writer is not None)
        if workload.writer is not None:
            self.written_to.add(subject.endpoint.device_node or "")
        assert read_held_ids(Paths.holds) == {subject.endpoint.id}, (
            "the daemon leaves it alone meanwhile"
        )
        depth, affinity = self.disk.value(DEPTH), self.disk.value(AFFINITY)
        self.seen.append((workload, depth, affinity))
        if len(self.seen) in self.instead:
            return self.instead[len(self.seen)]
        in_flight = min(workload.issued, int(depth))
        rate = min(in_flight, self.servers) * 1000 * self.faster.get(affinity, 1.0)
        scheduler = parse_selected(self.disk.value("queue/scheduler"))
        waits = self.waits[scheduler] if workload.writer is not None else None
        windows = tuple(self.window(in_flight, rate, waits) for _ in range(4))
        mean_iops = sum(window.iops for window in windows) / 4
        wait = workload.issued / mean_iops * 1e6 * self.factors.get(len(self.seen), 1.0)
        wait *= 0.5 if workload.issued >= self.unreached else 1.0
        worst = sum(window.histogram.percentile(99) / 1000 for window in windows) / 4
        figures = replace(
            FIGURES, iops=mean_iops, mean_us=wait, p99_us=worst, windows=windows, runtime=2.0
        )
        if workload.writer is not None:
            figures = replace(figures, written_beside=120e6)
        return ProbeResult(
            *(subject.target, subject.endpoint.id, workload, figures, "3.33", (SERVED,)),
            settings=subject.settings,
            blank=False if look else None,
        )

    def note(self, note: Note) -> None:
        """Keep the note, and show it as the command does."""
        self.notes.append(note)
        show_note(note)

    @contextmanager
    def progress(self, title: Phase, total: int) -> Iterator[Callable[..., None]]:
        """Count the steps of the search's bar, and check that its total covers them."""
        self.total += total if title is Phase.SEARCHING else 0

        def advance(step: str, more: int = 0) -> None:
            self.total += more
            self.steps += not more
            assert self.steps <= self.total, "the bar counts beyond its total"

        yield advance

    def window(self, in_flight: int, rate: float, waits: float | None) -> Window:
        ios = round(rate / 2 * max(0.05, 1 + self.random.gauss(0, self.noise)))
        p99 = 1.3e6 * max(1, in_flight / self.servers) if waits is None else 1e6 * waits
        p99 *= max(0.05, 1 + self.random.gauss(0, self.tail_noise))
        return Window(0.5, ios, Histogram({round(p99): ios}), 0.0, 0.0)


def store(path: str, text: str) -> int | None:
    """Write as the kernel does: a scheduler's file lists all, and a switch resets the requests."""
    file = Path(path)
    if file.name != "scheduler":
        file.write_text(text)
        return None
    names = [name.strip("[]") for name in file.read_text().split()]
    file.write_text(" ".join(f"[{name}]" if name == text else name for name in names))
    (file.parent / "nr_requests").write_text("960" if text == "none" else "256")
    return None


@pytest.fixture
def bench(tmp_path: Path, site: SiteFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Replace this machine by the simulated disk, and make this user root.

    However a search ends, its progress bar has to end at its total.
    """
    new_bench = Bench(tmp_path / "sys")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    see_machine(monkeypatch, lambda: new_bench.machine)
    monkeypatch.setattr(running, "choose_subjects", choose_representatives)
    monkeypatch.setattr(running, "probe_subject", new_bench.probe)
    monkeypatch.setattr(running, "find_disturbance", lambda subject: None)
    monkeypatch.setattr("hbatune.act.chain._store", store)
    # The clock is the seed of the orders drawn by lot.
    context = make_context()
    context = replace(context, clock=lambda: 1_763_800_000.0, progress=new_bench.progress)
    context = replace(context, note=new_bench.note)
    monkeypatch.setattr("hbatune.cli.commands.autotune.make_context", lambda: context)
    site.put("profiles/tuned.toml", TUNED + GOAL.format(2.0))
    site.put("profiles/free.toml", TUNED)
    yield new_bench
    assert new_bench.steps == new_bench.total


def tuned(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(["autotune", "sda", "--json", *words]) == code
    document = json.loads(capsys.readouterr().out)
    validate(document)
    return document


def untouched(bench: Bench) -> bool:
    values = [bench.disk.value(path) for path in (DEPTH, AFFINITY, *QUEUE)]
    same = values == ["254", "1", "mq-deadline [none] kyber", "960"]
    return same and not Paths.journal.exists() and read_held_ids(Paths.holds) == frozenset()


def test_search_meets_objective(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    [disk] = tuned(capsys, "--profile", "tuned")["disks"]
    answer = disk["depth"]["answer"]
    assert answer["word"] == "best"
    assert 57 <= answer["depth"] <= 92, "where 60 servers are all at work, and p99 is below 2 ms"
    assert answer["probes"] <= 8
    assert [improvement["after"] for improvement in disk["better"]] == [answer["depth"]]
    assert untouched(bench)
    searched = bench.seen[: answer["probes"]]
    fewer = {depth for workload, depth, _ in searched if workload.issued < 254}
    assert fewer == {"254"}, "they need no write"


def test_deeper_depth_is_temporary(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.servers = 800
    [disk] = tuned(capsys, "--profile", "free")["disks"]
    answer = disk["depth"]["answer"]
    assert answer["word"] == "best"
    assert 776 <= answer["depth"] <= 960
    deep = [(workload.issued, depth) for workload, depth, _ in bench.seen if workload.issued > 254]
    assert deep
    assert all(str(issued) == depth for issued, depth in deep)
    assert untouched(bench)


def test_equal_depth_is_reported(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.servers = 240
    assert main(["autotune", "sda", "--profile", "free"]) == 0
    out = capsys.readouterr().out
    assert "as good as the current value" in out
    assert "All settings are unchanged." in out
    assert untouched(bench)


def test_unreachable_objective_is_reported(
    bench: Bench, site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    site.put("profiles/tuned.toml", TUNED + GOAL.format(0.5))
    assert main(["autotune", "sda", "--profile", "tuned"]) == 0
    out = capsys.readouterr().out
    assert "out of reach" in out
    assert "even 1 in flight is too slow" in out
    assert "tuned requires at most 500 µs" in out


def test_noisy_result_prevents_rule(
    bench: Bench, site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.noise, bench.tail_noise = 0.6, 0.9
    assert main(["autotune", "sda", "--profile", "tuned", "--write"]) == 0
    out = capsys.readouterr().out
    assert "cannot tell" in out
    assert "the likeliest is" in out
    assert "No rule is written: nothing was better." in out
    assert not (site.root / "rules.d").exists()


def test_uncertain_depth_needs_comparison(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.servers, bench.noise = 230, 0.6
    [disk] = tuned(capsys, "--profile", "free")["disks"]
    depth = disk["depth"]
    announced = [note.seconds for note in bench.notes if hasattr(note, "seconds")]
    assert len(announced) > 1, "an unexpected comparison is announced"
    seconds = running.estimate_seconds(*(workload for workload, _, _ in bench.seen))
    assert 0.8 < seconds / sum(announced) < 1.2
    assert depth["answer"]["chance"] < 0.85
    assert depth["compared"]["word"] != "best"
    assert depth["answer"]["word"] == depth["compared"]["word"]
    assert disk["better"] == []
    assert untouched(bench)


def test_better_depth_outweighs_noise(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.servers, bench.noise, bench.random = 480, 0.4, Random(3)
    [disk] = tuned(capsys, "--profile", "free")["disks"]
    assert disk["depth"]["answer"]["chance"] < 0.85
    assert disk["depth"]["compared"]["low"] > 1
    assert disk["depth"]["answer"]["word"] == "best"
    assert disk["better"][0]["after"] > 254
    assert untouched(bench)


def test_doubtful_probe_is_repeated(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    answer = tuned(capsys, "--profile", "tuned")["disks"][0]["depth"]["answer"]
    bench.seen.clear()
    bench.factors = {2: 1.5}  # more in flight than was issued
    again = tuned(capsys, "--profile", "tuned")["disks"][0]["depth"]["answer"]
    assert (again["word"], again["probes"]) == (answer["word"], answer["probes"])
    bench.seen.clear()
    bench.factors = dict.fromkeys(range(2, 99), 1.5)
    [disk] = tuned(capsys, "--profile", "tuned", code=1)["disks"]
    assert (disk["ended"], len(bench.seen)) == ("untrusted", 1 + MAX_TRIES)
    assert disk["doubtful"]["figures"]["iops"] > 0


def test_unreached_depth_bounds_search(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.servers = 800
    bench.unreached = 256
    [disk] = tuned(capsys, "--profile", "free")["disks"]
    assert max(measurement["depth"] for measurement in disk["depth"]["measured"]) < 256
    assert disk["depth"]["answer"]["word"] == "cannot tell", "nor was the depth in force reached"
    assert disk["better"] == []
    assert untouched(bench)


def test_unreachable_depth_ends_search(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.unreached = 1
    assert main(["autotune", "sda", "--profile", "tuned"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "the last one broke Little's law (D3-6), with 2.00 I/Os in flight of 4" in out
    assert len(bench.seen) == MAX_TRIES


def test_silent_disk_ends_search(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.instead = dict.fromkeys(
        range(2, 2 + MAX_TRIES), result(iops=0.0, p99_us=0.0, runtime=2.0)
    )
    assert main(["autotune", "sda", "--profile", "tuned"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "no I/O of the last one came back in 2.00 s" in out
    assert untouched(bench)


def test_faster_setting_is_detected(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.faster = {"2": 1.2}
    [disk] = tuned(capsys, "--profile", "tuned")["disks"]
    better = {improvement["setting"]: improvement["after"] for improvement in disk["better"]}
    assert better["rq_affinity"] == 2
    assert disk["settings"]["answer"]["word"] == "best"
    assert disk["settings"]["answer"]["low"] > 1.1
    assert disk["settings"]["depth"] == 24, "the profile's load, with the depth that was found"
    best = str(disk["depth"]["answer"]["depth"])
    assert {depth for _, depth, affinity in bench.seen if affinity == "2"} == {best}
    assert untouched(bench)


def test_neutral_settings_never_win(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    [disk] = tuned(capsys, "--profile", "tuned")["disks"]
    assert disk["settings"]["answer"]["word"] in ("as good as", "cannot tell")
    assert {improvement["setting"] for improvement in disk["better"]} == {"queue_depth"}


def test_reads_cannot_judge_schedulers(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["autotune", "sda", "--profile", "tuned"]) == 0
    out = capsys.readouterr().out
    assert "not judged" in out
    assert "scheduler and nr_requests cannot be evaluated with reads only" in out


def mounted(bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the folder's filesystem on the disk, and accept a small file in it."""
    monkeypatch.setattr("hbatune.operations.autotune.find_mount_point", lambda path: "/srv")
    monkeypatch.setattr("hbatune.operations.verify.find_mount_point", lambda path: "/srv")
    monkeypatch.setattr(
        "hbatune.operations.verify.make_scratch_file",
        lambda path: nullcontext(ScratchFile("/proc/1/fd/9", 1 << 30)),
    )
    bench.mounts = ("/srv",)


def test_better_scheduler_wins_beside_writer(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mounted(bench, tmp_path, monkeypatch)
    bench.waits["kyber"] = 10.0
    document = tuned(capsys, "--profile", "tuned", "--file", str(tmp_path), "--write")
    [disk] = document["disks"]
    schedulers = disk["schedulers"]
    assert schedulers["interference"]
    assert schedulers["answer"]["word"] == "best"
    better = {improvement["setting"]: improvement["after"] for improvement in disk["better"]}
    assert better["scheduler"] == "kyber"
    assert 4.5 < schedulers["answer"]["low"] <= schedulers["answer"]["high"] < 5.5
    assert set(schedulers["written"]) == {120e6}
    depth = disk["depth"]["answer"]["depth"]
    beside = {queue_depth for workload, queue_depth, _ in bench.seen if workload.writer is not None}
    assert beside == {str(depth)}, "with the depth that was found, which holds back the writer"
    assert bench.written_to == {"/proc/1/fd/9"}, "and never the disk"
    assert untouched(bench)
    [rules] = document["rules"]["written"]
    assert "-80 % p99 of a reader with a bulk writer (" in Path(rules["file"]).read_text()


def test_bfq_probe_waits_longer(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mounted(bench, tmp_path, monkeypatch)
    bench.disk = Disk(
        tmp_path / "bfq",
        "sda",
        device__queue_depth="254",
        queue__scheduler="[none] bfq",
        queue__nr_requests="960",
    )
    bench.waits = {"none": 50.0, "bfq": 10.0}
    ramps: dict[str, set[float]] = {"none": set(), "bfq": set()}
    probe = bench.probe

    def noted(*args: Any, **how: Any) -> ProbeOutcome:
        if args[1].writer is not None:
            ramps[parse_selected(bench.disk.value("queue/scheduler"))].add(args[1].ramp)
        return probe(*args, **how)

    monkeypatch.setattr(running, "probe_subject", noted)
    [disk] = tuned(capsys, "--profile", "tuned", "--file", str(tmp_path))["disks"]
    assert ramps == {"none": {RAMP_S}, "bfq": {RAMP_S + 3.0}}
    better = {improvement["setting"]: improvement["after"] for improvement in disk["better"]}
    assert better["scheduler"] == "bfq"


def test_equal_schedulers_never_win(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mounted(bench, tmp_path, monkeypatch)
    bench.waits["kyber"] = 49.0  # it leads, by less than counts
    assert main(["autotune", "sda", "--profile", "tuned", "--file", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "it writes to a file in" in captured.err
    assert "of the reader (" in captured.out
    assert "with 120 MB/s for the writer against 120" in captured.out
    [line] = [
        splitline for splitline in captured.out.splitlines() if "with a bulk writer" in splitline
    ]
    assert "as good as the current value" in line or "cannot tell" in line
    assert re.search(r" none  .* scheduler kyber has -[1-4] % p99", line)
    assert untouched(bench)


def test_unrelated_folder_is_refused(bench: Bench, tmp_path: Path) -> None:
    assert main(["autotune", "sda", "--profile", "tuned", "--file", str(tmp_path)]) == 2
    assert bench.seen == []


def test_filled_disk_is_only_read(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held_data = Skipped("sda", Skip.SIGNED, detail="ext4")
    monkeypatch.setattr(guard, "find_write_refusal", lambda subject, named: held_data)
    monkeypatch.setattr(guard, "claim_device", lambda subject: nullcontext())
    assert main(["autotune", "sda", "--profile", "tuned", "--destructive"]) == 0
    captured = capsys.readouterr()
    assert "it WRITES to sda, and destroys the data there" in captured.err
    assert "nothing is written to it: it holds data (ext4)" in captured.out
    assert "better" in captured.out
    assert bench.written_to == set()
    assert untouched(bench)


def test_named_empty_disk_is_written(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "find_write_refusal", lambda subject, named: None)
    monkeypatch.setattr(guard, "claim_device", lambda subject: nullcontext())
    bench.waits["mq-deadline"] = 20.0
    [disk] = tuned(capsys, "--profile", "tuned", "--destructive")["disks"]
    assert {improvement["after"] for improvement in disk["better"]} >= {"mq-deadline"}
    assert bench.written_to == {"/dev/sda"}


def test_rules_require_write_option(
    bench: Bench, site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["autotune", "sda", "--profile", "tuned"]) == 0
    assert not (site.root / "rules.d").exists()
    assert "`--write` makes rules for the better values" in capsys.readouterr().out


def test_better_values_become_rules(
    bench: Bench,
    site: SiteFolder,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.servers, bench.faster = 800, {"2": 1.2}
    document = tuned(capsys, "--profile", "oltp", "--write")
    [rules] = document["rules"]["written"]
    assert rules["settings"] == ["queue_depth", "rq_affinity"]
    text = Path(rules["file"]).read_text()
    assert "kernel 6.1.0-56-amd64, driver mpt3sas 43.100.00.00, firmware 16.00.12.00" in text
    depth = document["disks"][0]["depth"]["answer"]["depth"]
    assert main(["diff", "--profile", "oltp", "--json", "sda"]) == 1
    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert (rows["queue_depth"]["value"], rows["rq_affinity"]["value"]) == (depth, 2)
    assert main(["explain", "sda", "queue_depth", "--profile", "oltp"]) == 0
    out = capsys.readouterr().out
    assert "site: autotune of sda on " in out
    assert "D4-1" in out, "beside the document's advice"


def test_second_search_replaces_rules(
    bench: Bench, site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(capsys, "--profile", "tuned", "--write")
    bench.servers = 40
    document = tuned(capsys, "--profile", "tuned", "--write")
    assert len(list((site.root / "rules.d").iterdir())) == 1
    [rules] = document["rules"]["written"]
    assert (
        f"value = {document['disks'][0]['depth']['answer']['depth']}\n"
        in Path(rules["file"]).read_text()
    )


def test_diff_follows_lowered_depth(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    [disk] = tuned(capsys, "--profile", "oltp", "--write")["disks"]
    assert disk["depth"]["answer"]["depth"] < 254
    assert main(["diff", "--profile", "oltp", "--json", "sda"]) == 1
    rows = {row["setting"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["queue_depth"]["state"] == "drift"
    assert rows["queue_depth"]["value"] == disk["depth"]["answer"]["depth"]


def test_edited_rule_is_preserved(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    [rules] = tuned(capsys, "--profile", "tuned", "--write")["rules"]["written"]
    Path(rules["file"]).write_text("# mine\n")
    assert main(["autotune", "sda", "--profile", "tuned", "--write"]) == 1
    assert "is not as hbatune wrote it, and is left" in capsys.readouterr().err
    assert Path(rules["file"]).read_text() == "# mine\n"


def test_history_marks_stale_result(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tuned(capsys, "--profile", "tuned", "--write")
    [rules] = document["rules"]["written"]
    [record] = history.load(Paths.history).records
    assert record.command == "autotune"
    assert record.search is not None
    assert record.search.depth is not None
    probes = document["disks"][0]["depth"]["measured"]
    assert [probe.depth for probe in record.search.depth.probes] == [
        probe["depth"] for probe in probes
    ]
    assert record.search.depth.word == document["disks"][0]["depth"]["answer"]["word"]
    assert record.rule == rules["file"]
    [better] = record.settings
    assert (better.setting, better.before) == ("queue_depth", 254)
    newer = replace(bench.machine, kernel="6.12.0")
    see_machine(monkeypatch, lambda: newer)
    assert main(["history"]) == 0
    out = capsys.readouterr().out
    assert f"queue_depth {better.after} is better than 254, stale" in out
    assert "the kernel was 6.1.0-56-amd64 then and is 6.12.0 now" in out
    assert f"{rules['file']} was measured then: `hbatune autotune sda` measures it again" in out


def test_busy_disk_is_skipped(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.instead = {1: Skipped("sda", Skip.BUSY, load=Load(0.8, 12))}
    assert main(["autotune", "sda", "--profile", "tuned"]) == 1
    assert "sda: not searched: it is busy (80 % utilised, 12 in flight)." in capsys.readouterr().out
    assert len(bench.seen) == 1
    assert untouched(bench)


def test_briefly_busy_disk_is_awaited(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Skipped("sda", Skip.BUSY, load=Load(0.2, 1))
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    bench.instead = {4: busy, 5: busy}
    [disk] = tuned(capsys, "--profile", "tuned")["disks"]
    assert disk["outcome"] is None
    bench.instead = {len(bench.seen) + 2 + number: busy for number in range(MAX_TRIES)}
    [disk] = tuned(capsys, "--profile", "tuned", code=1)["disks"]
    assert disk["outcome"]["reason"] == "busy"
    assert sum(waits[2:]) > 5, "a filesystem commits every five seconds"
    assert untouched(bench)


def test_probe_timeout_restores_values(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.servers = 800
    bench.instead = {5: Failed("sda", Failure.TIMEOUT)}
    [disk] = tuned(capsys, "--profile", "free", code=1)["disks"]
    assert disk["outcome"]["reason"] == "timeout"
    assert disk["depth"]["answer"] is None, "half a search has no answer"
    assert {group["reason"] for group in disk["not_judged"]} == {"ended"}
    assert {name for group in disk["not_judged"] for name in group["settings"]} == set(
        SEARCHED_SETTINGS
    )
    assert disk["better"] == []
    assert untouched(bench)


def test_ctrl_c_restores_values(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.servers, bench.faster = 800, {"2": 1.2}

    def press() -> None:
        if len(bench.seen) == 9:
            signal.raise_signal(signal.SIGINT)

    bench.before_probe = press
    [disk] = tuned(capsys, "--profile", "free", "--write", code=1)["disks"]
    assert disk["ended"] == "stopped"
    assert len(bench.seen) == 10, "the probe under way ends, and no other begins"
    assert untouched(bench)


def test_rollback_restores_killed_search(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.servers = 800

    def die() -> None:
        if bench.disk.value(DEPTH) != "254":
            os._exit(9)  # as SIGKILL would: no end is written

    bench.before_probe = die
    pid = os.fork()
    if pid == 0:
        main(["autotune", "sda", "--profile", "free"])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    assert bench.disk.value(DEPTH) != "254"
    stored_journal = journal.load(Paths.journal, bench.machine.boot_id)[0]
    assert stored_journal.run is not None
    assert stored_journal.run.command == "autotune"
    means = Means(Paths.journal, Paths.claims, Paths.spent, 1, 20.0)
    restore_values(plan_rollback(bench.machine, stored_journal, means), means)
    assert untouched(bench)


def test_time_limit_ends_search(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["autotune", "sda", "--profile", "tuned", "--minutes", "0.01"]) == 1
    captured = capsys.readouterr()
    assert "searching 1 disk, for about 93 s, and no longer than 1 s" in captured.err
    assert "the time limit was reached: increase --minutes" in captured.out
    assert bench.seen == []


@pytest.mark.parametrize(
    "words",
    [["sdzz"], ["sda", "--minutes", "0"], ["sda", "--minutes", "nan"], ["sda", "--profile", "no"]],
)
def test_bad_usage_exits_2(bench: Bench, words: list[str]) -> None:
    arguments = words if "--profile" in words else [*words, "--profile", "tuned"]
    try:
        code = main(["autotune", *arguments])
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code == 2
    assert bench.seen == []


def test_excluded_disk_is_skipped(
    bench: Bench, site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    site.put("hbatune.toml", '[site]\nexclude = ["sda"]\n')
    assert main(["autotune", "sda", "--profile", "tuned"]) == 1
    assert "sda: not searched: it is excluded in [site]." in capsys.readouterr().out
    assert bench.seen == []


def test_one_disk_represents_model(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.others = (endpoint(target="sdb"),)
    assert main(["autotune", "sda", "sdb", "--profile", "tuned"]) == 0
    assert "sda: it stands for sdb, of its model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("second_disk", "words"),
    [
        (endpoint(target="sdz", protocol=Protocol.FC), "other hosts share its array"),
        (endpoint(target="sdz", state="offline"), "it is not running (offline)"),
        (endpoint(target="sdz", kind=Kind.PATH), "it has no device node"),
    ],
)
def test_unsafe_disk_is_skipped(
    bench: Bench, second_disk: Endpoint, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.others = (second_disk,)
    assert main(["autotune", "0000:01:00.0", "--profile", "tuned"]) == 1
    out = capsys.readouterr().out
    assert f"sdz: not searched: {words}" in out
    assert "better" in out


def test_missing_disk_exits_2(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(machine(), endpoints=())
    see_machine(monkeypatch, lambda: bare)
    assert main(["autotune", "0000:01:00.0", "--profile", "tuned"]) == 2
    assert bench.seen == []


def test_stuck_write_ends_search(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(self: Experiment, values: Mapping[str, Any]) -> dict[str, WriteResult]:
        return {name: WriteResult(name, Outcome.STUCK) for name in values}

    monkeypatch.setattr(Experiment, "take", stuck)
    bench.servers = 800
    [disk] = tuned(capsys, "--profile", "free", code=1)["disks"]
    assert disk["ended"] == "stuck"
    assert {workload.issued <= 254 for workload, _, _ in bench.seen} == {True}


def test_changed_value_ends_search(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def change() -> None:
        if len(bench.seen) == 4:
            (bench.disk.path / DEPTH).write_text("100")

    bench.servers, bench.before_probe = 800, change
    assert main(["autotune", "sda", "--profile", "free"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "queue_depth is 100, which hbatune did not set, so it stays; it was 254" in out
    assert "All other settings are unchanged." in out
    assert bench.disk.value(DEPTH) == "100"


def test_late_change_prevents_rule(
    bench: Bench, site: SiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(capsys, "--profile", "tuned")
    probes, bench.random = len(bench.seen), Random(1)
    bench.seen.clear()

    def change() -> None:
        if len(bench.seen) == probes - 1:
            (bench.disk.path / AFFINITY).write_text("0")

    bench.before_probe = change
    [disk] = tuned(capsys, "--profile", "tuned", "--write", code=1)["disks"]
    [lost] = disk["not_restored"]
    assert (lost["setting"], lost["outcome"], lost["found"]) == ("rq_affinity", "conflict", 0)
    assert not (site.root / "rules.d").exists()


def test_clamped_depth_bounds_search(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def clamped(path: str, text: str) -> int | None:
        most = text if not path.endswith("queue_depth") else str(min(300, int(text)))
        return store(path, most)

    monkeypatch.setattr("hbatune.act.chain._store", clamped)
    bench.servers = 800
    [disk] = tuned(capsys, "--profile", "free")["disks"]
    assert disk["depth"]["answer"]["depth"] <= 300
    assert max(measurement["depth"] for measurement in disk["depth"]["measured"]) <= 300
    assert untouched(bench)
