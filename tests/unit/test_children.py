"""Programs that do not end are killed with all that they have started, or abandoned."""

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from hbatune import children
from hbatune.agent.child import start_server
from hbatune.workers import find_process


def test_program_returns_status_and_output() -> None:
    done = children.run(["sh", "-c", "echo out; echo err >&2; exit 3"], 60)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_hung_program_dies_with_children(tmp_path: Path) -> None:
    """The child of the program has its pipes, which a wait for their end would wait for."""
    os.mkfifo(tmp_path / "alive")
    script = f"sleep 1000 > {tmp_path}/alive & wait"
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(TimeoutError) as caught:
            children.run(["sh", "-c", script], 0.2)
        assert caught.value.errno == errno.ETIMEDOUT
        assert caught.value.strerror == "it did not end within 0.2 s"
        os.set_blocking(alive, True)
        assert os.read(alive, 1) == b"", "nobody has it open"
    finally:
        os.close(alive)


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As in state D: no signal ends a process, until this is undone."""
    monkeypatch.setattr(os, "kill", lambda *_: None)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    monkeypatch.setattr(children.kill, "__defaults__", (0.1,))
    monkeypatch.setattr(children.stop, "__defaults__", (0.1,))
    return monkeypatch


def reaped(pid: int) -> bool:
    """Kill an abandoned process; return whether its exit status is collected after that."""
    assert children.collect_abandoned() == 1
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return children.collect_abandoned() == 0 and not os.path.exists(f"/proc/{pid}")


def test_unkillable_program_is_reaped_later(unkillable: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        children.run(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 1000"], 0.5)
    unkillable.undo()
    assert reaped(int((tmp_path / "pid").read_text()))


def hang(*_: bytes) -> bytes:
    signal.pause()
    return b""


def test_unkillable_pass_is_reaped_later(unkillable: pytest.MonkeyPatch) -> None:
    server = start_server(hang)
    server.kill()
    assert find_process(server.pid).alive()
    unkillable.undo()
    assert reaped(server.pid)


def test_programs_start_with_deadline() -> None:
    """Only ``children`` starts programs, except those that run as long as people want."""
    package = Path(children.__file__).parent
    starters = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(f"subprocess.{call}(" in path.read_text() for call in _CALLS)
    }
    exempt = {
        "cli/remote.py",  # ssh, for as long as the remote command takes
        "text/basic_output.py",  # for as long as a person reads
        "probe/fio.py",  # its deadline follows its run time
    }
    assert starters == {"children.py", *exempt}


_CALLS = ("run", "Popen", "call", "check_call", "check_output")
assert all(hasattr(subprocess, call) for call in _CALLS)
