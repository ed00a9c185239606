"""A command waits for a pass of the daemon, and for nobody else."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.agent import client, status
from hbatune.agent.client import reload_daemon, take_lock_after_pass
from hbatune.agent.status import Status
from hbatune.errors import LockedError
from hbatune.workers import find_this_process
from tests.unit.statuses import GOOD

pytestmark = pytest.mark.usefixtures("state")


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return a child of this process that holds the lock until SIGUSR1 or its end."""
    for name in ("lock", "status"):
        monkeypatch.setattr(Paths, name, tmp_path / name)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGUSR1, lambda *_: None)
            with Lock(Paths.lock):
                os.write(writer, b"x")
                signal.pause()
            signal.pause()
        finally:
            os._exit(0)
    os.read(reader, 1)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_foreign_holder_is_not_awaited(holder: int) -> None:
    with pytest.raises(LockedError) as caught, take_lock_after_pass():
        pytest.fail("it is held")
    assert caught.value.pid == holder


def test_freed_lock_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take = fcntl.lockf
    tries: list[int] = []

    def held_at_first(descriptor: int, how: int) -> None:
        tries.append(how)
        if len(tries) == 1:
            raise BlockingIOError
        take(descriptor, how)

    monkeypatch.setattr(fcntl, "lockf", held_at_first)
    with Lock(tmp_path / "lock"):
        assert len(tries) == 2


def test_ended_holder_frees_lock(holder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(pid: int) -> bool:
        os.kill(pid, signal.SIGTERM)
        return True

    monkeypatch.setattr(client, "_has_ended", ends)
    with take_lock_after_pass():
        pass


def test_daemon_pass_is_awaited(holder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    status.save(Paths.status, Status(find_this_process(), 0.0, "oltp"))
    wait = client._wait_for_end

    def end(pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGTERM)
        wait(pid, seconds)

    monkeypatch.setattr(client, "_wait_for_end", end)
    with take_lock_after_pass():
        pass
    with take_lock_after_pass():
        pass


def test_idle_pass_process_ends_wait(holder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    status.save(Paths.status, Status(find_this_process(), 0.0, "oltp"))
    wait, waits = client._wait_for_end, list[float]()

    def let_go(pid: int, seconds: float) -> None:
        if not waits:
            os.kill(pid, signal.SIGUSR1)
        waits.append(seconds)
        wait(pid, seconds)

    monkeypatch.setattr(client, "_wait_for_end", let_go)
    with take_lock_after_pass():
        assert os.waitpid(holder, os.WNOHANG) == (0, 0), "it goes on"
    assert sum(waits) < client.DAEMON_WAIT_S


def test_slow_pass_exceeds_patience(holder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "DAEMON_WAIT_S", 0.05)
    status.save(Paths.status, Status(find_this_process(), 0.0, "oltp"))
    with pytest.raises(LockedError), take_lock_after_pass():
        pytest.fail("it is held")


def test_running_daemon_is_nudged() -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        from hbatune.workers import find_process

        status.save(Paths.status, replace(GOOD, process=find_process(sleeper.pid)))
        reload_daemon(Paths.status)
        assert sleeper.wait(30) == -signal.SIGHUP
    reload_daemon(Paths.status)  # it is gone by now
