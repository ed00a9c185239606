"""The worker processes: forked, given work and tasks, and killed without waiting for them."""

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from typing import Any, Self

from msgspec import Struct

from hbatune.workers.process import Process, process

_LENGTH = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1
_M_MMAP_THRESHOLD = -3
_LARGE = 128 << 10
"""Bytes: glibc's own threshold at first."""
_LIBC = ctypes.CDLL(None)
_prctl = _LIBC.prctl  # looked up once, not in each worker


class Worker(Struct, eq=False):
    """A worker process and the pipes to it; ``work`` is the function that it applies to tasks."""

    pid: int
    tasks: int  # descriptor that the parent writes tasks to
    replies: int  # descriptor that the parent reads replies from
    work: object = None
    started: Process | None = None

    @property
    def process(self) -> Process:
        """Its process, read once: /proc is slow, and a worker does many tasks."""
        if self.started is None:
            # The parent has not waited for it, so the pid is its own.
            found = process(self.pid)
            if not found.start_time:  # /proc could not be read
                return found
            self.started = found
        return self.started

    def do(self, work: object, task: object) -> None:
        """Send it a task, and with it the function for it, unless it has that already.

        Raises BrokenPipeError where it has died.
        """
        function = () if self.work is work else ((False, work),)
        # In one go: at each write the kernel may give the CPU to the worker.
        _send(self.tasks, *function, (True, task))
        self.work = work

    def discard(self) -> None:
        """Kill it without waiting for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.tasks)
        os.close(self.replies)


class WorkerPool:
    """Worker processes for one pool after another: a fork costs more than most tasks.

    Leaving the context kills the idle ones; each pool kills those that it keeps busy.
    """

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._ending: list[int] = []  # killed while idle
        self._abandoned: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, but: int = 0) -> None:
        """Kill the idle workers, ``but`` so many, and wait until they have ended."""
        self.shrink(but)
        for pid in self._ending:
            # It waited for a task, in a read that SIGKILL ends.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._ending.clear()

    def shrink(self, most: int) -> None:
        """Kill the idle workers but so many; they end while this process goes on."""
        for worker in self._idle[most:]:
            worker.discard()
            self._ending.append(worker.pid)
        del self._idle[most:]

    def prepare(self, count: int) -> None:
        """Fork until so many are idle, or no more can be started.

        Best in one go, and while others work: after each fork this process copies every page that
        it writes to.
        """
        with contextlib.suppress(OSError):
            for _ in range(count - len(self._idle)):
                self._idle.append(self._fork())

    def take(self) -> Worker:
        """Return an idle worker, or a new one; OSError where none can be started."""
        while self._idle:
            worker = self._idle.pop()
            if not _reaped(worker.pid):
                return worker
            # Killed while it waited, such as for want of memory.
            os.close(worker.tasks)
            os.close(worker.replies)
        return self._fork()

    def give_back(self, worker: Worker) -> None:
        """Take a worker that has finished, for the next task."""
        self._idle.append(worker)

    def abandon(self, worker: Worker) -> None:
        """Kill a worker that does not answer; it ends when the kernel releases it."""
        worker.discard()
        self._abandoned.append(worker.pid)

    def _fork(self) -> Worker:
        # The next fork is a good moment: some of the abandoned have ended by then, and must not
        # stay zombies.
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
    """Collect the exit status of a child, if it has ended; return whether it has."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _serve(tasks: int, replies: int, parent: int) -> None:  # pragma: no cover  (runs in the worker)
    """Be a worker until the parent closes the pipe or dies; never returns."""
    status = 1
    fault = None
    try:
        # A parent that is killed must not leave writers behind that race with a rollback.
        die_with_parent(parent)
        # A Ctrl-C at the terminal is for the parent, which lets writes under way end.
        os.setsid()
        # The parent's handlers would run in the worker, too.
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
    except Exception as error:  # noqa: BLE001  (whatever it is, it must not be lost)
        fault = _description(error)
    finally:
        if fault is not None:
            with contextlib.suppress(OSError):  # the parent is gone
                _send(replies, (False, fault))
        # Not sys.exit: neither the parent's cleanup handlers nor its buffered output are the
        # worker's.
        os._exit(status)


def _description(error: Exception) -> str:
    """Return the traceback, or the error alone if a module for it cannot be loaded."""
    try:
        import traceback  # here, as hardly any worker needs it
    except OSError:  # no free descriptor
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends (prctl(2)); exit now if it has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before prctl(2), which then has no effect.
    if os.getppid() != parent:
        os._exit(1)


def give_memory_back() -> None:
    """Have the C library return free memory to the kernel (malloc_trim(3), of glibc alone)."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def keep_large_blocks_apart() -> None:
    """Have the C library map each large block of memory, and unmap it when it is freed.

    glibc does so at first, and after the first very large one no longer (mallopt(3): the threshold
    is dynamic until it is set). What is freed in between other blocks stays with the process.
    """
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_M_MMAP_THRESHOLD, _LARGE)


def _keep_only(*descriptors: int) -> None:
    """Close all inherited descriptors but these, and point the standard streams nowhere.

    A stuck worker would otherwise keep the caller's pipes, terminal and files open for good.
    """
    close_others(*descriptors)  # first: all descriptors that are allowed may be open
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if nowhere > 2:
        os.close(nowhere)


def close_others(*descriptors: int) -> None:
    """Close all descriptors but these and the standard streams."""
    low = 3
    for descriptor in sorted(descriptors):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else 1 << 16)


def _send(descriptor: int, *messages: object) -> None:
    # The half of pickle in C, which is all that is needed of it: the other takes ten times as long
    # to be imported. Not above, as the daemon, which shares this module, sends no tasks.
    import _pickle

    data = b""
    for message in messages:
        body = _pickle.dumps(message, -1)
        data += _LENGTH.pack(len(body)) + body
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, data[sent:])


def messages(buffer: bytearray) -> Iterator[tuple[bool, Any]]:
    """Yield the complete messages in the buffer, and remove them from it.

    To a worker: whether it is a task, and the task or the function for tasks. From a worker:
    whether it is a reply, and the reply; else None, or the traceback of the fault that ends it.
    """
    from _pickle import loads

    start = 0
    try:
        while len(buffer) >= start + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                return
            message = loads(buffer[start + _LENGTH.size : end])
            start = end
            yield message
    finally:
        del buffer[:start]
