"""The context of an operation: its files, its lock, how it waits, and its reporter."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field

from hbatune.act.lock import Lock
from hbatune.act.means import Means
from hbatune.act.paths import Paths
from hbatune.act.rollback_record import RollbackGuard
from hbatune.operations.notes import Note
from hbatune.policy.config import ActConfig
from hbatune.workers import WorkerPool

Advance = Callable[[str], None]
"""Called with the name of each step that is done."""

Stop = Callable[[], bool]
"""Whether a stop was requested: writes under way are finished, and no others started."""


class Phase(StrEnum):
    """A part of an operation whose progress is shown."""

    WRITING = "writing"
    RESTORING = "restoring"
    COMPARING = "comparing"
    PROBING = "probing"
    WRITING_FILE = "writing the file"
    SEARCHING = "searching"


class OperationReporter(Protocol):
    """Reports to people while an operation is under way."""

    def note(self, note: Note) -> None:
        """Report a note."""

    def progress(self, phase: Phase, total: int) -> AbstractContextManager[Advance]:
        """Enter to get a function that is called with the name of each of ``total`` steps."""


class SilentReporter:
    """A reporter that drops everything."""

    def note(self, note: Note) -> None:
        """Drop the note."""

    def progress(self, phase: Phase, total: int) -> AbstractContextManager[Advance]:
        """Yield a function that does nothing."""
        return nullcontext(lambda word: None)


def _never() -> Iterator[Stop]:
    yield lambda: False


class Context(Struct, frozen=True, kw_only=True):
    """The caller of an operation: a command, or the daemon.

    ``lock`` makes the lock to be held while the machine is changed; entering it raises LockedError
    where another hbatune holds it. ``patience`` are the seconds to wait for writers that an
    interrupted run left (SIGKILL needs no more). ``stoppable`` is entered around writes and yields
    whether to stop. ``nudge`` wakes the running daemon to look at everything. ``warns`` is whether
    to report every time that irqbalance may undo a placement, and not only after a change.
    ``clock`` returns seconds since the epoch, for the history.
    """

    lock: Callable[[], AbstractContextManager[Lock]]
    reporter: OperationReporter
    patience: float = 1.0
    stoppable: Callable[[], AbstractContextManager[Stop]] = contextmanager(_never)
    nudge: Callable[[], None] = lambda: None
    warns: bool = True
    paths: Paths = field(default_factory=Paths)
    clock: Callable[[], float] = time.time

    @contextmanager
    def writing(
        self,
        phase: Phase,
        disks: int,
        act: ActConfig,
        worker_pool: WorkerPool,
        guard: RollbackGuard,
    ) -> Iterator[Means]:
        """Yield the means to write to this number of disks, unless the ``guard`` objects.

        A rollback writes with an empty guard.
        """
        with self.stoppable() as stop, self.reporter.progress(phase, disks) as advance:
            yield Means(
                journal=self.paths.journal,
                claims=self.paths.claims,
                spent=self.paths.spent,
                workers=act.workers,
                deadline=act.deadline_seconds,
                stop=stop,
                progress=lambda chain: advance(chain.target),
                worker_pool=worker_pool,
                guard=guard,
            )
