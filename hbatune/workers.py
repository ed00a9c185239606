"""Disposable worker processes with deadlines, for reads and writes that the kernel may never end.

A write to ``queue/*`` waits for the I/O in flight, uninterruptibly, and reads of the same disk
then wait behind it (block/blk-sysfs.c, block/blk-mq.c: blk_mq_freeze_queue_wait). A process in
that wait ignores SIGKILL, so the parent must be able to walk away from it: a worker holds no
descriptor but its own pipe, no lock, and no thread, and is never waited for.
"""

import contextlib
import ctypes
import os
import pickle
import select
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LENGTH = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl  # looked up once, not in each worker


@dataclass(frozen=True)
class Process:
    """A process that can be told from a later one with the same pid by its start time."""

    pid: int
    start_time: int

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        found = _stat(self.pid)
        return found is not None and found == (self.start_time, False)


@dataclass(frozen=True)
class Replied(Generic[T, R]):
    """The worker answered; a task may have several replies."""

    task: T
    reply: R


@dataclass(frozen=True)
class Finished(Generic[T]):
    """The worker is done with the task and free for another."""

    task: T


@dataclass(frozen=True)
class Stuck(Generic[T]):
    """No reply within the deadline: the worker was sent SIGKILL and given up.

    It may live on in the kernel, and what it was writing may still land.
    """

    task: T
    process: Process


@dataclass(frozen=True)
class Died(Generic[T]):
    """The worker ended in the middle of the task."""

    task: T
    status: int


Event = Replied[T, R] | Finished[T] | Stuck[T] | Died[T]


@dataclass
class _Worker(Generic[T]):
    process: Process
    tasks: int  # descriptor that the parent writes tasks to
    replies: int  # descriptor that the parent reads replies from
    task: T | None = None
    due: float = 0.0
    buffer: bytearray = field(default_factory=bytearray)


class Pool(Generic[T, R]):
    """Runs ``work(task)`` in at most ``size`` worker processes and reports what came of it.

    ``work`` yields replies; each reply starts the deadline (seconds) anew. A worker that passes
    it is abandoned and its place taken by a new one. Leaving the context kills every worker and
    waits for none that is stuck.
    """

    def __init__(self, work: Callable[[T], Iterator[R]], *, size: int, deadline: float) -> None:
        self._work = work
        self._size = size
        self._deadline = deadline
        self._idle: list[_Worker[T]] = []
        self._busy: dict[int, _Worker[T]] = {}
        self._abandoned: list[int] = []
        self._poll = select.poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self._busy.values(), *self._idle):
            self._discard(worker)
        for worker in self._idle:
            # It waited for a task, in a read that SIGKILL ends.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(worker.process.pid, 0)
        self._idle.clear()
        self._busy.clear()

    @property
    def free(self) -> int:
        """How many more tasks can be started at once."""
        return self._size - len(self._busy)

    @property
    def running(self) -> int:
        """How many tasks are under way."""
        return len(self._busy)

    def start(self, task: T) -> Process:
        """Give the task to a free worker and return that worker's process."""
        if not self.free:
            raise RuntimeError("no worker is free")
        worker = self._idle.pop() if self._idle else self._fork()
        worker.task = task
        worker.due = time.monotonic() + self._deadline
        self._busy[worker.replies] = worker
        self._poll.register(worker.replies, select.POLLIN)
        # A worker that died while idle shows as an end of file at the next wait().
        with contextlib.suppress(BrokenPipeError):
            _send(worker.tasks, (True, task))
        return worker.process

    def prepare(self, tasks: int) -> None:
        """Fork the workers that so many further tasks can use.

        In one go, and best while others work: after each fork this process copies every page
        that it writes to anew.
        """
        for _ in range(min(tasks, self.free) - len(self._idle)):
            self._idle.append(self._fork())

    def wait(self) -> list[Event[T, R]]:
        """Block until a worker replies, finishes, dies or passes its deadline."""
        if not self._busy:
            return []
        events: list[Event[T, R]] = []
        while not events:
            remaining = min(worker.due for worker in self._busy.values()) - time.monotonic()
            for descriptor, _ in self._poll.poll(max(0.0, remaining) * 1000):
                events += self._receive(self._busy[descriptor])
            now = time.monotonic()
            for worker in [worker for worker in self._busy.values() if worker.due <= now]:
                events.append(self._abandon(worker))
        return events

    def run(self, tasks: Iterable[T]) -> Iterator[Event[T, R]]:
        """Work through all tasks in their order, as many at once as there are workers."""
        waiting = iter(tasks)
        exhausted = False
        while True:
            while self.free and not exhausted:
                try:
                    self.start(next(waiting))
                except StopIteration:
                    exhausted = True
            if not self.running:
                return
            yield from self.wait()

    def _receive(self, worker: _Worker[T]) -> list[Event[T, R]]:
        task: Any = worker.task
        chunk = os.read(worker.replies, 1 << 16)
        if not chunk:
            self._release(worker)
            os.close(worker.tasks)
            os.close(worker.replies)
            return [Died(task, os.waitpid(worker.process.pid, 0)[1])]
        worker.buffer += chunk
        worker.due = time.monotonic() + self._deadline
        events: list[Event[T, R]] = []
        for more, reply in _messages(worker.buffer):
            if more:
                events.append(Replied(task, reply))
            else:
                self._release(worker)
                worker.task = None
                self._idle.append(worker)
                events.append(Finished(task))
        return events

    def _release(self, worker: _Worker[T]) -> None:
        del self._busy[worker.replies]
        self._poll.unregister(worker.replies)

    def _abandon(self, worker: _Worker[T]) -> Event[T, R]:
        task: Any = worker.task
        self._release(worker)
        self._discard(worker)
        self._abandoned.append(worker.process.pid)
        return Stuck(task, worker.process)

    def _discard(self, worker: _Worker[T]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.process.pid, signal.SIGKILL)
        os.close(worker.tasks)
        os.close(worker.replies)

    def _fork(self) -> _Worker[T]:
        self._abandoned = [pid for pid in self._abandoned if not _reaped(pid)]
        tasks_in, tasks_out = os.pipe()
        replies_in, replies_out = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _serve(self._work, tasks_in, replies_out, parent)
        os.close(tasks_in)
        os.close(replies_out)
        found = _stat(pid)
        return _Worker(Process(pid, found[0] if found else 0), tasks_out, replies_in)


