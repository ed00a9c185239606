"""irqbalance is told which interrupts to leave, beside whatever an administrator told it."""

import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import interrupts, paths, rollback_record
from hbatune.act.paths import Paths
from hbatune.agent import passes
from hbatune.agent.messages import decode_report
from hbatune.agent.orders import Order, PassReason
from hbatune.cli.context import command_context
from hbatune.facts.model import Attribute, Processors, Role
from hbatune.facts.processors import Irqbalance, _balanced, irqbalance_settings, running_irqbalance
from hbatune.operations.apply import ApplyRequest, apply
from hbatune.operations.irqbalance import keep_placed, release, reserve
from hbatune.plan.make import make
from hbatune.plan.rows import Outcome, State
from hbatune.policy.chosen import chosen_profile, configuration
from hbatune.policy.model import Exactly
from hbatune.shipped import shipped
from tests.unit.factory import machine, vector
from tests.unit.policy_site import SiteFolder
from tests.unit.test_plan import profile

PLACE = profile(("irq_affinity", Exactly("local")))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "IRQS", tmp_path / "run/irqs")
    monkeypatch.setattr(paths, "IRQ_POLICY", tmp_path / "lib/irqbalance-policy")
    monkeypatch.setattr(interrupts, "running_irqbalance", lambda: None)
    return tmp_path


