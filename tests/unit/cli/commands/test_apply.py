"""The verdicts of `apply` as a person sees them: plain files, and a probe that knows the truth."""

import errno
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act.lock import read_held_ids
from hbatune.act.paths import Paths
from hbatune.act.writer import parse_values, read_raw
from hbatune.cli import main
from hbatune.facts.model import Machine, Protocol, Storage
from hbatune.probe import run
from hbatune.probe.guard import ScratchFile, make_scratch_file
from hbatune.probe.prove import Proving
from hbatune.probe.replay import make_replay
from hbatune.probe.result import (
    ProbeOutcome,
    ProbeResult,
    Served,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.selection import choose_representatives
from hbatune.probe.verdict import BURST_PAIRS, DEFAULT_PAIRS, MIN_PAIRS
from tests.documented import validate
from tests.unit.command_runs import see_machine
from tests.unit.disk_files import Disk
from tests.unit.machines import endpoint, machine
from tests.unit.noisy_disks import Noise, NoisyDisk
from tests.unit.site_folder import SiteFolder
from tests.unit.traces import save, steady_ios

PROFILE = """
title = "test"
[tolerance]
iops = 0.05
mean = 0.05
p99 = 0.10
[[rule]]
name = "a"
setting = "nomerges"
value = 1
because = "of this"
source = "site"
[[rule]]
name = "b"
setting = "rq_affinity"
value = 2
because = "of that"
source = "site"
"""
APPLY = ("apply", "--profile", "test")
VERIFY = (*APPLY, "--verify")


class Bench:
    """Two disks on which ``costs`` says what each setting multiplies the time of an I/O by."""

    def __init__(self, top: Path) -> None:
        self.disks = [Disk(top, name) for name in ("sda", "sdb")]
        self.costs: dict[str, float] = {}
        self.refuses: Skipped | None = None
        self.probed: list[str] = []
        self.asked: list[tuple[str | None, Workload, bool]] = []
        self.busy: set[str] = set()
        self.passes = 10_000  # runs after which nothing costs any more
        self.mounted: dict[str, tuple[str, ...]] = {}
        self.burst_cost = 1.0  # with a queue_depth of 99
        self.noise = NoisyDisk(Noise(0.01), 1)

    def see(self) -> Machine:
        disks = (disk.endpoint() for disk in self.disks)
        return machine(*(replace(e, mounts=self.mounted.get(e.target, ())) for e in disks))

    def probe(self, subject: Subject, workload: Workload, **options: Any) -> ProbeOutcome:
        refusal: Skipped | None = options["prepare"]()
        if refusal is not None:
            return refusal
        self.probed.append(subject.target)
        self.asked.append((subject.endpoint.device_node, workload, options.get("write", False)))
        assert read_held_ids(Paths.holds), "the daemon leaves a held disk unchanged"
        if self.refuses is not None:
            return self.refuses
        slower = 1.0
        for setting, cost in self.costs.items():
            before = {"nomerges": 0, "rq_affinity": 1, "queue_depth": 32}[setting]
            if self.value(subject.target, setting) != before:
                slower *= cost
        if workload.issued > 24 and self.value(subject.target, "queue_depth") == 99:
            slower *= self.burst_cost
        served = tuple(
            Served(adapter.target, adapter.driver, adapter.driver_version, adapter.firmware)
            for adapter in subject.adapters
        )
        figures = self.noise.run(1.0 if self.passes < len(self.probed) else slower)
        return ProbeResult(subject.target, subject.endpoint.id, workload, figures, "3.33", served)

    def disturbed(self, subject: Subject) -> Skipped | None:
        return Skipped(subject.target, Skip.BUSY) if subject.target in self.busy else None

    def value(self, target: str, setting: str) -> object:
        [disk] = [candidate for candidate in self.disks if candidate.name == target]
        path = str(disk.path)
        return parse_values(read_raw({path: (setting,)}, 10.0)[path])[setting]

    def values(self, setting: str) -> list[object]:
        return [self.value(disk.name, setting) for disk in self.disks]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, site: SiteFolder) -> Bench:
    site.put("profiles/test.toml", PROFILE)
    new_bench = Bench(tmp_path / "sys")
    monkeypatch.setattr("hbatune.cli.commands.profiles.installed_library", lambda: site.library)
    see_machine(monkeypatch, lambda: new_bench.see())
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("hbatune.act.interrupts.ban_interrupts", lambda irqs, paths: None)
    monkeypatch.setattr(
        run,
        "choose_subjects",
        lambda machine, targets, *, shared: choose_representatives(machine, targets),
    )
    monkeypatch.setattr(run, "probe_subject", new_bench.probe)
    # A fixed order within the pairs: in another one, one null result in hundreds is in doubt.
    monkeypatch.setattr("hbatune.operations.verify.Proving", partial(Proving, random=Random(1)))
    monkeypatch.setattr(run, "find_disturbance", new_bench.disturbed)
    return new_bench


