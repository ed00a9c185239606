"""irqbalance is told which interrupts to leave, beside whatever an administrator told it."""

import os
import signal
import stat
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import interrupts, journal, rollback_record
from hbatune.act.journal import Entry, Journal
from hbatune.act.paths import Paths
from hbatune.agent import passes
from hbatune.agent.orders import Order, PassReason, decode_report
from hbatune.cli.command_context import make_context
from hbatune.facts.model import Attribute, CpuRestriction, Missing, Processors, Reason, Role
from hbatune.facts.processors import _list_balanced
from hbatune.facts.services import (
    Irqbalance,
    find_services,
    parse_irqbalance,
    read_irqbalance_settings,
)
from hbatune.operations.apply import ApplyRequest, apply_profile
from hbatune.operations.boot_files import (
    keep_placed_interrupts,
    release_interrupts,
    reserve_interrupts,
)
from hbatune.operations.situation import SituationRequest, read_situation
from hbatune.plan.make import PlanLimits, make_plan
from hbatune.plan.rows import Outcome, State
from hbatune.policy.config import load_configuration
from hbatune.policy.profile import Exactly
from hbatune.policy.vendors import load_chosen_profile
from hbatune.shipped import find_shipped
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from tests.unit.command_runs import see_machine
from tests.unit.machines import machine, vector
from tests.unit.proc import USER, proc_of, process
from tests.unit.profiles import profile
from tests.unit.site_folder import SiteFolder

PLACE = profile(("irq_affinity", Exactly("local")))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: None)
    return tmp_path


@pytest.fixture
def proc(folder: Path) -> Path:
    return proc_of(folder / "proc")


def running(proc: Path) -> Irqbalance | Missing | None:
    return parse_irqbalance(find_services(["irqbalance"], proc)["irqbalance"])


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        (("irqbalance", "--foreground"), None),
        (("irqbalance", "--policyscript=/etc/mine", "--foreground"), "/etc/mine"),
        (("irqbalance", "--policyscript", "/etc/mine"), "/etc/mine"),
        (("irqbalance", "-l", "/etc/mine", "--banirq=7"), "/etc/mine"),
        (("irqbalance", "-l/etc/mine"), "/etc/mine"),
        (("irqbalance", "-l", "/etc/first", "--policyscript=/etc/last"), "/etc/last"),
    ],
)
def test_command_reveals_policy_script(
    proc: Path, words: tuple[str, ...], policy: str | None
) -> None:
    process(proc, 812, "irqbalance", arguments=words)
    assert running(proc) == Irqbalance(812, policy, {})


def test_unrelated_process_is_not_irqbalance(proc: Path) -> None:
    process(proc, 7, "bash", arguments=("bash", "-c", "irqbalance"))
    assert running(proc) is None


@pytest.mark.parametrize("uids", [(USER,) * 4, ("0",) * 4])
def test_unproven_settings_are_ignored(proc: Path, uids: tuple[str, ...]) -> None:
    process(
        proc,
        400,
        "irqbalance",
        uids=uids,
        cgroup="0::/\n",
        arguments=("irqbalance", "-l", str(Paths.irq_policy)),
        environment=("IRQBALANCE_BANNED_CPULIST=0",),
    )
    assert not isinstance(running(proc), Irqbalance)
    assert read_irqbalance_settings(running(proc), []) == {}


def test_script_folder_may_contain_policy(folder: Path) -> None:
    script = folder / "ours"
    script.touch()
    scripts = folder / "scripts"
    scripts.mkdir()
    irqbalance = Irqbalance(1, str(scripts))
    assert not irqbalance.asks(script)
    (scripts / "50-hbatune").symlink_to(script)
    assert irqbalance.asks(script)
    assert Irqbalance(1, str(script)).asks(script)
    assert not Irqbalance(1, None).asks(script)


@pytest.mark.parametrize(
    "policy",
    [
        "/{0}/loop",
        "/{0}/loop/below",
        "/{0}/" + "x" * 300,
        "",
        ".",
        "policy",
        "/a\nb",
        "/\udc80",
        "/\0",
    ],
)
def test_unresolvable_policy_is_foreign(
    folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "policy").symlink_to(Paths.irq_policy)
    monkeypatch.chdir(folder)
    irqbalance = Irqbalance(1, policy.format(folder))
    assert not irqbalance.asks(Paths.irq_policy)
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: irqbalance)
    assert interrupts.ban_interrupts([27], Paths()) == irqbalance
    assert interrupts.read_placed(Paths()) == {27}


