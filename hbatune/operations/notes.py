"""What an operation has to say on its way, as values: ``cli/text/notes`` has the words.

What it comes to is what an operation returns; a note is what a person should know beside that.
"""

from enum import Enum, auto
from pathlib import Path

from msgspec import Struct

from hbatune.act.claims import Claim
from hbatune.act.journal import Journal
from hbatune.act.rollback import Restored
from hbatune.act.system import Ran
from hbatune.errors import HbatuneError
from hbatune.facts.irqbalance import Irqbalance
from hbatune.facts.model import Machine
from hbatune.policy.site_names import Unmatched


class Task(Enum):
    """Part of an operation that may fail while the rest goes on."""

    RECORD_ROLLBACK = auto()
    LIFT_ROLLBACK = auto()
    READ_CONFIGURATION = auto()
    DEACTIVATE_PROFILE = auto()
    FORGET_PROFILE = auto()
    SAVE_JOURNAL = auto()
    SAVE_HISTORY = auto()
    PLACE_RULES = auto()
    REMOVE_RULES = auto()
    TELL_IRQBALANCE = auto()
    FIT_MEMORY = auto()


class TaskFailed(Struct, frozen=True):
    """A task failed, and the operation goes on without it."""

    task: Task
    error: HbatuneError


class CommandFailed(Struct, frozen=True):
    """A program of the system's ended with an error."""

    ran: Ran


class NothingStarts(Struct, frozen=True):
    """systemd does not run here, so that nothing starts this unit."""

    unit: str


class RulesNotLoaded(Struct, frozen=True):
    """The udev rules are in place, but udev could not be made to read them."""

    ran: Ran


class FileEdited(Struct, frozen=True):
    """A file is not as hbatune wrote it, and is left; ``tunes`` where it still sets disks."""

    path: Path
    tunes: bool = False


class FollowsElsewhere(Struct, frozen=True):
    """irqbalance runs and does not ask hbatune's ``script``: it may move what was placed."""

    irqbalance: Irqbalance
    script: Path


class HistoryFull(Struct, frozen=True):
    """So many of the oldest results had to go to make room."""

    gone: int


class OptionsWritten(Struct, frozen=True):
    """The module options for the next load stand in this file."""

    path: Path


class OptionsRemoved(Struct, frozen=True):
    """The file of the module options is gone."""

    path: Path


class OptionsNotRemoved(Struct, frozen=True):
    """The file of the module options could not be removed."""

    path: Path
    errno: int


class InitramfsStale(Struct, frozen=True):
    """An initramfs that loads these ``modules`` has to be rebuilt for their options to count.

    ``of_root``: it does load them, since the root disk needs them. ``command`` rebuilds it, where
    that is known.
    """

    modules: tuple[str, ...]
    command: str | None
    of_root: bool = False


class EarlierBoot(Struct, frozen=True):
    """The journal is of an earlier boot, whose values a reboot has put back."""

    dropped: bool
    """Whether it is replaced now."""


class Leftovers(Struct, frozen=True):
    """What earlier runs may have left here: ``stuck`` are writers that are still in the kernel."""

    journal: Journal
    machine: Machine
    stuck: tuple[Claim, ...]


class UnmatchedNames(Struct, frozen=True):
    """Names in [site] that mean nothing on this machine."""

    names: tuple[Unmatched, ...]


class RunsAhead(Struct, frozen=True):
    """So many runs are going to be made on disks, which take so many seconds."""

    runs: int
    seconds: float
    write: bool
    """Whether they destroy what is there."""


class FileRunsAhead(Struct, frozen=True):
    """So many runs are going to be made on a file of ``size`` bytes."""

    runs: int
    size: int
    seconds: float


class ProbesAhead(Struct, frozen=True):
    """So many endpoints are going to be probed before and after, which takes so long."""

    endpoints: int
    seconds: float


class NoTimeToProbe(Struct, frozen=True):
    """These endpoints are not probed: it would take too long."""

    targets: tuple[str, ...]


class ComparisonsAhead(Struct, frozen=True):
    """Endpoints are going to be compared with and without the change, ``pairs`` times each.

    It takes about ``seconds``, and never more than ``limit``.
    """

    endpoints: int
    pairs: int
    seconds: float
    limit: int


class Stopped(Struct, frozen=True):
    """Somebody asked to stop: nothing more is written. ``compared``: all was written by then."""

    compared: bool


class RolledBack(Struct, frozen=True):
    """A rollback that was part of another operation has come to this."""

    rows: tuple[Restored, ...]
    machine: Machine


class ValuesLeft(Struct, frozen=True):
    """Not everything could be put back, so that hbatune's own state has to stay."""


class FileGone(Struct, frozen=True):
    """A file that hbatune had placed is gone."""

    path: Path


TimeAhead = RunsAhead | FileRunsAhead | ProbesAhead | NoTimeToProbe | ComparisonsAhead
"""What measuring is going to take."""

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
    | Leftovers
    | UnmatchedNames
    | Stopped
    | RolledBack
    | ValuesLeft
    | FileGone
)