Capture = pytest.CaptureFixture[str]


@contextmanager
def _small(folder: Path) -> Iterator[ScratchFile]:
    with make_scratch_file(folder, largest=1 << 20, smallest=1 << 20) as file:
        yield file


def test_improving_setting_stays(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 0.5}
    assert main([*VERIFY]) == 0
    captured = capsys.readouterr()
    assert "sda: better with nomerges, rq_affinity: " in captured.out
    assert "+10" in captured.out, "twice the IOPS, more or less"
    assert "about" in captured.err
    assert bench.values("nomerges") == [1, 1]
    assert set(bench.probed) == {"sda"}, "one stands for its like"


def test_costly_setting_is_reverted(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 2.0}
    assert main([*VERIFY]) == 1
    output = capsys.readouterr().out
    assert bench.values("nomerges") == [0, 0]
    assert bench.values("rq_affinity") == [2, 2]
    [line] = [line for line in output.splitlines() if "is back at" in line]
    assert "sda: nomerges: not exercised: random I/Os have nothing to be merged with." in output
    assert line == "sda sdb: nomerges is back at 0: sda is worse than test tolerates."
    assert "nomerges alone" in output
    assert "2 reverted" in output


def test_concurrent_change_is_conflict(bench: Bench, capsys: Capture) -> None:
    [sda, _] = bench.disks

    def disturbed(subject: Subject) -> Skipped | None:
        if len(bench.probed) == 3:
            (sda.path / "queue/nomerges").write_text("2")
        return None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "find_disturbance", disturbed)
        assert main([*VERIFY, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    rows = {(row["target"], row["setting"]): row for row in document["rows"]}
    outcomes = {key: row["outcome"] for key, row in rows.items() if row["outcome"] != "written"}
    assert outcomes == {("sda", "nomerges"): "conflict"}
    assert rows["sda", "nomerges"]["found"] == 2
    assert bench.values("nomerges") == [2, 1]


def test_json_shows_verdicts(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 2.0}
    assert main([*VERIFY, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    outcomes = {(row["target"], row["setting"]): row["outcome"] for row in document["rows"]}
    assert outcomes == {
        ("sda", "nomerges"): "reverted",
        ("sdb", "nomerges"): "reverted",
        ("sda", "rq_affinity"): "written",
        ("sdb", "rq_affinity"): "written",
    }
    words = [(proof["group"], proof["verdict"]["word"]) for proof in document["verdicts"]]
    assert words[::2] == [(None, "regressed"), ("nomerges", "regressed")]
    assert words[1][1] in ("unchanged", "cannot tell"), "the load exercises rq_affinity"


def test_reverted_setting_needs_named_target(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 2.0}
    main([*VERIFY])
    capsys.readouterr()
    assert main(["diff", "--profile", "test"]) == 0
    assert "reverted: it cost more than the profile tolerates" in capsys.readouterr().out
    assert main(["apply", "--profile", "test", "--no-probe"]) == 0
    assert bench.values("nomerges") == [0, 0]
    assert main(["apply", "--profile", "test", "--no-probe", "sda"]) == 0
    assert bench.values("nomerges") == [1, 0]
    main(["rollback"])
    assert main(["diff", "--profile", "test"]) == 1, "a rollback forgets"


def test_rollback_restores_unreverted_values(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 2.0}
    main([*VERIFY])
    assert main(["rollback"]) == 0
    assert (bench.values("nomerges"), bench.values("rq_affinity")) == ([0, 0], [1, 1])


def test_missing_fio_prevents_revert(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    bench.refuses = Skipped("sda", Skip.NO_FIO)
    assert main([*VERIFY]) == 1, "the comparison was requested"
    output, messages = capsys.readouterr()
    assert "comparing" not in messages, "nothing is announced that cannot happen"
    assert "sda: not measured: fio is not installed." in output
    assert bench.values("nomerges") == [1, 1]


def test_dry_run_names_comparisons(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*VERIFY, "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "An apply compares sda with only reads: about " in output
    assert bench.values("nomerges") == [0, 0]
    main([*APPLY, "--dry-run", "--no-probe"])
    assert "compares" not in capsys.readouterr().out
    monkeypatch.setenv("PATH", "/nonexistent")
    main([*APPLY, "--dry-run"])
    output = capsys.readouterr().out
    assert "compares" not in output
    assert "sda: not measured: fio is not installed." in output


def test_verify_compares_set_values(bench: Bench, capsys: Capture) -> None:
    main([*APPLY, "--no-probe"])
    bench.costs = {"rq_affinity": 0.5}
    assert main([*APPLY]) == 0
    assert bench.probed == [], "only --verify compares them"
    capsys.readouterr()
    assert main([*VERIFY, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    [proof] = document["verdicts"]
    assert (proof["verdict"]["word"], proof["settings"]) == (
        "improved",
        ["nomerges", "rq_affinity"],
    )
    assert document["summary"]["outcomes"] == {"kept": 4}
    assert (bench.values("nomerges"), bench.values("rq_affinity")) == ([1, 1], [2, 2])


def test_verify_reverts_set_value(bench: Bench, capsys: Capture) -> None:
    main([*APPLY, "--no-probe"])
    bench.costs = {"nomerges": 2.0}
    capsys.readouterr()
    assert main([*VERIFY]) == 1
    output = capsys.readouterr().out
    assert "sda sdb: nomerges is back at 0: sda is worse than test tolerates." in output
    assert "Profile test: 2 kept, 2 reverted." in output
    assert (bench.values("nomerges"), bench.values("rq_affinity")) == ([0, 0], [2, 2])
    main(["history", "--json"])
    entries = json.loads(capsys.readouterr().out)["entries"]
    changes = {
        (change["setting"], change["before"], change["after"])
        for change in entries[0]["record"]["settings"]
    }
    assert changes == {("nomerges", 0, 1), ("rq_affinity", 1, 2)}
    assert main(["diff", "--profile", "test"]) == 0, "no later run sets it again"
    assert main(["rollback"]) == 0
    assert bench.values("rq_affinity") == [1, 1]


def test_verify_measures_drift_and_set_values(bench: Bench, capsys: Capture) -> None:
    main([*APPLY, "--no-probe", "sda"])
    bench.costs = {"nomerges": 0.5}
    assert main([*VERIFY]) == 0
    assert bench.probed
    assert "sda: better with " in capsys.readouterr().out
    assert (bench.values("nomerges"), bench.values("rq_affinity")) == ([1, 1], [2, 2])


def test_unswitchable_set_value_stays_unmeasured(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    main([*APPLY, "--no-probe"])
    monkeypatch.setattr(
        "hbatune.operations.verify.can_switch", lambda machine, rows, before: not rows
    )
    assert main([*VERIFY]) == 1
    output = capsys.readouterr().out
    assert "sda: not measured: " in output
    assert (bench.probed, bench.values("nomerges")) == ([], [1, 1])


def test_verify_needs_changed_value(bench: Bench, capsys: Capture) -> None:
    for disk in bench.disks:
        (disk.path / "queue/nomerges").write_text("1")
        (disk.path / "queue/rq_affinity").write_text("2")
    assert main([*VERIFY]) == 1
    message = "nothing was compared: no disk has a setting that hbatune changed"
    assert message in capsys.readouterr().err
    assert bench.probed == []
    assert main([*APPLY]) == 0


@pytest.mark.parametrize("command", [APPLY, VERIFY])
def test_empty_comparison_is_no_success(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def disturbed(subject: Subject) -> Skipped | None:
        return Skipped(subject.target, Skip.BUSY) if bench.probed else None

    monkeypatch.setattr(run, "find_disturbance", disturbed)
    assert main([*command]) == 1
    output = capsys.readouterr().out
    assert "sda: the comparison ended after 0 pairs: it is busy." in output
    assert "sda: no verdict: repeat the command with --verify, or `hbatune rollback sda`." in output
    assert "it takes" not in output
    assert bench.values("nomerges") == [1, 1]
    monkeypatch.setattr(run, "find_disturbance", lambda subject: None)
    assert main([*VERIFY]) == 0, "the remedy works"


def test_verification_requires_probe(bench: Bench, capsys: Capture) -> None:
    assert main([*VERIFY, "--no-probe"]) == 2
    assert "--no-probe" in capsys.readouterr().err
    assert bench.values("nomerges") == [0, 0]


def test_history_records_revert(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 2.0}
    main([*VERIFY])
    capsys.readouterr()
    assert main(["history", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert document["schema"] == "hbatune.history/1"
    joint, _, single = document["entries"]
    assert joint["record"]["proof"]["verdict"]["word"] == "regressed"
    assert single["record"]["reverted"] == ["nomerges"]
    assert joint["record"]["result"]["served"][0]["firmware"] == "16.00.12.00"
    assert joint["stale"] == []
    assert main(["history", "sdb"]) == 0
    assert "Nothing has been measured" in capsys.readouterr().out
    assert main(["history", "sda"]) == 0
    assert "nomerges reverted" in capsys.readouterr().out
    assert main(["history", "sdz"]) == 2


def test_full_disk_preserves_history(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hbatune.act import files

    main([*VERIFY])
    before = Paths.history.read_bytes()
    main(["rollback"])
    replace = files.replace

    def full(path: Path, data: bytes, **options: Any) -> None:
        if path == Paths.history:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, data, **options)

    monkeypatch.setattr(files, "replace", full)
    capsys.readouterr()
    assert main([*VERIFY]) == 0
    assert "the results are not kept" in capsys.readouterr().err
    assert Paths.history.read_bytes() == before
    assert bench.values("nomerges") == [1, 1]


def test_ctrl_c_keeps_applied_values(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    probe = bench.probe

    def interrupted(*words: Any, **options: Any) -> ProbeOutcome:
        if len(bench.probed) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return probe(*words, **options)

    monkeypatch.setattr(run, "probe_subject", interrupted)
    main([*VERIFY])
    assert "stopped on request" in capsys.readouterr().err
    assert len(bench.probed) <= 5
    assert bench.values("nomerges") == [1, 1]
    assert read_held_ids(Paths.holds) == frozenset()


def test_site_sets_pair_count(bench: Bench, site: SiteFolder) -> None:
    site.put("hbatune.toml", "[probe]\nverify_pairs = 12\n")
    assert main([*VERIFY]) == 0
    assert len(bench.probed) == 1 + 24, "one warms up"


def test_noise_suggests_pair_count(bench: Bench, capsys: Capture) -> None:
    bench.noise = NoisyDisk(Noise(0.1), 1)
    assert main([*VERIFY]) == 0
    output = capsys.readouterr().out
    assert "sda: cannot tell: IOPS between -" in output
    assert " %: with this much noise it takes " in output
    assert "(verify_pairs = " in output
    assert bench.values("nomerges") == [1, 1], "what cannot be told stays"


def test_profile_shows_tolerance(bench: Bench, capsys: Capture) -> None:
    assert main(["profiles", "test"]) == 0
    assert "more than 5 % of IOPS, 5 % of mean latency or 10 % of p99" in capsys.readouterr().out


def test_time_limit_skips_measurement(bench: Bench, capsys: Capture, site: SiteFolder) -> None:
    site.put("hbatune.toml", "[probe]\nverify_limit = 10\n")
    assert main([*VERIFY]) == 1
    output = capsys.readouterr().out
    assert "sda: not measured: no time, see verify_limit" in output
    assert bench.probed == []
    main(["rollback"])
    capsys.readouterr()
    main([*VERIFY, "--json"])
    [pair] = json.loads(capsys.readouterr().out)["probes"]
    assert pair["before"]["reason"] == "no_time"


def test_five_models_are_all_compared(bench: Bench, tmp_path: Path) -> None:
    bench.disks = [Disk(tmp_path / "five", f"sd{letter}") for letter in "abcde"]
    models = [replace(disk.endpoint(), model=disk.name) for disk in bench.disks]
    bench.see = lambda: machine(*models)  # type: ignore[method-assign]
    assert main([*APPLY]) == 0
    assert set(bench.probed) == {"sda", "sdb", "sdc", "sdd", "sde"}


def test_model_without_time_is_no_success(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = bench.disks
    bench.see = lambda: machine(  # type: ignore[method-assign]
        first.endpoint(), replace(second.endpoint(), model="other")
    )
    monkeypatch.setattr("hbatune.operations.verify.KIND_TIME_S", 15)
    assert main([*APPLY]) == 1
    assert set(bench.probed) == {"sda"}
    remedy = "sdb: not measured: no time; `hbatune apply --verify sdb` has more."
    assert remedy in " ".join(capsys.readouterr().out.split())
    assert bench.values("nomerges") == [1, 1]
    assert main([*VERIFY, "sdb"]) == 0, "the remedy works"
    assert set(bench.probed) == {"sda", "sdb"}


def test_apply_compares_pairs(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 0.5}
    assert main([*APPLY]) == 0
    captured = capsys.readouterr()
    assert len(bench.probed) == 1 + 2 * (DEFAULT_PAIRS + BURST_PAIRS), "there are no bursts"
    assert "sda: better with nomerges, rq_affinity: " in captured.out
    assert "before" not in captured.out
    seeds = {workload.seed for _, workload, _ in bench.asked}
    assert len(seeds) == 1, "both sides read the same blocks"
    assert seeds != {None}


def deepen(bench: Bench, site: SiteFolder, path: Path) -> None:
    """Have one disk, whose queue_depth the profile raises from 32 to 99; its load is 24."""
    rule = PROFILE[PROFILE.index("[[rule]]") : PROFILE.rindex("[[rule]]")]
    rule = rule.replace("nomerges", "queue_depth").replace("value = 1", "value = 99")
    site.put("profiles/test.toml", f'title = "t"\n[probe]\ndepth = 24\n{rule}')
    disk = Disk(path, "sdc", device__queue_depth="32")
    bench.disks = [disk]
    bench.see = lambda: machine(replace(disk.endpoint(), depth_cap=960))  # type: ignore[method-assign]


@pytest.mark.parametrize(("cost", "word"), [(2.0, "regressed"), (0.5, "improved")])
def test_bursts_decide_nothing(
    bench: Bench, capsys: Capture, site: SiteFolder, tmp_path: Path, cost: float, word: str
) -> None:
    deepen(bench, site, tmp_path / "deep")
    bench.burst_cost = cost
    assert main([*APPLY, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    [burst] = document["bursts"]
    assert (burst["verdict"]["word"], burst["verdict"]["design"]) == (word, "bursts")
    assert burst["unexercised"] == []
    [proof] = document["verdicts"]
    assert proof["verdict"]["word"] in ("unchanged", "cannot tell")
    assert bench.values("queue_depth") == [99]


def test_worse_bursts_stay(bench: Bench, capsys: Capture, site: SiteFolder, tmp_path: Path) -> None:
    deepen(bench, site, tmp_path / "deep")
    bench.burst_cost, bench.noise = 2.0, NoisyDisk(Noise(0.001), 1)
    assert main([*APPLY]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "✗ sdc: worse with queue_depth in bursts of 99: 50 % fewer IOPS, p99 " in output
    assert "Bursts decide nothing: a change stays. Theirs is the range of two pairs." in output


def time_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch, overhead: float) -> list[float]:
    """Have each run take ``overhead`` seconds more than it measures; return the clock."""
    now = [0.0]

    def timed(subject: Subject, workload: Workload, **options: Any) -> ProbeOutcome:
        # The first one also loads fio, and reads 64 blocks of 80 ms each.
        now[0] += workload.seconds + overhead + (0 if bench.probed else 5.0)
        return bench.probe(subject, workload, **options)

    monkeypatch.setattr(run, "probe_subject", timed)
    proving = partial(Proving, random=Random(1), clock=lambda: now[0])
    monkeypatch.setattr("hbatune.operations.verify.Proving", proving)
    return now


@pytest.mark.parametrize(
    ("overhead", "deep", "pairs", "has_bursts"),
    [
        (0.4, False, DEFAULT_PAIRS + BURST_PAIRS, False),
        (0.4, True, DEFAULT_PAIRS, True),
        (0.8, False, MIN_PAIRS + 1, False),
        (0.8, True, MIN_PAIRS, True),
        (1.2, False, MIN_PAIRS, False),
        (1.2, True, MIN_PAIRS, False),
    ],
)
def test_announced_time_is_right(
    bench: Bench,
    capsys: Capture,
    site: SiteFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    overhead: float,
    deep: bool,
    pairs: int,
    has_bursts: bool,
) -> None:
    """With less time, there are fewer pairs at the load, and then no bursts."""
    now = time_runs(bench, monkeypatch, overhead)
    if deep:
        deepen(bench, site, tmp_path / "deep")
    assert main([*APPLY]) == 0
    captured = capsys.readouterr()
    assert re.findall(r"about (\d+) s, or (\d+) s at most", captured.err) == [("30", "60")]
    assert now[0] == pytest.approx(30, rel=0.2)
    assert len(bench.probed) == 1 + 2 * pairs + (2 * BURST_PAIRS if has_bursts else 0)
    output = " ".join(captured.out.split())
    left_out = "sdc: no time to compare it with queue_depth in bursts."
    assert (left_out in output) is (deep and not has_bursts)


@pytest.mark.parametrize(("overhead", "value"), [(0.4, 0), (1.1, 1)])
def test_short_time_leaves_regression(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch, overhead: float, value: int
) -> None:
    now = time_runs(bench, monkeypatch, overhead)
    bench.costs = {"nomerges": 2.0}
    assert main([*APPLY]) == 1, "reverted, or not all that was announced could be compared"
    captured = capsys.readouterr()
    assert 30 < now[0] <= 61
    assert "sda: worse, so compared again, for at most" in captured.err
    assert bench.values("nomerges") == [value] * 2
    output = " ".join(captured.out.split())
    cause = "sda: nomerges: cannot tell, as the time was too short to compare it."
    assert (cause in output) is bool(value)
    remedy = "so it stays; `hbatune apply --verify sda` compares longer."
    assert (remedy in output) is bool(value)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("command", [APPLY, VERIFY])
def test_progress_counts_confirmations(
    bench: Bench,
    site: SiteFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    deep: bool,
) -> None:
    steps = {"comparing": [0, 0], "writing": [0, 0]}

    @contextmanager
    def count_steps(title: str, total: int) -> Iterator[Callable[..., None]]:
        steps[title][1] = total

        def advance(step: str, more: int = 0) -> None:
            steps[title][0] += not more
            steps[title][1] += more
            assert steps[title][0] <= steps[title][1]

        yield advance

    monkeypatch.setattr("hbatune.cli.command_context.show_progress", count_steps)
    if deep:
        deepen(bench, site, tmp_path / "deep")
    bench.costs = {} if deep else {"nomerges": 2.0}
    main([*command])
    done, total = steps["comparing"]
    pairs = DEFAULT_PAIRS if command is VERIFY or deep else DEFAULT_PAIRS + BURST_PAIRS
    if deep:
        assert done == total == 1 + pairs + BURST_PAIRS
    else:
        # The last comparison, of all groups, is not needed if one group is worse by itself. By
        # default there is no time here for more than the fewest pairs of the others.
        confirming = pairs if command is VERIFY else MIN_PAIRS
        assert (done, total) == (1 + pairs + 2 * confirming, 1 + 4 * pairs)


def test_measured_knee_bounds_bursts(
    bench: Bench, site: SiteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deepen(bench, site, tmp_path / "deep")
    knees = {disk.id: 20 for disk in bench.see().endpoints}
    monkeypatch.setattr("hbatune.probe.history.find_latest_knees", lambda *words: knees)
    main([*APPLY])
    assert {workload.issued for _, workload, _ in bench.asked} == {24, 40}


def test_verdict_uses_profile_load(
    bench: Bench, capsys: Capture, site: SiteFolder, tmp_path: Path
) -> None:
    deepen(bench, site, tmp_path / "deep")
    main([*APPLY])
    issued = [workload.issued for _, workload, _ in bench.asked]
    assert issued == [24] * (1 + 2 * DEFAULT_PAIRS) + [99] * 2 * BURST_PAIRS, "bursts come last"
    output = " ".join(capsys.readouterr().out.split())
    assert "Verdicts at the load of test" in output
    assert "queue_depth: not exercised: 24 in flight reach neither value" in output
    figures = r"measured with 4K random reads, 24 in flight: mean .* p50 .* p99 .* IOPS per CPU"
    assert re.search(figures, output)


def record(bench: Bench, path: Path, *depths: float) -> str:
    """Write what `watch --json` prints of the first disk, and of another with its old name."""
    disk = bench.see().endpoints[0]
    rates = dict.fromkeys(("iops", "read_bytes_per_s", "write_bytes_per_s"), 1.0)
    lines = []
    for depth in depths:
        right = {**rates, "target": "sdq", "id": disk.id, "in_flight": depth}
        other = {**rates, "target": disk.target, "id": "wwn-9", "in_flight": 900.0}
        lines.append(json.dumps({"schema": "hbatune.watch/1", "readings": [right, other]}))
    path.write_text("\n".join(lines))
    return str(path)


def test_verdict_uses_running_depth(
    bench: Bench, capsys: Capture, site: SiteFolder, tmp_path: Path
) -> None:
    deepen(bench, site, tmp_path / "deep")
    bench.burst_cost, bench.noise = 2.0, NoisyDisk(Noise(0.001), 1)
    load = record(bench, tmp_path / "load.json", 20.0, 0.0, 26.0)
    assert main([*APPLY, "--watch", load]) == 0
    issued = [workload.issued for _, workload, _ in bench.asked]
    assert issued == [23] * (1 + 2 * DEFAULT_PAIRS) + [99] * 2 * BURST_PAIRS
    output = " ".join(capsys.readouterr().out.split())
    assert f"Verdicts at the application's depth in {load}: with the change" in output
    assert "the load of test" not in output
    assert "measured with 4K random reads, 23 in flight" in output


def test_verdict_replays_trace(
    bench: Bench, capsys: Capture, site: SiteFolder, tmp_path: Path
) -> None:
    deepen(bench, site, tmp_path / "deep")
    bench.noise = NoisyDisk(Noise(0.001), 1)
    path = save(tmp_path / "disk.trace", steady_ios(900, writes=300))
    assert main([*VERIFY, "--trace", str(path)]) == 0
    assert len(bench.asked) == 1 + 2 * DEFAULT_PAIRS, "there are no bursts"
    assert {workload for _, workload, _ in bench.asked} == {make_replay(path)}
    output, notes = (" ".join(text.split()) for text in capsys.readouterr())
    assert "the change, for about 59 s" in notes  # 21 runs, with 1 s to start each
    assert f"Verdicts at the load of the trace in {path}: with the change" in output
    assert "sdc: 33 % of the I/Os are writes, which were not replayed." in output
    assert "measured with 8K reads of a trace, 600 a second, at most 1 in flight" in output


def test_late_replay_is_compared(bench: Bench, capsys: Capture, tmp_path: Path) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(90_000, every_us=11))
    main([*VERIFY, "--trace", str(path)])
    output = " ".join(capsys.readouterr().out.split())
    assert "sda: the replay fell behind" in output
    assert "Little's law" not in output
    assert "no verdict" not in output


@pytest.mark.parametrize(
    ("options", "lost", "message"),
    [
        ((), 0, "add --verify"),
        (("--verify", "--watch", "load.json"), 0, "omit --watch"),
        (("--verify",), 5, "lacks 5 % of the disk's events"),
    ],
)
def test_unusable_trace_changes_nothing(
    bench: Bench,
    capsys: Capture,
    tmp_path: Path,
    options: tuple[str, ...],
    lost: int,
    message: str,
) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(900), lost=lost)
    assert main([*APPLY, *options, "--trace", str(path)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert bench.values("nomerges") == [0, 0]
    assert bench.probed == []


def test_unrecorded_disk_is_not_changed(bench: Bench, capsys: Capture, tmp_path: Path) -> None:
    load = record(bench, tmp_path / "load.json", 0.0)
    assert main([*APPLY, "--watch", load]) == 2
    assert "watch has seen no I/O of 'sda'" in capsys.readouterr().err
    assert main([*APPLY, "--watch", str(tmp_path / "missing")]) == 2
    assert bench.values("nomerges") == [0, 0]
    assert bench.probed == []


def test_apply_reverts_confirmed_regression(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 2.0}
    assert main([*APPLY, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    validate(document)
    words = {proof["group"]: proof["verdict"]["word"] for proof in document["verdicts"]}
    assert words[None] == words["nomerges"] == "regressed"
    assert document["summary"]["outcomes"] == {"reverted": 2, "written": 2}
    assert document["verdicts"][0]["unexercised"][0]["setting"] == "nomerges"
    assert bench.values("nomerges") == [0, 0]
    main(["history", "--json"])
    commands = {
        entry["record"]["command"] for entry in json.loads(capsys.readouterr().out)["entries"]
    }
    assert commands == {"apply"}


def test_verdict_begins_with_its_answer(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.costs = {"nomerges": 2.0}
    assert main([*APPLY]) == 1
    lines = capsys.readouterr().out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("Verdicts at"))
    same, worse = (
        line for line in lines[head:] if line.startswith(("● ", "✗ ")) and "alone" in line
    )
    assert same == "● sda: no difference that matters with rq_affinity alone."
    assert re.fullmatch(
        r"✗ sda: worse with nomerges alone: 50 % fewer IOPS, p99 9\d\d µs → 1.8\d ms.", worse
    )
    bars = lines[lines.index(worse) + 1 :][:4]
    assert bars[0].split() == ["1/8", "same", "8", "times"]
    assert re.match(r"  IOPS +●    │ +-5\d % +-5\d % to -4\d %", bars[1])
    assert re.match(r"  p99 +●   ░│░ +\+\d+ % ", bars[3])
    monkeypatch.setenv("TERM", "dumb")
    bench.costs = {"nomerges": 0.8}
    main(["rollback"])
    assert main([*APPLY]) == 0
    output = capsys.readouterr().out
    assert "[ok] sda: better with nomerges, rq_affinity: " in output
    assert re.search(r"  IOPS +\.+\|\.+ +o +\+\d", output), "narrower than a character"
    main(["rollback"])
    bench.costs, bench.noise = {"nomerges": 0.65}, NoisyDisk(Noise(0.07), 1)
    assert main([*APPLY]) == 0
    assert re.search(r"  p99 +\.+\|\.+ +\[-*o-*\] +-\d", capsys.readouterr().out)


def test_verdict_names_second_comparison(
    bench: Bench, capsys: Capture, site: SiteFolder, tmp_path: Path
) -> None:
    deepen(bench, site, tmp_path / "deep")
    bench.costs = {"queue_depth": 2.0}
    assert main([*APPLY]) == 1
    answers = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗")]
    assert answers[0].startswith("✗ sdc: worse with queue_depth: 50 % fewer IOPS, p99 ")
    assert answers[0].endswith("; a second comparison agrees.")
    assert len(answers) == 1, "the second comparison is no answer by itself"


def test_keep_worse_retains_regression(bench: Bench, capsys: Capture) -> None:
    bench.costs = {"nomerges": 2.0}
    assert main([*APPLY, "--keep-worse"]) == 1
    output = capsys.readouterr().out
    assert "sda sdb: nomerges stays at 1, as asked: sda is worse than test tolerates" in output
    assert "4 written, 2 worse than before, kept on request" in output
    assert bench.values("nomerges") == [1, 1]
    main(["rollback"])
    capsys.readouterr()
    assert main([*APPLY, "--keep-worse", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["summary"]["worse"] == 2


def test_unconfirmed_regression_stays(bench: Bench, capsys: Capture) -> None:
    bench.passes = 1 + 2 * (DEFAULT_PAIRS + BURST_PAIRS)  # the first run warms up
    bench.costs = {"nomerges": 2.0}
    assert main([*APPLY]) == 0
    output = capsys.readouterr().out
    assert "sda: worse with" in output
    assert "agrees" not in output
    assert "sda: no second comparison confirms that it is worse, so it stays;" in output
    assert bench.values("nomerges") == [1, 1]


def test_busy_disk_stays_unmeasured(bench: Bench, capsys: Capture) -> None:
    bench.busy = {"sda"}
    assert main([*APPLY]) == 0
    assert "sda: not measured: it is busy." in capsys.readouterr().out
    assert bench.probed == []
    assert bench.values("nomerges") == [1, 1]
    main(["rollback"])
    capsys.readouterr()
    assert main([*APPLY, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    [pair] = document["probes"]
    assert (pair["before"]["reason"], pair["after"], document["verdicts"]) == ("busy", None, [])


def test_writes_go_to_named_file(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hbatune.operations.verify.find_mount_point", lambda folder: "/srv")
    monkeypatch.setattr("hbatune.operations.verify.make_scratch_file", _small)
    assert main([*APPLY, "--file", str(tmp_path), "--json"]) == 2
    assert "is on no disk that this command changes" in capsys.readouterr().err
    assert bench.values("nomerges") == [0, 0]
    bench.mounted = {"sdb": ("/srv",)}
    assert main([*APPLY, "--file", str(tmp_path)]) == 0
    assert set(bench.probed) == {"sdb"}, "the disk that the folder is on stands for its like"
    for node, workload, write in bench.asked:
        assert str(node).startswith("/proc/")
        assert (workload.pattern, workload.reads, write) == ("randrw", 70, True)
    assert "sdb: measured with 4K random I/O, 70 % reads" in capsys.readouterr().out


def test_empty_disk_writes_need_name(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*APPLY, "--destructive"]) == 2
    assert "name each empty disk" in capsys.readouterr().err
    # These are files, which no process can claim as a disk.
    assert main([*APPLY, "--destructive", "sda"]) == 0
    assert (
        "sda: not measured: whether it holds data cannot be determined" in capsys.readouterr().out
    )
    assert bench.probed == []


@pytest.mark.parametrize(
    "options",
    [
        ("--keep-worse",),
        ("--file", "/srv"),
        ("--destructive", "sda"),
        ("--watch", "load.json"),
        ("--trace", "t"),
    ],
)
def test_probe_options_require_probe(
    bench: Bench, capsys: Capture, options: tuple[str, ...]
) -> None:
    assert main([*APPLY, "--no-probe", *options]) == 2
    assert f"{options[0]} is about probing" in capsys.readouterr().err


@pytest.mark.parametrize("installed", [False, True])
def test_end_names_lifetime_of_values(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(Paths, "udev_rules", bench.disks[0].path if installed else Path("/none"))
    assert main([*APPLY, "--no-probe"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert ("until the next boot. `hbatune install` keeps them." in output) is not installed
    main([*APPLY, "--no-probe"])
    assert "next boot" not in capsys.readouterr().out, "this run wrote nothing"


def test_apply_names_shared_disks(
    bench: Bench, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = endpoint(protocol=Protocol.FC, storage=Storage.ARRAY)
    see_machine(monkeypatch, lambda: machine(shared))
    assert main(["apply", "--profile", "oltp"]) == 0
    output = capsys.readouterr().out
    assert "\nsda: left alone, since only the site knows how many hosts use" in f"\n{output}"