def test_looping_link_is_ignored(folder: Path) -> None:
    (folder / "scripts").mkdir()
    (folder / "scripts/10-loop").symlink_to("10-loop")
    assert not Irqbalance(1, str(folder / "scripts")).asks(Paths.irq_policy)
    (folder / "scripts/50-hbatune").symlink_to(Paths.irq_policy)
    assert Irqbalance(1, str(folder / "scripts")).asks(Paths.irq_policy)


def test_script_bans_only_placed_interrupts(folder: Path) -> None:
    interrupts.ban_interrupts([27, 130], Paths())
    assert stat.S_IMODE(Paths.irq_policy.stat().st_mode) == 0o755
    script = Paths.irq_policy.read_text().replace("/run/hbatune/irqs", str(Paths.irqs))

    def answer(irq: str) -> tuple[int, str]:
        command = ["sh", "-c", script, "policy", "/sys/devices/pci0000:00/0000:00:04.0", irq]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert answer("27") == answer("130") == (0, "ban=true\n")
    for interrupt in ("2", "7", "13", "271", ".*", ""):
        assert answer(interrupt) == (1, "")
    Paths.irqs.unlink()
    assert answer("27") == (1, "")


def test_shipped_script_reads_written_list() -> None:
    script = (find_shipped("templates") / "irqbalance-policy").read_text()
    assert "/run/hbatune/irqs" in script


def test_rollback_removes_script(folder: Path) -> None:
    interrupts.ban_interrupts([27], Paths())
    interrupts.ban_interrupts([], Paths())
    assert not Paths.irqs.exists()
    assert not Paths.irq_policy.exists()


def test_only_list_change_signals_irqbalance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    irqbalance = Irqbalance(os.getpid(), str(Paths.irq_policy))
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: irqbalance)
    before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
    try:
        assert interrupts.ban_interrupts([27], Paths()) is None
        assert interrupts.ban_interrupts([27], Paths()) is None
        assert len(heard) == 1
        interrupts.ban_interrupts([], Paths())
        assert len(heard) == 2
        assert Paths.irq_policy.exists(), "it is asked still, and has nothing to say"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_foreign_policy_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: Irqbalance(812, "/etc/mine"))
    host = machine(vectors=(vector(),))
    reserve_interrupts(make_context(), host, make_plan(host, PLACE).rows)
    errors = capsys.readouterr().err
    assert "process 812" in errors
    assert f"--policyscript={Paths.irq_policy}, which is /etc/mine now" in errors
    release_interrupts(make_context(), host, None)
    assert not capsys.readouterr().err


def test_unproven_irqbalance_is_reported_unknown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unproven = Missing(Reason.UNPARSABLE, text="process 400 is not part of irqbalance.service")
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: unproven)
    host = machine(vectors=(vector(),))
    reserve_interrupts(make_context(), host, make_plan(host, PLACE).rows)
    message = capsys.readouterr().err
    assert "it is unknown whether irqbalance moves the interrupts that were placed" in message
    assert "(process 400 is not part of irqbalance.service)" in message
    release_interrupts(make_context(), host, None)
    assert not capsys.readouterr().err
    assert not Paths.irq_policy.exists()


@pytest.mark.parametrize("replaced", [None, Irqbalance(os.getpid() + 1, None)])
def test_only_proven_process_is_signalled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, replaced: Irqbalance | None
) -> None:
    """Its number may be another process's by the time of the signal."""
    answers = iter([Irqbalance(os.getpid(), str(Paths.irq_policy)), replaced])
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: next(answers))
    signals: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: signals.append(number))
    try:
        interrupts.ban_interrupts([27], Paths())
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not signals
    assert next(answers, None) is None, "it was identified again"


def test_ended_irqbalance_causes_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = subprocess.Popen(["sleep", "infinity"])
    pidfd = os.pidfd_open(ended.pid)
    monkeypatch.setattr(os, "pidfd_open", lambda pid: os.dup(pidfd))
    ended.kill()
    ended.wait()
    irqbalance = Irqbalance(ended.pid, str(Paths.irq_policy))
    monkeypatch.setattr(interrupts, "find_irqbalance", lambda: irqbalance)
    host = machine(vectors=(vector(),))
    reserve_interrupts(make_context(), host, make_plan(host, PLACE).rows)
    os.close(pidfd)
    assert not capsys.readouterr().err


