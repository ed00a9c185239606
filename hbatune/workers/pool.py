"""Give tasks to workers, each with a deadline, and report how they ended."""

import contextlib
import errno
import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, Protocol, Self, TypeVar

from msgspec import Struct, field

from hbatune.workers.worker import Process, Worker, WorkerPool, pop_messages

T = TypeVar("T")
R = TypeVar("R")
_T_contra = TypeVar("_T_contra", contravariant=True)

START_PATIENCE_S = 5.0
"""Seconds for which a fork is repeated if no worker can do the task. Most limits of processes, open
files and memory are reached only for moments."""
_START_PAUSE_S = 0.1


class Replied(Struct, Generic[T, R], frozen=True):
    """The worker answered; a task may have several replies."""

    task: T
    reply: R


class Finished(Struct, Generic[T], frozen=True):
    """The worker has finished the task and is free for another."""

    task: T


class Stuck(Struct, Generic[T], frozen=True):
    """No reply within the deadline: killed and abandoned, but a write may still take effect."""

    task: T
    process: Process


class Died(Struct, Generic[T], frozen=True):
    """The worker ended in the middle of the task; ``failed`` if by an exception of the work."""

    task: T
    status: int
    failed: bool = False


class Unstarted(Struct, Generic[T], frozen=True):
    """No worker could be started for ``START_PATIENCE_S``, and no worker is busy."""

    task: T
    errno: int


Event = Replied[T, R] | Finished[T] | Stuck[T] | Died[T] | Unstarted[T]


class _Busy(Struct, Generic[T], eq=False):
    """A worker with its task, the deadline of its reply, and the part of a reply received."""

    worker: Worker
    task: T
    due: float
    buffer: bytearray = field(default_factory=bytearray)
    fault: str | None = None  # the traceback that it sent before it ended


class Tracker(Protocol[_T_contra]):
    """The record of each worker's task."""

    def started(self, worker: Process, task: _T_contra) -> None:
        """Record a task before its worker gets it."""

    def ended(self, worker: Process) -> None:
        """Record that the task has ended. A stuck worker's has not."""


class WorkerFaultError(Exception):
    """A fault in the work of a worker, with the worker's traceback as a note."""

    def __init__(self, trace: str) -> None:
        super().__init__("in a worker")
        self.add_note(trace)


