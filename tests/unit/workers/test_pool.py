"""The pool: every task is accounted for, and one that never comes back holds nothing up."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hbatune.workers import (
    Died,
    Finished,
    Pool,
    Process,
    Replied,
    Stuck,
    Unstarted,
    WorkerPool,
    find_process,
)
from hbatune.workers import pool as pool_module


def _echo(task: int) -> Iterator[int]:
    yield task
    yield task * 10


def test_tasks_reply_and_finish() -> None:
    with Pool(_echo, size=3, deadline=10) as pool:
        events = list(pool.run(range(8)))
    replies = [(e.task, e.reply) for e in events if isinstance(e, Replied)]
    assert sorted(replies) == sorted([(n, n) for n in range(8)] + [(n, n * 10) for n in range(8)])
    assert sorted(e.task for e in events if isinstance(e, Finished)) == list(range(8))


def _read(path: str) -> Iterator[str]:
    with open(path) as file:  # a fifo without a writer never opens
        yield file.read()


def test_stuck_worker_costs_one_task(tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    os.mkfifo(hung)
    fine = tmp_path / "fine"
    fine.write_text("here")
    with Pool(_read, size=2, deadline=3.0) as pool:
        events = list(pool.run([str(hung), *[str(fine)] * 5]))
    assert [e.task for e in events if isinstance(e, Stuck)] == [str(hung)]
    assert [e.reply for e in events if isinstance(e, Replied)] == ["here"] * 5


def test_worker_inherits_no_descriptor(tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    os.mkfifo(hung)
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    with Pool(_descriptors, size=1, deadline=10) as pool:
        events = list(pool.run([write_end]))
    os.close(read_end)
    os.close(write_end)
    [open_there] = [e.reply for e in events if isinstance(e, Replied)]
    assert open_there == ["/dev/null", "/dev/null", "/dev/null", "pipe", "pipe"]


def _descriptors(parents: int) -> Iterator[list[str]]:
    links = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the one that listed the folder
        links.append("pipe" if link.startswith("pipe:") else link)
    yield links


def _die(task: str) -> Iterator[str]:
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    yield task


def test_killed_worker_is_replaced() -> None:
    with Pool(_die, size=1, deadline=10) as pool:
        events = list(pool.run(["one", "die", "two"]))
    assert [e.status for e in events if isinstance(e, Died)] == [signal.SIGKILL]
    assert [e.reply for e in events if isinstance(e, Replied)] == ["one", "two"]


def _fail(task: str) -> Iterator[str]:
    raise ValueError(task)
    yield task


def test_work_error_ends_only_worker() -> None:
    with Pool(_fail, size=1, deadline=10) as pool:
        events = list(pool.run(["x"]))
    assert [type(event) for event in events] == [Died]


def test_work_error_traceback_reaches_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: met.append(error))
    with Pool(_fail, size=1, deadline=10) as pool:
        list(pool.run(["x"]))
    [error] = met
    trace = "".join(traceback.format_exception(error))
    assert "in _fail" in trace
    assert trace.rstrip().splitlines()[-1].startswith("ValueError")


def _pid(task: int) -> Iterator[int]:
    yield os.getpid()


def test_pool_exit_leaves_no_process() -> None:
    with Pool(_pid, size=2, deadline=10) as pool:
        pids = {e.reply for e in pool.run(range(6)) if isinstance(e, Replied)}
    assert len(pids) <= 2
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, 0)


def _pid_once_open(fifo: str) -> Iterator[int]:
    if fifo:
        Path(fifo).read_bytes()
    yield os.getpid()


def test_prepare_forks_no_excess_workers(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    unrelated = _children()
    with Pool(_pid_once_open, size=3, deadline=10) as pool:
        pool.start(str(fifo))
        pool.prepare(1)
        assert len(_children() - unrelated) == 2
        pool.prepare(100)
        ready = _children() - unrelated
        assert len(ready) == 3
        fifo.write_bytes(b"")
        pids = {e.reply for e in pool.run([""] * 8) if isinstance(e, Replied)}
        assert pids <= ready
        assert ready == _children() - unrelated
    assert not _children() - unrelated


def test_pending_report_delays_new_workers(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    unrelated = _children()
    with Pool(_pid_once_open, size=9, deadline=10) as pool:
        pool.start(str(fifo))
        [busy] = _children() - unrelated
        os.kill(busy, signal.SIGKILL)
        os.waitid(os.P_PID, busy, os.WEXITED | os.WNOWAIT)
        pool.prepare(8)
        assert _children() - unrelated == {busy}
        assert [type(event) for event in pool.wait()] == [Died]
        pool.prepare(8)
        assert len(_children() - unrelated) == 8


def _children() -> set[int]:
    """The processes that this one has forked; proc(5): task/TID/children."""
    return set(map(int, Path("/proc/thread-self/children").read_text().split()))


def test_shrunk_pool_leaves_no_zombie() -> None:
    before = _children()
    with WorkerPool() as worker_pool:
        worker_pool.prepare(3)
        forked = _children() - before
        worker_pool.shrink(1)
        worker = worker_pool.take()
        for pid in forked - {worker.process.pid}:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # killed, and left for the pool
        worker_pool.give_back(worker)
        assert worker.process.pid in _children()
    assert not _children() - before


def test_worker_dies_with_parent() -> None:
    read_end, write_end = os.pipe()
    parent = os.fork()
    if parent == 0:
        pool = Pool[str, str](_forever, size=1, deadline=60)
        pool.start("x")
        [worker] = map(find_process, _children())
        os.write(write_end, f"{worker.pid} {worker.start_time}\n".encode())
        signal.pause()
        os._exit(0)
    pid, start_time = map(int, os.read(read_end, 100).split())
    worker = Process(pid, start_time)
    watch = os.pidfd_open(pid)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    import select

    assert select.select([watch], [], [], 20)[0], "the worker outlived its parent"
    assert not worker.alive()
    for descriptor in (watch, read_end, write_end):
        os.close(descriptor)


def _forever(task: str) -> Iterator[str]:
    signal.pause()
    yield task


def test_worker_pool_serves_successive_pools() -> None:
    unrelated = _children()
    with WorkerPool() as worker_pool:
        pids = []
        for work in (_pid, _pid):
            with Pool(work, size=2, deadline=10, worker_pool=worker_pool) as pool:
                pids.append({e.reply for e in pool.run(range(6)) if isinstance(e, Replied)})
        with Pool(_echo, size=2, deadline=10, worker_pool=worker_pool) as pool:
            replies = [e.reply for e in pool.run([7]) if isinstance(e, Replied)]
        assert pids[0] == pids[1] == _children() - unrelated
        assert replies == [7, 70]
    assert not _children() - unrelated


def test_worker_pool_drops_stuck_worker(tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    os.mkfifo(hung)
    with WorkerPool() as worker_pool:
        with Pool(_read, size=1, deadline=0.3, worker_pool=worker_pool) as pool:
            assert [type(event) for event in pool.run([str(hung)])] == [Stuck]
        with Pool(_echo, size=1, deadline=10, worker_pool=worker_pool) as pool:
            assert [e.reply for e in pool.run([7]) if isinstance(e, Replied)] == [7, 70]


def _no_fork_after(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """Allow ``allowed`` more forks, then fail each fork. A pool soon gives up."""
    fork, remaining = os.fork, iter(range(allowed))

    def limited() -> int:
        if next(remaining, None) is None:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", limited)
    monkeypatch.setattr(pool_module, "START_PATIENCE_S", 0.05)


def _open_here() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_fewer_processes_finish_all_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = _open_here()
    _no_fork_after(monkeypatch, 2)
    with Pool(_echo, size=6, deadline=20) as pool:
        pool.prepare(6)
        events = list(pool.run(range(12)))
    assert sorted(e.task for e in events if isinstance(e, Finished)) == list(range(12))
    assert not [e for e in events if isinstance(e, Unstarted)]
    assert _open_here() == before


def test_unstarted_tasks_report_errno(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _open_here()
    _no_fork_after(monkeypatch, 0)
    with Pool(_echo, size=3, deadline=20) as pool:
        events = list(pool.run(range(5)))
    assert events == [Unstarted(number, errno.EAGAIN) for number in range(5)]
    assert _open_here() == before


@pytest.mark.parametrize("refused", ["fork", "pipe"])
def test_refused_first_process_is_retried(monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    call, results = getattr(os, refused), iter([errno.EAGAIN, errno.EMFILE, errno.ENOMEM])

    def sometimes() -> Any:
        if (number := next(results, None)) is not None:
            raise OSError(number, os.strerror(number))
        return call()

    monkeypatch.setattr(os, refused, sometimes)
    with Pool(_echo, size=3, deadline=20) as pool:
        events = list(pool.run(range(5)))
    assert sorted(e.task for e in events if isinstance(e, Finished)) == list(range(5))


def test_unstarted_tasks_wait_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _no_fork_after(monkeypatch, 0)
    pauses: list[float] = []
    with Pool(_echo, size=1, deadline=20) as pool:
        pool._poll = SimpleNamespace(poll=pauses.append)  # type: ignore[assignment]
        monkeypatch.setattr("time.monotonic", lambda: sum(pauses) / 1000)
        assert len(list(pool.run(range(50)))) == 50
    assert len(pauses) == 1


def test_dead_worker_leaves_tasks_unstarted(monkeypatch: pytest.MonkeyPatch) -> None:
    _no_fork_after(monkeypatch, 1)
    with Pool(_die, size=3, deadline=20) as pool:
        events = list(pool.run(["die", "first", "second"]))
    kinds = {e.task: type(e) for e in events}
    assert kinds == {"die": Died, "first": Unstarted, "second": Unstarted}