def test_placed_interrupts_reserved_until_rollback(folder: Path) -> None:
    free, named = vector(irq=30), vector(irq=31)
    managed = vector(irq=32, managed=True)
    admin = vector(irq=33, role=Role.ADMIN)
    host = machine(vectors=(free, named, managed, admin))
    reserve_interrupts(make_context(), host, make_plan(host, PLACE, only={free.id}).rows, {free.id})
    assert interrupts.read_placed(Paths()) == {30}
    reserve_interrupts(
        make_context(), host, make_plan(host, PLACE, only={named.id}).rows, {named.id}
    )
    assert interrupts.read_placed(Paths()) == {30, 31}
    release_interrupts(make_context(), host, {free.id})
    assert interrupts.read_placed(Paths()) == {31}
    release_interrupts(make_context(), host, None)
    assert interrupts.read_placed(Paths()) == set()


def test_excluded_interrupt_is_released(folder: Path) -> None:
    free, excluded = vector(irq=30), vector(irq=31)
    host = machine(vectors=(free, excluded))
    reserve_interrupts(make_context(), host, make_plan(host, PLACE).rows)
    assert interrupts.read_placed(Paths()) == {30, 31}
    reserve_interrupts(
        make_context(),
        host,
        make_plan(
            host, PLACE, limits=PlanLimits(excluded={excluded.id: LimitReason(Limit.EXCLUDED)})
        ).rows,
    )
    assert interrupts.read_placed(Paths()) == {30}


def test_nonplacing_profile_releases_interrupts(folder: Path) -> None:
    host = machine(vectors=(vector(irq=30),))
    reserve_interrupts(make_context(), host, make_plan(host, PLACE).rows)
    reserve_interrupts(
        make_context(), host, make_plan(host, profile(("nomerges", Exactly(1)))).rows
    )
    assert interrupts.read_placed(Paths()) == set()


def test_failed_write_releases_interrupt(folder: Path) -> None:
    host = machine(vectors=(vector(irq=30), vector(irq=31)))
    rows = make_plan(host, PLACE).rows
    reserve_interrupts(make_context(), host, rows)
    outcomes = {"irq30": Outcome.WRITTEN, "irq31": Outcome.REFUSED}
    keep_placed_interrupts(
        make_context(), host, [replace(row, outcome=outcomes[row.target]) for row in rows]
    )
    assert interrupts.read_placed(Paths()) == {30}


def test_unknown_interrupt_is_released(folder: Path) -> None:
    interrupts.ban_interrupts([30, 99], Paths())
    host = machine(vectors=(vector(irq=30),))
    reserve_interrupts(make_context(), host, make_plan(host, PLACE).rows)
    assert interrupts.read_placed(Paths()) == {30}


def test_running_settings_override_file(folder: Path, proc: Path) -> None:
    file = folder / "default"
    file.write_text('#IRQBALANCE_BANNED_CPULIST=9\nIRQBALANCE_BANNED_CPULIST="2-3" \nPATH=/x\n')
    in_file = {"IRQBALANCE_BANNED_CPULIST": "2-3"}
    assert read_irqbalance_settings(None, [folder / "none", file]) == in_file
    assert read_irqbalance_settings(Irqbalance(812, None), [file]) == in_file
    process(proc, 812, "irqbalance", environment=("PATH=/bin", "IRQBALANCE_BANNED_CPUS=1"))
    assert read_irqbalance_settings(running(proc), [file]) == {"IRQBALANCE_BANNED_CPUS": "1"}


@pytest.mark.parametrize(
    ("environment", "value", "limit"),
    [
        ({"IRQBALANCE_BANNED_CPULIST": "0-2"}, "3", "irqbalance's ban excludes CPUs 0-2"),
        ({"IRQBALANCE_BANNED_CPUS": "00000003"}, "2", "ban excludes CPUs 0-1"),
        (
            {"IRQBALANCE_BANNED_CPULIST": "0", "IRQBALANCE_BANNED_CPUS": "f"},
            "1",
            "ban excludes CPUs 0",
        ),
        ({"IRQBALANCE_BANNED_CPULIST": "none"}, None, "irqbalance's ban makes no sense"),
        ({}, "0", "one CPU of 0-3, which are near the adapter"),
    ],
)
def test_banned_cpus_get_no_vectors(
    environment: dict[str, str], value: str | None, limit: str
) -> None:
    online = (0, 1, 2, 3)
    cpus = Processors(online=online, balanced=_list_balanced(environment, online))
    host = replace(
        machine(vectors=(vector(),)), processors=cpus, local_cpus={"0000:01:00.0": online}
    )
    [row] = make_plan(host, PLACE).rows
    assert row.value == value
    assert limit in describe_limit(row.limit)