class Pool(Generic[T, R]):
    """Runs ``work(task)`` in at most ``size`` worker processes and reports the results as events.

    ``work`` yields replies; each restarts the deadline (seconds). ``work`` and the tasks are
    pickled. An exception of ``work`` ends its worker and is passed to ``sys.excepthook`` as a
    ``WorkerFaultError``. Leaving the context kills busy workers without waiting.
    """

    def __init__(
        self,
        work: Callable[[T], Iterator[R]],
        *,
        size: int,
        deadline: float,
        worker_pool: WorkerPool | None = None,
        tracker: Tracker[T] | None = None,
    ) -> None:
        self._work = work
        self._tracker = tracker
        self.size = size
        self._deadline = deadline
        self._worker_pool = worker_pool or WorkerPool()
        # Only its own workers end with it: another pool continues to use the shared ones.
        self._own = None if worker_pool else self._worker_pool
        self._busy: dict[int, _Busy[T]] = {}
        self._waiting: deque[T] = deque()  # no worker can be started for them now
        self._refusal = errno.EAGAIN
        self._give_up_at: float | None = None  # set at the first refusal, cleared by a start
        self._poll = select.poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for busy in self._busy.values():
            self._worker_pool.abandon(busy.worker)
        self._busy.clear()
        if self._own:
            self._own.close()

    @property
    def free(self) -> int:
        """The number of tasks that can be started now."""
        return self.size - self.running

    @property
    def running(self) -> int:
        """The number of tasks in progress."""
        return len(self._busy) + len(self._waiting)

    def start(self, task: T) -> None:
        """Give the task to a free worker, or have it wait for one, until it is ``Unstarted``."""
        try:
            worker = self._worker_pool.take()
        except OSError as error:
            self._refusal = error.errno or errno.EAGAIN
            self._waiting.append(task)
            return
        self._give_up_at = None
        # The deadline starts before the task is sent: it covers a worker that never reads it.
        self._busy[worker.replies] = _Busy(worker, task, time.monotonic() + self._deadline)
        self._poll.register(worker.replies, select.POLLIN)
        if self._tracker is not None:
            self._tracker.started(worker.process, task)
        # A worker that died while idle is detected by an end of file at the next wait().
        with contextlib.suppress(BrokenPipeError):
            worker.do(self._work, task)

    def prepare(self, tasks: int) -> None:
        """Fork the workers for this number of further tasks, until a reply arrives."""
        for idle in range(1, min(tasks, self.free) + 1):
            # A worker that waits to be read costs more than a missing one if CPUs are scarce.
            if self._poll.poll(0):
                return
            self._worker_pool.prepare(idle)

    def wait(self) -> list[Event[T, R]]:
        """Block until a worker replies, finishes, dies or passes its deadline."""
        events: list[Event[T, R]] = []
        if self._waiting and not self._busy:
            self._give_up_at = self._give_up_at or time.monotonic() + START_PATIENCE_S
            give_up_at = self._give_up_at
            while not self._busy and time.monotonic() < give_up_at:
                self._poll.poll(_START_PAUSE_S * 1000)  # no worker can reply: only a pause
                self._begin_waiting()
            if not self._busy:
                events += [Unstarted(task, self._refusal) for task in self._waiting]
                self._waiting.clear()
        while self._busy and not events:
            remaining = min(busy.due for busy in self._busy.values()) - time.monotonic()
            # Replies before deadlines: a reply that has arrived counts, however late this process
            # reads it.
            for descriptor, _ in self._poll.poll(max(0.0, remaining) * 1000):
                events += self._receive(self._busy[descriptor])
            current_time = time.monotonic()
            for busy in [busy for busy in self._busy.values() if busy.due <= current_time]:
                self._release(busy.worker, has_ended=False)
                events.append(Stuck(busy.task, busy.worker.process))
                self._worker_pool.abandon(busy.worker)
            self._begin_waiting()
        return events

    def _begin_waiting(self) -> None:
        # Each is tried once; tasks that still have no worker go to the end of the queue again.
        for _ in range(len(self._waiting)):
            self.start(self._waiting.popleft())

    def run(self, tasks: Iterable[T]) -> Iterator[Event[T, R]]:
        """Execute all tasks in their order, with as many in parallel as there are workers."""
        waiting = iter(tasks)
        while True:
            for task in islice(waiting, self.free):
                self.start(task)
            if not self.running:
                return
            yield from self.wait()

    def _receive(self, busy: _Busy[T]) -> list[Event[T, R]]:
        worker, task = busy.worker, busy.task
        chunk = os.read(worker.replies, 1 << 16)
        if not chunk:
            self._release(worker)
            os.close(worker.tasks)
            os.close(worker.replies)
            if busy.fault is not None:
                fault = WorkerFaultError(busy.fault)
                sys.excepthook(type(fault), fault, None)
            # Safe to wait: the pipe closes when the process exits, not when it is stuck.
            status = os.waitpid(worker.process.pid, 0)[1]
            return [Died(task, status, failed=busy.fault is not None)]
        busy.buffer += chunk
        busy.due = time.monotonic() + self._deadline
        events: list[Event[T, R]] = []
        for is_reply, reply in pop_messages(busy.buffer):
            if is_reply:
                events.append(Replied(task, reply))
            elif reply is None:
                self._release(worker)
                self._worker_pool.give_back(worker)
                events.append(Finished(task))
            else:
                busy.fault = reply  # the end of its pipe follows
        return events

    def _release(self, worker: Worker, *, has_ended: bool = True) -> None:
        del self._busy[worker.replies]
        self._poll.unregister(worker.replies)
        if has_ended and self._tracker is not None:
            self._tracker.ended(worker.process)