def process(proc: Path, pid: int, name: str, *words: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    (proc / str(pid) / "cmdline").write_text("\0".join(words) + "\0")


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
def test_whom_it_asks_is_read_from_its_command(
    folder: Path, words: tuple[str, ...], policy: str | None
) -> None:
    process(folder / "proc", 7, "bash", "bash")
    process(folder / "proc", 812, "irqbalance", *words)
    assert running_irqbalance(folder / "proc") == Irqbalance(812, policy)


def test_none_runs_where_none_does(folder: Path) -> None:
    process(folder / "proc", 7, "bash", "bash", "-c", "irqbalance")
    assert running_irqbalance(folder / "proc") is None


def test_a_folder_of_scripts_may_have_ours_among_them(folder: Path) -> None:
    script = folder / "ours"
    script.touch()
    scripts = folder / "scripts"
    scripts.mkdir()
    there = Irqbalance(1, str(scripts))
    assert not there.asks(script)
    (scripts / "50-hbatune").symlink_to(script)
    assert there.asks(script)
    assert Irqbalance(1, str(script)).asks(script)
    assert not Irqbalance(1, None).asks(script)


def test_the_script_answers_for_what_was_placed_and_for_nothing_else(folder: Path) -> None:
    interrupts.leave([27, 130], Paths())
    assert stat.S_IMODE(paths.IRQ_POLICY.stat().st_mode) == 0o755
    script = paths.IRQ_POLICY.read_text().replace("/run/hbatune/irqs", str(paths.IRQS))

    def answer(irq: str) -> tuple[int, str]:
        command = ["sh", "-c", script, "policy", "/sys/devices/pci0000:00/0000:00:04.0", irq]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert answer("27") == answer("130") == (0, "ban=true\n")
    for other in ("2", "7", "13", "271", ".*", ""):
        assert answer(other) == (1, "")
    paths.IRQS.unlink()
    assert answer("27") == (1, "")


def test_the_script_that_ships_reads_the_list_that_is_written() -> None:
    script = (shipped("templates") / "irqbalance-policy").read_text()
    assert "/run/hbatune/irqs" in script


def test_a_rollback_leaves_nothing_behind(folder: Path) -> None:
    interrupts.leave([27], Paths())
    interrupts.leave([], Paths())
    assert not paths.IRQS.exists()
    assert not paths.IRQ_POLICY.exists()


def test_one_that_asks_our_script_is_made_to_ask_again_and_only_on_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    there = Irqbalance(os.getpid(), str(paths.IRQ_POLICY))
    monkeypatch.setattr(interrupts, "running_irqbalance", lambda: there)
    before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
    try:
        assert interrupts.leave([27], Paths()) is None
        assert interrupts.leave([27], Paths()) is None
        assert len(heard) == 1
        interrupts.leave([], Paths())
        assert len(heard) == 2
        assert paths.IRQ_POLICY.exists(), "it is asked still, and has nothing to say"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_one_that_does_not_ask_is_named_and_not_fought(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interrupts, "running_irqbalance", lambda: Irqbalance(812, "/etc/mine"))
    host = machine(vectors=(vector(),))
    reserve(command_context(), host, make(host, PLACE).rows)
    said = capsys.readouterr().err
    assert "process 812" in said
    assert f"--policyscript={paths.IRQ_POLICY}, which is /etc/mine now" in said
    release(command_context(), host, None)
    assert not capsys.readouterr().err


def test_only_what_was_placed_is_left_alone_until_it_is_rolled_back(folder: Path) -> None:
    free, other = vector(irq=30), vector(irq=31)
    managed = vector(irq=32, managed=True)
    admin = vector(irq=33, role=Role.ADMIN)
    host = machine(vectors=(free, other, managed, admin))
    reserve(command_context(), host, make(host, PLACE, only={free.id}).rows, {free.id})
    assert interrupts.placed(Paths()) == {30}
    reserve(command_context(), host, make(host, PLACE, only={other.id}).rows, {other.id})
    assert interrupts.placed(Paths()) == {30, 31}
    release(command_context(), host, {free.id})
    assert interrupts.placed(Paths()) == {31}
    release(command_context(), host, None)
    assert interrupts.placed(Paths()) == set()


def test_what_a_site_excludes_is_not_irqbalances_to_leave(folder: Path) -> None:
    free, excluded = vector(irq=30), vector(irq=31)
    host = machine(vectors=(free, excluded))
    reserve(command_context(), host, make(host, PLACE).rows)
    assert interrupts.placed(Paths()) == {30, 31}
    reserve(
        command_context(),
        host,
        make(host, PLACE, excluded={excluded.id: "excluded in [site]"}).rows,
    )
    assert interrupts.placed(Paths()) == {30}


def test_a_profile_that_places_nothing_gives_all_of_them_back(folder: Path) -> None:
    host = machine(vectors=(vector(irq=30),))
    reserve(command_context(), host, make(host, PLACE).rows)
    reserve(command_context(), host, make(host, profile(("nomerges", Exactly(1)))).rows)
    assert interrupts.placed(Paths()) == set()


def test_a_vector_whose_write_did_not_take_is_given_back(folder: Path) -> None:
    host = machine(vectors=(vector(irq=30), vector(irq=31)))
    rows = make(host, PLACE).rows
    reserve(command_context(), host, rows)
    outcomes = {"irq30": Outcome.WRITTEN, "irq31": Outcome.REFUSED}
    keep_placed(
        command_context(), host, [replace(row, outcome=outcomes[row.target]) for row in rows]
    )
    assert interrupts.placed(Paths()) == {30}


def test_an_interrupt_that_is_no_adapters_any_more_is_given_back(folder: Path) -> None:
    interrupts.leave([30, 99], Paths())
    host = machine(vectors=(vector(irq=30),))
    reserve(command_context(), host, make(host, PLACE).rows)
    assert interrupts.placed(Paths()) == {30}


def environment(folder: Path, pid: int, text: bytes) -> None:
    process(folder / "proc", pid, "irqbalance", "irqbalance", "--foreground")
    (folder / "proc" / str(pid) / "environ").write_bytes(text)


def test_the_settings_of_the_one_that_runs_count_before_those_on_disk(folder: Path) -> None:
    file = folder / "default"
    file.write_text('#IRQBALANCE_BANNED_CPULIST=9\nIRQBALANCE_BANNED_CPULIST="2-3" \nPATH=/x\n')
    (folder / "proc").mkdir()
    missing = folder / "none"
    assert irqbalance_settings(folder / "proc", [missing, file]) == {
        "IRQBALANCE_BANNED_CPULIST": "2-3"
    }
    environment(folder, 812, b"PATH=/bin\0IRQBALANCE_BANNED_CPUS=00000001\0")
    assert irqbalance_settings(folder / "proc", [file]) == {"IRQBALANCE_BANNED_CPUS": "00000001"}


@pytest.mark.parametrize(
    ("said", "value", "limit"),
    [
        ({"IRQBALANCE_BANNED_CPULIST": "0-2"}, "3", "CPUs 0-2 are banned in irqbalance's settings"),
        ({"IRQBALANCE_BANNED_CPUS": "00000003"}, "2", "CPUs 0-1 are banned"),
        (
            {"IRQBALANCE_BANNED_CPULIST": "0", "IRQBALANCE_BANNED_CPUS": "f"},
            "1",
            "CPUs 0 are banned",
        ),
        ({"IRQBALANCE_BANNED_CPULIST": "none"}, None, "irqbalance's banned CPUs make no sense"),
        ({}, "0", "one CPU of 0-3, which are near the adapter"),
    ],
)
def test_vectors_go_to_no_cpu_that_irqbalance_is_kept_from(
    said: dict[str, str], value: str | None, limit: str
) -> None:
    online = (0, 1, 2, 3)
    cpus = Processors(online=online, balanced=_balanced(said, online))
    host = replace(
        machine(vectors=(vector(),)), processors=cpus, local_cpus={"0000:01:00.0": online}
    )
    [row] = make(host, PLACE).rows
    assert row.value == value
    assert limit in (row.limit or "")


def test_a_rule_that_names_cpus_is_the_more_particular_word() -> None:
    cpus = Processors(online=(0, 1, 2, 3), irqaffinity=(0,))
    host = replace(machine(vectors=(vector(),)), processors=cpus)
    [row] = make(host, profile(("irq_affinity", Exactly("2-3")))).rows
    assert row.value == "2-3"
    assert row.limit == "although irqaffinity=0 on the kernel's command line"


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
    apply(command_context(), ApplyRequest(profile="placing", probe=False))


def by_daemon() -> None:
    config = configuration()
    report = decode_report(
        passes.run(Order(PassReason.AUDIT), config, chosen_profile(None, config))
    )
    assert report.error is None
    assert not report.locked


@pytest.mark.parametrize("caller", [by_command, by_daemon])
def test_commands_and_daemon_leave_the_same_interrupts(
    caller: Callable[[], None], site: SiteFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is placed already counts; what the site excludes, or was rolled back, does not."""
    site.put("profiles/placing.toml", PLACING)
    file = site.put("hbatune.toml", 'profile = "placing"\n')
    monkeypatch.setattr("hbatune.operations.situation.installed_library", lambda: site.library)
    monkeypatch.setattr("hbatune.policy.chosen.installed_library", lambda: site.library)
    monkeypatch.setattr("hbatune.operations.situation.gather", lambda *a, **k: SEEN)
    caller()
    assert interrupts.placed(Paths()) == {30, 31}
    file.write_text('profile = "placing"\n[site]\nexclude = ["irq31"]\n')
    caller()
    assert interrupts.placed(Paths()) == {30}
    file.write_text('profile = "placing"\n')
    rollback_record.record_targets([SEEN.vectors[0].id], Paths())
    if caller is by_daemon:  # an apply to everything lifts it
        caller()
        assert interrupts.placed(Paths()) == {31}


@pytest.mark.parametrize("tried", [True, False])
def test_an_interrupt_that_drifts_is_left_only_while_it_is_about_to_be_placed(
    folder: Path, tried: bool
) -> None:
    there = vector(irq=30, affinity=Attribute("4-5", True))
    host = machine(vectors=(there,))
    rows = make(host, PLACE).rows
    assert [row.state for row in rows] == [State.DRIFT]
    reserve(command_context(), host, rows)
    assert interrupts.placed(Paths()) == {30}
    outcome = Outcome.IGNORED if tried else None
    keep_placed(command_context(), host, [replace(row, outcome=outcome) for row in rows])
    assert interrupts.placed(Paths()) == set()
