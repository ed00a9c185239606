"""The edge of every command: streams that fail, terminals without characters, faults of hbatune."""

import errno
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hbatune.act import journal
from hbatune.act.journal import Entry, Journal, Run
from hbatune.act.paths import Paths
from hbatune.cli import main
from hbatune.errors import UsageError
from hbatune.facts.assembly import read_boot_id
from hbatune.workers import Died, Pool, find_this_process

Capture = pytest.CaptureFixture[str]
ENTRIES = tuple(
    Entry(id, target, None, setting, 1, 2)
    for id, target, setting in (("a", "sda", "x"), ("a", "sda", "y"), ("b", "sdb", "x"))
)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have `profiles` meet a fault; return the folder of an ordinary user's state."""

    def fail() -> None:
        raise KeyError("0000:00:02.0")

    monkeypatch.setattr("hbatune.cli.commands.profiles.load_configuration", fail)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg"


def faults(folder: Path) -> list[Path]:
    return sorted(folder.glob("fault-*.txt"))


def test_fault_saves_traceback_file(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["profiles", "a name"]) == 70
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hbatune: internal error: KeyError: '0000:00:02.0'" in captured.err
    assert "Traceback" not in captured.err
    assert "`hbatune profiles 'a name'`" in captured.err
    [file] = faults(Paths.state / "log")
    assert str(file) in captured.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert "Traceback" in text
    assert "command: hbatune profiles 'a name'" in text
    assert "the journal" not in captured.err, "nothing was being changed"


def fails(task: int) -> Iterator[int]:
    raise KeyError(f"disk {task % 2}")
    yield task


def test_worker_faults_spare_command(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def work() -> None:
        with Pool(fails, size=2, deadline=10) as pool:
            assert {type(event) for event in pool.run(range(6))} == {Died}
        raise UsageError("it has gone on")

    monkeypatch.setattr("hbatune.cli.commands.profiles.load_configuration", work)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    assert main(["profiles"]) == 2
    *messages, last = sorted(capsys.readouterr().err.splitlines())
    files = sorted(map(str, faults(Paths.state / "log")))
    assert len(files) == len(messages) == 2
    assert all(line.startswith("hbatune: internal error: KeyError: 'd") for line in messages)
    assert sorted(re.findall(r"/\S+fault-[^;:]*", "".join(messages))) == files
    assert last == "hbatune: it has gone on"


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "", "/run/x"), OSError(errno.EIO, "")])
def test_system_error_is_no_fault(
    error: OSError, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail() -> None:
        error.strerror = os.strerror(error.errno or 0)
        raise error

    monkeypatch.setattr("hbatune.cli.commands.profiles.load_configuration", fail)
    assert main(["profiles"]) == 1
    messages = capsys.readouterr().err
    assert str(error.strerror) in messages
    assert (error.filename or "system call") in messages
    assert "internal error" not in messages
    assert not faults(Paths.state / "log")


def test_user_traceback_uses_home(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["profiles"]) == 70
    [file] = faults(broken / "hbatune")
    assert str(file) in capsys.readouterr().err


def test_unsavable_traceback_is_printed(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hbatune.act.files.replace", full)
    monkeypatch.setattr("tempfile.mkstemp", full)
    assert main(["profiles"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_old_tracebacks_are_removed(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("hbatune.cli.fault.MAX_TRACEBACKS", 2)
    folder = broken / "hbatune"
    folder.mkdir(parents=True)
    for year in range(2000, 2005):
        (folder / f"fault-{year}0101-000000-1.txt").touch()
    assert main(["profiles"]) == 70
    assert len(faults(folder)) == 2
    assert faults(folder)[0].name == "fault-20040101-000000-1.txt"


@pytest.mark.parametrize(
    "problem", [RecursionError("deep"), MemoryError(), OSError(9, "Bad descriptor")]
)
def test_any_exception_is_fault(
    problem: Exception, broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def fail() -> None:
        raise problem

    monkeypatch.setattr("hbatune.cli.commands.profiles.load_configuration", fail)
    assert main(["profiles"]) == 70
    assert f"internal error: {type(problem).__name__}" in capsys.readouterr().err


@pytest.mark.parametrize(("problem", "code"), [(KeyError("x"), 70), (KeyboardInterrupt(), 1)])
def test_interrupted_command_reports_changes(
    problem: BaseException,
    code: int,
    broken: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    def begin() -> None:
        run = Run("apply", "oltp", find_this_process(), time.time())
        journal.save(Paths.journal, Journal(read_boot_id(), ENTRIES, run))
        raise problem

    monkeypatch.setattr("hbatune.cli.commands.profiles.load_configuration", begin)
    assert main(["profiles"]) == code
    messages = capsys.readouterr().err
    assert "`apply` was changing the machine" in messages
    assert "3 values of 2 targets" in messages
    assert "`hbatune rollback`" in messages


def test_foreign_run_is_not_reported(broken: Path, capsys: Capture) -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        from hbatune.workers import find_process

        run = Run("apply", "oltp", find_process(process.pid), time.time())
        journal.save(Paths.journal, Journal(read_boot_id(), ENTRIES, run))
        assert main(["profiles"]) == 70
        process.kill()
    assert "changing the machine" not in capsys.readouterr().err
