"""The context of an operation: its files, lock, waiting times and reports, and its notes.

An operation returns its result. A note is a message for the user in addition to the result. It is a
value; ``text/notes`` has its text.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from hbatune.act import rollback_record, system
from hbatune.act.executor import Means
from hbatune.act.journal import Loss
from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.errors import HbatuneError
from hbatune.facts import model, services
from hbatune.operations.situation import Traces
from hbatune.plan.rows import Restored
from hbatune.policy.config import ActConfig
from hbatune.workers import WorkerPool


class Task(Enum):
    """A part of an operation that may fail while the other parts continue."""

    RECORD_ROLLBACK = auto()
    LIFT_ROLLBACK = auto()
    READ_CONFIGURATION = auto()
    DEACTIVATE_PROFILE = auto()
    FORGET_PROFILE = auto()
    READ_JOURNAL = auto()
    SAVE_JOURNAL = auto()
    SAVE_HISTORY = auto()
    STORE_RULES = auto()
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
    """A task failed, and the operation continues without it."""

    task: Task
    error: HbatuneError


class Event(Enum):
    """An event that a note reports with at most one name: a path or a unit."""

    FILE_REMOVED = auto()
    # Edited since hbatune wrote it. RULES_KEPT still tune disks.
    FILE_KEPT = auto()
    RULES_KEPT = auto()
    # The module options for the next load.
    OPTIONS_WRITTEN = auto()
    OPTIONS_REMOVED = auto()
    OPTIONS_NOT_REMOVED = auto()
    # systemd is not running, so nothing starts the unit.
    UNIT_NOT_STARTED = auto()
    # The journal is of an earlier boot, and the reboot has undone what it records.
    JOURNAL_OUTDATED = auto()
    JOURNAL_REPLACED = auto()
    # A stop was requested before all values were written, or during the comparison.
    WRITING_STOPPED = auto()
    COMPARISON_STOPPED = auto()
    NOTHING_COMPARED = auto()
    # Recorded after the run began, so the run makes no profile active.
    ROLLBACK_RECORDED = auto()
    # Some values could not be restored, so hbatune's own state must stay.
    VALUES_UNRESTORED = auto()


class EventNote(Struct, frozen=True):
    """An event, with its path or unit, and the errno of a failed system call."""

    event: Event
    subject: Path | str = ""
    errno: int | None = None


class CommandFailed(Struct, frozen=True):
    """A program ended with an error. ``reloading`` is True if udev did not reload its rules."""

    ran: system.ToolResult
    reloading: bool = False


class FollowsElsewhere(Struct, frozen=True):
    """irqbalance runs without hbatune's ``script``, and may move the placed interrupts.

    ``irqbalance`` is Missing if it is unknown whether it runs.
    """

    irqbalance: services.Irqbalance | model.Missing
    script: Path


class HistoryFull(Struct, frozen=True):
    """The number of oldest results removed because the history was full."""

    removed: int


class InitramfsStale(Struct, frozen=True):
    """An initramfs that loads these ``modules`` must be rebuilt for their options to take effect.

    ``of_root`` is True if it loads them, since the root disk needs them. ``command`` rebuilds it,
    or is None if unknown.
    """

    modules: tuple[str, ...]
    command: str | None
    of_root: bool = False


class RunsAhead(Struct, frozen=True):
    """The number of runs on disks, or on a file of ``file_size`` bytes, and their duration.

    For a file, ``seconds`` include the time to fill it, at the measured rate. ``write`` is whether
    the runs destroy the data on the disks. ``cached`` is whether the adapter or array of the file
    may have a cache, of unknown size. ``again`` is whether these depths are measured a second time,
    because the IOPS fell.
    """

    runs: int
    seconds: float
    write: bool = False
    file_size: int | None = None
    cached: bool = False
    again: bool = False


class ComparisonsAhead(Struct, frozen=True):
    """Endpoints will be compared with and without the change, and in bursts.

    It takes about ``seconds``, and with the confirmation of regressions at most ``limit``. The
    settings of the target ``again`` were worse, and this confirms it.
    """

    endpoints: int
    seconds: float
    limit: int
    again: str = ""


class SearchesAhead(Struct, frozen=True):
    """The number of disks that will be searched, in about ``seconds``.

    The search takes at most ``limit`` seconds, unless it is None. It writes to a file in
    ``folder``, and to the disks ``emptied``, which destroys their data.
    """

    disks: int
    seconds: float
    limit: float | None
    folder: Path | None = None
    emptied: tuple[str, ...] = ()


class SearchLonger(Struct, frozen=True):
    """The search of a target takes about ``seconds`` longer, since no answer is certain yet."""

    target: str
    seconds: float


class RollbackResult(Struct, frozen=True):
    """The result of a rollback, and a note if the rollback was part of another operation.

    ``finished`` is whether all files are updated: its record, the journal, the active profile, the
    udev rules, the module options and the list for irqbalance. An old one could set values again.
    ``read`` is whether the devices could be read. If not, udev may have saved values that no row
    contains. ``losses`` are the original values that the journal has lost.
    """

    rows: tuple[Restored, ...]
    machine: model.Machine
    finished: bool
    read: bool = True
    losses: tuple[Loss, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every value is restored and every file could be written."""
        restored = all(row.done for row in self.rows)
        return self.finished and self.read and not self.losses and restored


