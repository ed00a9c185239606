"""The worker processes themselves: forked, told what to do, and killed without being waited for."""

import contextlib
import ctypes
import os
import pickle
import signal
import struct
from collections.abc import Iterator
from typing import Any, Self

from msgspec import Struct

_LENGTH = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl  # looked up once, not in each worker


class Worker(Struct, eq=False):
    """A worker process and the pipes to it; ``work`` is what it has been told to do with tasks."""

    pid: int
    tasks: int  # descriptor that the parent writes tasks to
    replies: int  # descriptor that the parent reads replies from
    work: object = None

    def told(self, work: object) -> None:
        """Tell it what to do with its next tasks, unless it knows."""
        if self.work is not work:
            _send(self.tasks, (False, work))
            self.work = work

    def do(self, task: object) -> None:
        """Give it a task; BrokenPipeError where it has died."""
        _send(self.tasks, (True, task))

    def discard(self) -> None:
        """Kill it, and wait for nothing."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.tasks)
        os.close(self.replies)


class Crew:
    """Worker processes that one pool after another can use: a fork costs more than most tasks.

    Leaving the context closes it; each pool sees to its own until then.
    """

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._abandoned: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill those that are idle."""
        for worker in self._idle:
            worker.discard()
        for worker in self._idle:
            # It waited for a task, in a read that SIGKILL ends.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(worker.pid, 0)
        self._idle.clear()

    def prepare(self, count: int) -> None:
        """Fork until so many are idle.

        In one go, and best while others work: after each fork this process copies every page
        that it writes to anew. Where no more can be started there are fewer.
        """
        with contextlib.suppress(OSError):
            for _ in range(count - len(self._idle)):
                self._idle.append(self._fork())

    def take(self) -> Worker:
        """Return one that is idle, or else a new one; OSError where none can be started."""
        return self._idle.pop() if self._idle else self._fork()

    def give_back(self, worker: Worker) -> None:
        """Have one for the next task."""
        self._idle.append(worker)

    def abandon(self, worker: Worker) -> None:
        """Give one up: it was sent SIGKILL, and ends when the kernel lets it go."""
        worker.discard()
        self._abandoned.append(worker.pid)

    def _fork(self) -> Worker:
        self._abandoned = [pid for pid in self._abandoned if not _reaped(pid)]
        pipes: list[int] = []
        parent = os.getpid()
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            pid = os.fork()
        except OSError:
            for descriptor in pipes:
                os.close(descriptor)
            raise
        tasks_in, tasks_out, replies_in, replies_out = pipes
        if pid == 0:
            _serve(tasks_in, replies_out, parent)
        os.close(tasks_in)
        os.close(replies_out)
        return Worker(pid, tasks_out, replies_in)


def _reaped(pid: int) -> bool:
    """Take the exit status of a child that has ended; whether it has."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _serve(tasks: int, replies: int, parent: int) -> None:  # pragma: no cover  (runs in the worker)
    """Be a worker until the parent closes the pipe or dies; never returns."""
    status = 1
    try:
        # A parent that is killed must not leave writers behind for a rollback to race with.
        die_with_parent(parent)
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _keep_only(tasks, replies)
        buffer = bytearray()
        while chunk := os.read(tasks, 1 << 16):
            buffer += chunk
            for is_task, message in messages(buffer):
                if not is_task:
                    work = message
                    continue
                for reply in work(message):
                    _send(replies, (True, reply))
                _send(replies, (False, None))
        status = 0
    finally:
        os._exit(status)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends, and end now if it has (prctl(2))."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


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


def messages(buffer: bytearray) -> Iterator[tuple[bool, Any]]:
    """Take the whole messages out of the buffer."""
    while len(buffer) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(buffer)
        end = _LENGTH.size + length
        if len(buffer) < end:
            return
        message = pickle.loads(bytes(buffer[_LENGTH.size : end]))
        del buffer[:end]
        yield message
