"""irqbalance is told which interrupts to leave, beside whatever an administrator told it."""

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from hbatune.act import irqbalance, paths
from hbatune.cli import balancing
from hbatune.facts.irqbalance import Irqbalance, running
from hbatune.facts.model import Role
from hbatune.plan import make
from hbatune.policy.model import Exactly
from hbatune.shipped import shipped
from tests.unit.factory import machine, vector
from tests.unit.test_plan import profile

PLACE = profile(("irq_affinity", Exactly("local")))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "IRQS", tmp_path / "run/irqs")
    monkeypatch.setattr(paths, "IRQ_POLICY", tmp_path / "lib/irqbalance-policy")
    monkeypatch.setattr(irqbalance, "running", lambda: None)
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
    assert running(folder / "proc") == Irqbalance(812, policy)


def test_none_runs_where_none_does(folder: Path) -> None:
    process(folder / "proc", 7, "bash", "bash", "-c", "irqbalance")
    assert running(folder / "proc") is None


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
    irqbalance.leave([27, 130])
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
    script = (shipped("irqbalance") / "policy").read_text()
    assert "/run/hbatune/irqs" in script


def test_a_rollback_leaves_nothing_behind(folder: Path) -> None:
    irqbalance.leave([27])
    irqbalance.leave([])
    assert not paths.IRQS.exists()
    assert not paths.IRQ_POLICY.exists()


def test_one_that_asks_our_script_is_made_to_ask_again_and_only_on_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[int] = []
    there = Irqbalance(os.getpid(), str(paths.IRQ_POLICY))
    monkeypatch.setattr(irqbalance, "running", lambda: there)
    before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
    try:
        assert irqbalance.leave([27]) is None
        assert irqbalance.leave([27]) is None
        assert len(heard) == 1
        irqbalance.leave([])
        assert len(heard) == 2
        assert paths.IRQ_POLICY.exists(), "it is asked still, and has nothing to say"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_one_that_does_not_ask_is_named_and_not_fought(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(irqbalance, "running", lambda: Irqbalance(812, "/etc/mine"))
    host = machine(vectors=(vector(),))
    balancing.ban(host, make(host, PLACE).rows)
    said = capsys.readouterr().err
    assert "process 812" in said
    assert f"--policyscript={paths.IRQ_POLICY}, which is /etc/mine now" in said
    balancing.unban(host, None)
    assert not capsys.readouterr().err


def test_only_what_was_placed_is_left_alone_until_it_is_rolled_back(folder: Path) -> None:
    free, other = vector(irq=30), vector(irq=31)
    managed = vector(irq=32, managed=True)
    admin = vector(irq=33, role=Role.ADMIN)
    host = machine(vectors=(free, other, managed, admin))
    balancing.ban(host, make(host, PLACE, only={free.id}).rows)
    assert irqbalance.placed() == {30}
    balancing.ban(host, make(host, PLACE, only={other.id}).rows)
    assert irqbalance.placed() == {30, 31}
    balancing.unban(host, {free.id})
    assert irqbalance.placed() == {31}
    balancing.unban(host, None)
    assert irqbalance.placed() == set()


def test_an_interrupt_that_is_no_adapters_any_more_is_given_back(folder: Path) -> None:
    irqbalance.leave([30, 99])
    host = machine(vectors=(vector(irq=30),))
    balancing.ban(host, make(host, PLACE).rows)
    assert irqbalance.placed() == {30}
