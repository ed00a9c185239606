"""The context of an operation: its files, lock, reporter, and the messages to it.

The messages of an operation on its way, as values; ``text/notes`` has the words.

An operation returns its result; a note is what a person should know beside that.

The context of an operation: its files, its lock, how it waits, and its reporter.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from hbatune.act.executor import Means
from hbatune.act.journal import Journal
from hbatune.act.lock import Claim, Lock
from hbatune.act.paths import Paths
from hbatune.act.rollback_record import RollbackGuard, RollbackRecords
from hbatune.act.system import Ran
from hbatune.errors import HbatuneError
from hbatune.facts.model import Machine, Missing
from hbatune.facts.services import Irqbalance
from hbatune.plan.rows import Restored
from hbatune.policy.config import ActConfig, Unmatched
from hbatune.workers import WorkerPool


class Task(Enum):
    """Part of an operation that may fail while the rest goes on."""

    RECORD_ROLLBACK = auto()
    LIFT_ROLLBACK = auto()
    READ_CONFIGURATION = auto()
    DEACTIVATE_PROFILE = auto()
    FORGET_PROFILE = auto()
    READ_JOURNAL = auto()
    SAVE_JOURNAL = auto()
    SAVE_HISTORY = auto()
    PLACE_RULES = auto()
    REMOVE_RULES = auto()
    REMOVE_OPTIONS = auto()
    TELL_IRQBALANCE = auto()
    FIT_MEMORY = auto()
    WRITE_RULES = auto()
    MARK_DISKS = auto()
    READ_DEVICES = auto()
    COMPARE = auto()


class TaskFailed(Struct, frozen=True):
    """A task failed, and the operation goes on without it."""

    task: Task
    error: HbatuneError


class CommandFailed(Struct, frozen=True):
    """A program of the system ended with an error."""

    ran: Ran


class NothingStarts(Struct, frozen=True):
    """systemd does not run here, so that nothing starts this unit."""

    unit: str


class RulesNotLoaded(Struct, frozen=True):
    """The udev rules are in place, but udev could not be made to read them."""

    ran: Ran


class FileEdited(Struct, frozen=True):
    """A file was changed since hbatune wrote it, and is left; ``tunes`` if it still sets disks."""

    path: Path
    tunes: bool = False


class FollowsElsewhere(Struct, frozen=True):
    """irqbalance runs without hbatune's ``script``, and may move interrupts that were placed.

    Missing if it is unknown whether one runs.
    """

    irqbalance: Irqbalance | Missing
    script: Path


class HistoryFull(Struct, frozen=True):
    """So many of the oldest results were dropped to make room."""

    gone: int


class OptionsWritten(Struct, frozen=True):
    """The module options for the next load are in this file."""

    path: Path


class OptionsRemoved(Struct, frozen=True):
    """The file of the module options was removed."""

    path: Path


class OptionsNotRemoved(Struct, frozen=True):
    """The file of the module options could not be removed."""

    path: Path
    errno: int


class InitramfsStale(Struct, frozen=True):
    """An initramfs that loads these ``modules`` must be rebuilt for their options to take effect.

    ``of_root`` says that it does load them, since the root disk needs them. ``command`` rebuilds
    it, where it is known.
    """

    modules: tuple[str, ...]
    command: str | None
    of_root: bool = False


class EarlierBoot(Struct, frozen=True):
    """The journal is of an earlier boot, and a reboot has undone what it records."""

    dropped: bool
    """Whether it is replaced now."""


class InterruptedRuns(Struct, frozen=True):
    """The traces of earlier runs: ``stuck`` are writers that are still in the kernel."""

    journal: Journal
    rollbacks: RollbackRecords
    machine: Machine
    stuck: tuple[Claim, ...]


class UnmatchedNames(Struct, frozen=True):
    """Names in [site] that match nothing on this machine."""

    names: tuple[Unmatched, ...]


class RunsAhead(Struct, frozen=True):
    """So many runs will be made on disks, and take so many seconds."""

    runs: int
    seconds: float
    write: bool
    """Whether they destroy the data on the disks."""


class FileRunsAhead(Struct, frozen=True):
    """So many runs will be made on a file of ``size`` bytes."""

    runs: int
    size: int
    seconds: float


class ComparisonsAhead(Struct, frozen=True):
    """Endpoints will be compared with and without the change, ``pairs`` times each.

    It takes about ``seconds``, and never more than ``limit``.
    """

    endpoints: int
    pairs: int
    seconds: float
    limit: int


class SearchesAhead(Struct, frozen=True):
    """So many disks will be searched, which takes about ``seconds``.

    It takes no longer than ``limit`` seconds, where there is one. It writes to a file in
    ``folder``, and to the disks ``emptied``, which loses what is on them.
    """

    disks: int
    seconds: float
    limit: float | None
    folder: Path | None = None
    emptied: tuple[str, ...] = ()


class Stopped(Struct, frozen=True):
    """A stop was requested, and no more is written; ``compared``: all had been written by then."""

    compared: bool


class RolledBack(Struct, frozen=True):
    """The result of a rollback that was part of another operation (``RollbackResult``)."""

    rows: tuple[Restored, ...]
    machine: Machine
    lost: bool = False


class UnrestoredValues(Struct, frozen=True):
    """Some values could not be put back, so that hbatune's own state must stay."""


class RollbackCame(Struct, frozen=True):
    """A rollback was recorded after the run began, so the run makes no profile active."""


class FileRemoved(Struct, frozen=True):
    """A file that hbatune had placed was removed."""

    path: Path


TimeAhead = RunsAhead | FileRunsAhead | ComparisonsAhead | SearchesAhead
"""The time that measurements will take."""

Note = (
    TimeAhead
    | TaskFailed
    | CommandFailed
    | NothingStarts
    | RulesNotLoaded
    | FileEdited
    | FollowsElsewhere
    | HistoryFull
    | OptionsWritten
    | OptionsRemoved
    | OptionsNotRemoved
    | InitramfsStale
    | EarlierBoot
    | InterruptedRuns
    | UnmatchedNames
    | Stopped
    | RolledBack
    | UnrestoredValues
    | RollbackCame
    | FileRemoved
)


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