def this_process() -> Process:
    """Return the process that runs this code."""
    return process(os.getpid())


def process(pid: int) -> Process:
    """Return the process that has this pid now."""
    found = _stat(pid)
    return Process(pid, found[0] if found else 0)


def _reaped(pid: int) -> bool:
    """Take the exit status of a child that has ended; whether it has."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _serve(
    work: Callable[[Any], Iterator[Any]], tasks: int, replies: int, parent: int
) -> None:  # pragma: no cover  (runs in the worker)
    """Be a worker until the parent closes the pipe or dies; never returns."""
    status = 1
    try:
        # A parent that is killed must not leave writers behind for a rollback to race with.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _keep_only(tasks, replies)
        buffer = bytearray()
        while chunk := os.read(tasks, 1 << 16):
            buffer += chunk
            for _, task in _messages(buffer):
                for reply in work(task):
                    _send(replies, (True, reply))
                _send(replies, (False, None))
        status = 0
    finally:
        os._exit(status)


def _keep_only(*descriptors: int) -> None:
    """Close all inherited descriptors but these, and point the standard streams nowhere.

    A stuck worker would otherwise keep the caller's pipes, terminal and files open for good.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    low = 3
    for descriptor in sorted(descriptors):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else 1 << 16)


def _send(descriptor: int, message: object) -> None:
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    data = memoryview(_LENGTH.pack(len(body)) + body)
    while data:
        data = data[os.write(descriptor, data) :]


def _messages(buffer: bytearray) -> Iterator[tuple[bool, Any]]:
    """Take the whole messages out of the buffer."""
    while len(buffer) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(buffer)
        end = _LENGTH.size + length
        if len(buffer) < end:
            return
        message = pickle.loads(bytes(buffer[_LENGTH.size : end]))
        del buffer[:end]
        yield message


def _stat(pid: int) -> tuple[int, bool] | None:
    """Return a process's start time in clock ticks since boot, and whether it is a zombie.

    proc(5): fields 22 and 3 of /proc/PID/stat; the second may contain blanks and parentheses.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19]), fields[0] in b"ZX"