Message = (
    TaskFailed
    | EventNote
    | CommandFailed
    | FollowsElsewhere
    | HistoryFull
    | InitramfsStale
    | RunsAhead
    | ComparisonsAhead
    | SearchesAhead
    | SearchLonger
)
"""A note with one sentence. ``text/notes`` prints the other notes as lists and tables."""

Note = Message | Traces | RollbackResult


class Advance(Protocol):
    """Called with the name of each step of a phase."""

    def __call__(self, step: str, more: int = 0) -> None:
        """Count the step as done, or add ``more`` steps to the total."""


Stop = Callable[[], bool]
"""Returns whether a stop was requested: writes in progress are finished, and no others started."""


class Phase(StrEnum):
    """A part of an operation whose progress is shown."""

    WRITING = "writing"
    RESTORING = "restoring"
    COMPARING = "comparing"
    PROBING = "probing"
    WRITING_FILE = "writing the file"
    SEARCHING = "searching"


class ComparisonRequest(Struct, frozen=True, kw_only=True):
    """The options for the comparison of changes.

    ``thorough`` takes the time that the configuration allows. If a change cannot be switched, it
    compares all runs before with all runs after. ``shared`` probes shared storage as well.
    ``keep_worse`` keeps regressions. Probes write to a file in ``folder`` instead of its disk, and
    with ``destructive`` to the empty disks among the user's ``names``. ``watched`` is the output of
    `watch --json` with the depth of the running application, ``trace`` a capture of its I/Os.
    """

    thorough: bool = False
    shared: bool = False
    keep_worse: bool = False
    folder: Path | None = None
    destructive: bool = False
    names: tuple[str, ...] = ()
    watched: Path | None = None
    trace: Path | None = None


class Context(Struct, frozen=True, kw_only=True):
    """The caller of an operation: a command, or the daemon.

    ``lock`` makes the lock that protects changes of the machine. Entering it raises LockedError if
    another hbatune holds it. ``note`` reports a note. ``progress`` is entered for a phase with a
    number of steps, and yields the function to call after each. ``patience`` is the time in seconds
    to wait for writers of an interrupted run (SIGKILL needs no more). ``stoppable`` is entered
    around writes and yields ``Stop``. ``nudge`` makes the running daemon scan all devices.
    ``warns`` is whether to report every time that irqbalance may undo a placement, and not only
    after a change. ``clock`` returns seconds since the epoch, for the history.
    """

    lock: Callable[[], AbstractContextManager[Lock]]
    note: Callable[[Note], None]
    progress: Callable[[Phase, int], AbstractContextManager[Advance]] = lambda phase, total: (
        nullcontext(lambda step, more=0: None)
    )
    patience: float = 1.0
    stoppable: Callable[[], AbstractContextManager[Stop]] = lambda: nullcontext(lambda: False)
    nudge: Callable[[], None] = lambda: None
    warns: bool = True
    paths: Paths = field(default_factory=Paths)
    clock: Callable[[], float] = time.time

    def note_event(self, event: Event, subject: Path | str = "", errno: int | None = None) -> None:
        """Report an event (``EventNote``)."""
        self.note(EventNote(event, subject, errno))

    def note_failure(self, task: Task, error: HbatuneError) -> None:
        """Report that a task failed."""
        self.note(TaskFailed(task, error))

    def check_program(self, ran: system.ToolResult | None, *, reloading: bool = False) -> bool:
        """Report a program that ended with an error; return whether it did not (``None``: none)."""
        if ran is None or not ran.code:
            return True
        self.note(CommandFailed(ran, reloading))
        return False

    def attempt(self, task: Task, action: Callable[[], object]) -> bool:
        """Do a part of an operation; return whether it succeeded. An error is a note."""
        try:
            action()
        except HbatuneError as error:
            self.note_failure(task, error)
            return False
        return True

    def make_trial_means(self, act: ActConfig, worker_pool: WorkerPool | None = None) -> Means:
        """Return the means to switch the settings of one target, which needs one worker.

        A rollback that is recorded during the switching stops it.
        """
        guard = rollback_record.load(self.paths).guard(self.paths, named=True)
        return replace(self._make_means(act, worker_pool, guard), workers=1)

    def _make_means(
        self, act: ActConfig, worker_pool: WorkerPool | None, guard: rollback_record.RollbackGuard
    ) -> Means:
        return Means(
            journal=self.paths.journal,
            claims=self.paths.claims,
            spent=self.paths.spent,
            workers=act.workers,
            deadline=act.deadline_seconds,
            worker_pool=worker_pool,
            guard=guard,
        )

    @contextmanager
    def writing(
        self,
        phase: Phase,
        disks: int,
        act: ActConfig,
        worker_pool: WorkerPool,
        guard: rollback_record.RollbackGuard,
    ) -> Iterator[Means]:
        """Yield the means to write to this number of disks, unless the ``guard`` objects."""
        with self.stoppable() as stop, self.progress(phase, disks) as advance:
            means = self._make_means(act, worker_pool, guard)
            yield replace(means, stop=stop, progress=lambda chain: advance(chain.target))
