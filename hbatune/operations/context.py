"""What an operation needs from its caller: where its files are, how to lock, wait and report."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field

from hbatune.act.apply import Means
from hbatune.act.paths import Paths
from hbatune.operations.notes import Note
from hbatune.policy.config import ActConfig
from hbatune.workers import Crew

Advance = Callable[[str], None]
"""Called with the name of each step that is done."""

Stop = Callable[[], bool]
"""Whether somebody has asked to stop: what is under way is finished, and nothing more begun."""


class Phase(StrEnum):
    """A part of an operation whose progress is shown."""

    WRITING = "writing"
    RESTORING = "restoring"
    COMPARING = "comparing"
    PROBING = "probing"
    PROBING_BEFORE = "probing before"
    PROBING_AFTER = "probing after"
    WRITING_FILE = "writing the file"


class OperationReporter(Protocol):
    """Tells people what happens while an operation is under way."""

    def note(self, note: Note) -> None:
        """Take what a person should know."""

    def progress(self, phase: Phase, total: int) -> AbstractContextManager[Advance]:
        """Yield what is called with a word for each of ``total`` steps that is done."""


class SilentReporter:
    """A reporter for nobody."""

    def note(self, note: Note) -> None:
        """Drop it."""

    def progress(self, phase: Phase, total: int) -> AbstractContextManager[Advance]:
        """Yield what nobody watches."""
        return nullcontext(lambda word: None)


def _never() -> Iterator[Stop]:
    yield lambda: False


class Context(Struct, frozen=True, kw_only=True):
    """Whom an operation runs for: a command, or the daemon.

    ``lock`` makes the lock to be held while the machine is changed; entering it raises LockedError
    where another hbatune holds it. ``patience`` are the seconds to wait for writers that an
    interrupted run left (SIGKILL needs no more). ``stoppable`` is entered around writes and yields
    whether to stop. ``nudge`` has the daemon that runs look at everything. ``warns``: whoever
    asked wants to know each time that irqbalance may undo what is placed. ``clock`` returns seconds
    since the epoch, for the history.
    """

    lock: Callable[[], AbstractContextManager[object]]
    reporter: OperationReporter
    patience: float = 1.0
    stoppable: Callable[[], AbstractContextManager[Stop]] = contextmanager(_never)
    nudge: Callable[[], None] = lambda: None
    warns: bool = True
    paths: Paths = field(default_factory=Paths)
    clock: Callable[[], float] = time.time

    @contextmanager
    def writing(self, phase: Phase, disks: int, act: ActConfig, crew: Crew) -> Iterator[Means]:
        """Yield the means to have the crew write to so many disks."""
        with self.stoppable() as stop, self.reporter.progress(phase, disks) as advance:
            yield Means(
                journal=self.paths.journal,
                claims=self.paths.claims,
                workers=act.workers,
                deadline=act.deadline_seconds,
                stop=stop,
                progress=lambda chain: advance(chain.target),
                crew=crew,
            )