def test_explicit_rule_cpus_override_irqaffinity() -> None:
    cpus = Processors(online=(0, 1, 2, 3), irqaffinity=(0,))
    host = replace(machine(vectors=(vector(),)), processors=cpus)
    [row] = make_plan(host, profile(("irq_affinity", Exactly("2-3")))).rows
    assert row.value == "2-3"
    assert describe_limit(row.limit) == "although irqaffinity= excludes CPUs 1-3"


PLACING = """
title = "interrupts alone"
[[rule]]
name = "placed"
setting = "irq_affinity"
value = "local"
because = "of this"
source = "site"
"""
SEEN = replace(
    machine(
        vectors=(
            vector(irq=30, affinity=Attribute("0", True)),
            vector(irq=31, affinity=Attribute("1", True)),
        )
    ),
    processors=Processors(online=(0, 1)),
    local_cpus={"0000:01:00.0": (0, 1)},
)


def by_command() -> None:
    apply_profile(make_context(), ApplyRequest(profile="placing", probe=False))


def by_daemon() -> None:
    config = load_configuration()
    profile = load_chosen_profile(None, config)
    with closing(passes.Memory()) as memory:
        report = decode_report(passes.run(Order(PassReason.AUDIT), config, profile, memory))
    assert report.error is None
    assert not report.locked


@pytest.mark.parametrize("caller", [by_command, by_daemon])
def test_command_and_daemon_reserve_alike(
    caller: Callable[[], None], site: SiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is placed already counts; what the site excludes, or was rolled back, does not."""
    site.put("profiles/placing.toml", PLACING)
    file = site.put("hbatune.toml", 'profile = "placing"\n')
    see_machine(monkeypatch, lambda: SEEN)
    caller()
    assert interrupts.read_placed(Paths()) == {30, 31}
    file.write_text('profile = "placing"\n[site]\nexclude = ["irq31"]\n')
    caller()
    assert interrupts.read_placed(Paths()) == {30}
    file.write_text('profile = "placing"\n')
    rollback_record.record_rollback(Paths(), (SEEN.vectors[0].id,))
    if caller is by_daemon:  # an apply to everything lifts it
        caller()
        assert interrupts.read_placed(Paths()) == {31}


@pytest.mark.parametrize("tried", [True, False])
def test_drifting_interrupt_released_after_attempt(folder: Path, tried: bool) -> None:
    interrupt = vector(irq=30, affinity=Attribute("4-5", True))
    host = machine(vectors=(interrupt,))
    rows = make_plan(host, PLACE).rows
    assert [row.state for row in rows] == [State.DRIFT]
    reserve_interrupts(make_context(), host, rows)
    assert interrupts.read_placed(Paths()) == {30}
    outcome = Outcome.IGNORED if tried else None
    keep_placed_interrupts(make_context(), host, [replace(row, outcome=outcome) for row in rows])
    assert interrupts.read_placed(Paths()) == set()


def test_plan_uses_placed_vectors(site: SiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks in the journal are hbatune's; the other one is an administrator's decision."""
    site.put("profiles/placing.toml", PLACING)
    cpus = replace(SEEN.processors, restrictions={CpuRestriction.DEFAULT: (0, 1)})
    see_machine(monkeypatch, lambda: replace(SEEN, processors=cpus))
    placed = SEEN.vectors[0]
    entry = Entry(placed.id, placed.target, placed.adapter, "irq_affinity", "0-1", "0")
    journal.save(Paths.journal, Journal(SEEN.boot_id, (entry,)))
    first, second = read_situation(SituationRequest(profile="placing")).plan().rows
    assert (first.value, second.value) == ("0", "1")
    assert "narrowed" not in describe_limit(first.limit)
    assert "its smp_affinity was narrowed to CPUs 1" in describe_limit(second.limit)
