"""The worker processes: they are forked, receive work and tasks, and are killed without waiting."""

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from typing import Any, Self

from msgspec import Struct

from hbatune import processes
from hbatune.children import has_ended

_LENGTH = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1
_M_MMAP_THRESHOLD = -3
_LARGE = 128 << 10
"""Bytes: the initial threshold of glibc."""
_LIBC = ctypes.CDLL(None)
_prctl = _LIBC.prctl  # resolved once, not in each worker


class Process(Struct, frozen=True):
    """A process, distinguished from a later one with the same pid by its start time."""

    pid: int
    start_time: int

    def alive(self) -> bool:
        """Return whether it still runs; a zombie does not."""
        return processes.is_alive(self.pid, self.start_time)


def find_this_process() -> Process:
    """Return the process that runs this code."""
    return find_process(os.getpid())


def find_process(pid: int) -> Process:
    """Return the process that has this pid now, with start time 0 if there is no such process."""
    times = processes.read_process_state(pid)
    return Process(pid, times[0] if times else 0)


class Worker(Struct, eq=False):
    """A worker process and the pipes to it; ``work`` is the function that it applies to tasks."""

    process: Process
    tasks: int  # descriptor that the parent writes tasks to
    replies: int  # descriptor that the parent reads replies from
    work: object = None

    def do(self, work: object, task: object) -> None:
        """Send it a task, and the function unless it has that; BrokenPipeError if it has died."""
        function = () if self.work is work else ((False, work),)
        # In one write: at each write the kernel may give the CPU to the worker.
        _send(self.tasks, *function, (True, task))
        self.work = work

    def discard(self) -> None:
        """Kill it without waiting for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        os.close(self.tasks)
        os.close(self.replies)


_started: list[int] = []


def list_worker_pids() -> tuple[int, ...]:
    """Return the pids of this process's workers that were alive after the last call."""
    pids = tuple(_started)
    _started[:] = [pid for pid in pids if not has_ended(pid)]
    return pids


class WorkerPool:
    """Worker processes for several pools, one after another: a fork costs more than most tasks."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._ending: list[int] = []  # killed while idle
        self._abandoned: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, but: int = 0) -> None:
        """Kill the idle workers except ``but`` of them, and wait until they have ended."""
        self.shrink(but)
        for pid in self._ending:
            # It waited for a task, in a read that SIGKILL ends.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._ending.clear()

    def shrink(self, count: int) -> None:
        """Kill the idle workers except ``count`` of them; they end while this process continues."""
        for worker in self._idle[count:]:
            worker.discard()
            self._ending.append(worker.process.pid)
        del self._idle[count:]

    def prepare(self, count: int) -> None:
        """Fork workers until ``count`` are idle or a fork fails."""
        # Together, since after each fork this process copies every page that it writes to.
        with contextlib.suppress(OSError):
            for _ in range(count - len(self._idle)):
                self._idle.append(self._fork())

    def take(self) -> Worker:
        """Return an idle worker, or a new one; OSError if no worker can be started."""
        while self._idle:
            worker = self._idle.pop()
            if not has_ended(worker.process.pid):
                return worker
            # Killed while it waited, for example because memory was short.
            os.close(worker.tasks)
            os.close(worker.replies)
        return self._fork()

    def give_back(self, worker: Worker) -> None:
        """Accept a worker that has finished, for the next task."""
        self._idle.append(worker)

    def abandon(self, worker: Worker) -> None:
        """Kill a worker that does not answer; it ends when the kernel releases it."""
        worker.discard()
        self._abandoned.append(worker.process.pid)

    def _fork(self) -> Worker:
        # Some of the abandoned ones may have ended since, and must not stay zombies.
        self._abandoned = [pid for pid in self._abandoned if not has_ended(pid)]
        # Before the fork: otherwise this process and the worker would each import it.
        import _pickle  # noqa: F401

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
        _started.append(pid)
        # The parent has not waited for it, so the kernel has not reused the pid.
        return Worker(find_process(pid), tasks_out, replies_in)


def _serve(tasks: int, replies: int, parent: int) -> None:  # pragma: no cover  (runs in the worker)
    """Serve as a worker until the parent closes the pipe or dies; never returns."""
    status, fault = 1, None
    try:
        # A killed parent must not leave writers that race with a rollback.
        die_with_parent(parent)
        # A Ctrl-C at the terminal is for the parent, which lets running writes end.
        os.setsid()
        # The parent's handlers would also run in the worker.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _keep_only(tasks, replies)
        buffer = bytearray()
        while chunk := os.read(tasks, 1 << 16):
            buffer += chunk
            for is_task, message in pop_messages(buffer):
                if not is_task:
                    work = message
                    continue
                for reply in work(message):
                    _send(replies, (True, reply))
                _send(replies, (False, None))
        status = 0
    except Exception as error:  # noqa: BLE001  (no exception may be lost)
        fault = _describe_error(error)
    finally:
        if fault is not None:
            with contextlib.suppress(OSError):  # the parent has ended
                _send(replies, (False, fault))
        # Not sys.exit: neither the parent's cleanup handlers nor its buffered output are the
        # worker's.
        os._exit(status)


def _describe_error(error: Exception) -> str:
    """Return the traceback, or only the error if a module for it cannot be loaded."""
    try:
        import traceback  # here, since few workers need it
    except OSError:  # no free descriptor
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent`` ends (prctl(2)); exit now if it has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before prctl(2), which then has no effect.
    if os.getppid() != parent:
        os._exit(1)


def release_memory() -> None:
    """Have the C library return free memory to the kernel (malloc_trim(3), only in glibc)."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def separate_large_blocks() -> None:
    """Have glibc unmap each large block when it is freed, at any size of blocks (mallopt(3))."""
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_M_MMAP_THRESHOLD, _LARGE)


def _keep_only(*descriptors: int) -> None:
    """Close all other descriptors: a stuck worker would keep the caller's pipes and files open."""
    close_descriptors(*descriptors)  # first: the limit of open descriptors may be reached
    null_device = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null_device, stream)
    if null_device > 2:
        os.close(null_device)


def close_descriptors(*descriptors: int) -> None:
    """Close all descriptors except these and the standard streams."""
    low = 3
    for descriptor in sorted(descriptors):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else 1 << 16)


def _send(descriptor: int, *messages: object) -> None:
    # Only the C half of pickle is needed: the other half takes ten times as long to import. Not at
    # the top, since the daemon, which shares this module, sends no tasks.
    import _pickle

    data = b""
    for message in messages:
        body = _pickle.dumps(message, -1)
        data += _LENGTH.pack(len(body)) + body
    sent = os.write(descriptor, data)
    while sent < len(data):
        sent += os.write(descriptor, data[sent:])


def pop_messages(buffer: bytearray) -> Iterator[tuple[bool, Any]]:
    """Yield the complete messages in the buffer, and remove them from it.

    To a worker: True and a task, or False and the function for tasks. From a worker: True and a
    reply, or False and None or the traceback of the fault that ends it.
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
