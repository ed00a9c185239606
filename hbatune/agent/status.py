"""The daemon's status, in a file that `hbatune status` reads.

The daemon saves it at regular intervals. A reader takes it for evidence only until the time by
which the next one must have been saved.
"""

from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.agent.brief import SCHEMA
from hbatune.agent.orders import (
    Handled,
    Order,
    PassReason,
    PassReport,
    SettingChange,
    UnwrittenFile,
)
from hbatune.errors import HbatuneError, UsageError
from hbatune.loader import Figure, Moment, UnusableFileError
from hbatune.processes import clock_id
from hbatune.watch.watch import Alert
from hbatune.workers import Process

_GROWTH = 1024
"""Bytes reserved beyond the size of the current status."""


class LastPass(Struct, frozen=True):
    """The newest pass: its end in seconds since the epoch, its reason, and its number of writes."""

    time: Moment
    reason: PassReason
    written: int


class Times(Struct, frozen=True):
    """Times of the daemon in seconds of CLOCK_MONOTONIC, which does not run during a suspend.

    ``clock`` is the clock's id (``processes.clock_id``). The daemon ``started``, and ``saved`` this
    status. It saves the next one before ``save_due``. ``pass_started`` belongs to the pass in
    progress, and is missing in its first seconds. ``pass_ended`` belongs to the last pass that
    could read the machine. By ``pass_due`` the pass in progress, or else the next one, has ended.
    """

    clock: str
    started: Figure
    saved: Figure
    save_due: Figure
    pass_due: Figure
    pass_started: Figure | None = None
    pass_ended: Figure | None = None


class DaemonState(StrEnum):
    """The state of the daemon for a reader of its status."""

    OK = "ok"
    IDLE = "idle"  # no profile is active, or everything was rolled back
    STARTING = "starting"  # before the end of the first pass
    ATTENTION = "attention"  # it works, and something needs attention
    STALLED = "stalled"  # it does not work: see ``Stall``
    UNKNOWN = "unknown"  # a daemon of another version wrote no times
    NOT_RUNNING = "not_running"


class StallCause(StrEnum):
    """Why a daemon is stalled."""

    SIGNAL = "signal"  # a signal has stopped its process
    STATUS = "status"  # it does not save its status any more
    START = "start"  # it has not finished its first pass
    PASS = "pass"  # the pass in progress does not end
    NO_PASS = "no_pass"  # passes cannot be made
    FILE = "file"  # it cannot write a file


class Stall(Struct, frozen=True):
    """A cause, with its age and the limit that it has passed, or the file."""

    cause: StallCause
    seconds: float | None = None
    limit: float | None = None
    file: UnwrittenFile | None = None


class Ages(Struct, frozen=True):
    """Seconds since a status was saved, the last pass ended, and the current pass started."""

    status: float
    last_pass: float | None
    current_pass: float | None


class Status(Struct, frozen=True):
    """The state of the daemon.

    ``since`` is in seconds since the epoch. ``open`` are the settings that are not as the profile
    wants them, ``error`` is the failure that ended the last pass early, ``mistake`` the reason why
    the configuration in the files is not in force. ``passes`` and ``written`` count since the
    start. ``alerts`` are those that are raised. ``unreadable`` settings could not be read at the
    last pass. ``rolled_back`` is whether nothing is tuned because everything was rolled back,
    ``ready`` whether there was a pass. ``times`` are missing in a status of an older version.
    ``unwritten`` are files that could not be written, ``abandoned`` is the number of processes that
    hang in the kernel and were given up.
    """

    process: Process
    since: Moment
    profile: str | None
    endpoints: int = 0
    open: tuple[SettingChange, ...] = ()
    last: LastPass | None = None
    passes: int = 0
    written: int = 0
    overruns: int = 0
    error: str | None = None
    mistake: str | None = None
    alerts: tuple[Alert, ...] = ()
    unreadable: int = 0
    rolled_back: bool = False
    ready: bool = False
    times: Times | None = None
    unwritten: tuple[UnwrittenFile, ...] = ()
    abandoned: int = 0
    schema: str = SCHEMA

    @property
    def of_this_boot(self) -> bool:
        """Whether it was not left by another boot, in which its process was another one."""
        return self.times is None or self.times.clock.split()[:1] == clock_id().split()[:1]

    @property
    def well(self) -> bool:
        """Whether nothing needs attention."""
        return self.ready and not (
            self.amiss
            or self.error
            or self.mistake
            or self.alerts
            or self.unreadable
            or self.unwritten
            or self.abandoned
        )

    @property
    def amiss(self) -> tuple[SettingChange, ...]:
        """The settings that are not as the profile wants them and will not become so unaided."""
        return tuple(each for each in self.open if each.amiss)

    def news(self, report: PassReport) -> tuple[SettingChange, ...]:
        """Return the changes of a report that were not reported before.

        A ramp is reported once, not at each of its steps.
        """
        known = frozenset(self.open)
        ramping = {each.key for each in self.open if each.handled is Handled.RAMPING}
        return tuple(
            change
            for change in report.changes
            if change not in known
            and not (change.handled is Handled.RAMPING and change.key in ramping)
        )

    def after(self, order: Order, report: PassReport, now: float) -> "Status":
        """Return the status after a pass; a pass over a part leaves the rest as it was.

        ``now`` is in seconds since the epoch.
        """
        # The pass saw nothing, so the settings that were open before are open still.
        if report.subjects is None and report.error is not None:
            return replace(self, error=report.error)
        still = report.open
        if order.names is not None:
            seen = {change.id for change in report.changes} | set(report.looked)
            still = (*(each for each in self.open if each.id not in seen), *still)
        return replace(
            self,
            profile=report.profile,
            endpoints=report.endpoints,
            open=still,
            last=LastPass(now, order.reason, len(report.written)),
            passes=self.passes + 1,
            written=self.written + len(report.written),
            unreadable=report.unreadable,
            rolled_back=False,
            error=report.error,
        )


class DaemonHealth(Struct, frozen=True):
    """The state of a daemon that runs, as a reader of its status sees it."""

    state: DaemonState
    stalls: tuple[Stall, ...] = ()
    ages: Ages | None = None

    @property
    def good(self) -> bool:
        """Whether nothing needs attention."""
        return self.state in (DaemonState.OK, DaemonState.IDLE)


def assess(status: Status, *, clock: str, now: float, stopped: bool) -> DaemonHealth:
    """Compare the times of a status with the current time.

    ``now`` is in seconds of the CLOCK_MONOTONIC with the id ``clock``, and ``stopped`` is whether a
    signal has stopped the daemon.
    """
    stalls = [Stall(StallCause.FILE, file=file) for file in status.unwritten]
    times, ages = status.times, None
    if times is not None and times.clock == clock and times.saved <= now:
        ages = Ages(now - times.saved, _age(now, times.pass_ended), _age(now, times.pass_started))
        stalls = [*_overdue(times, now, stopped=stopped), *stalls]
    elif stopped:
        stalls = [Stall(StallCause.SIGNAL), *stalls]
    if stalls:
        state = DaemonState.STALLED
    elif ages is None:
        state = DaemonState.UNKNOWN
    elif not status.ready:
        state = DaemonState.STARTING
    elif not status.well:
        state = DaemonState.ATTENTION
    else:
        state = DaemonState.OK if status.profile is not None else DaemonState.IDLE
    return DaemonHealth(state, tuple(stalls), ages)


def _overdue(times: Times, now: float, *, stopped: bool) -> Iterator[Stall]:
    if stopped:
        yield Stall(StallCause.SIGNAL, now - times.saved)
    elif now > times.save_due:
        yield Stall(StallCause.STATUS, now - times.saved, times.save_due - times.saved)
    if now > times.pass_due:
        if times.pass_started is not None and times.pass_started < times.pass_due:
            cause, since = StallCause.PASS, times.pass_started
        elif times.pass_ended is not None:
            cause, since = StallCause.NO_PASS, times.pass_ended
        else:
            cause, since = StallCause.START, times.started
        yield Stall(cause, now - since, times.pass_due - since)


def _age(now: float, moment: float | None) -> float | None:
    return None if moment is None else now - moment


class StatusError(HbatuneError):
    """The status cannot be read."""


def load(path: Path) -> Status | None:
    """Return the status of the running daemon, None where none runs.

    Raises StatusError for a file that cannot be read or parsed, UsageError without permission.
    """
    found = last(path)
    return found if found is not None and found.of_this_boot and found.process.alive() else None


def last(path: Path) -> Status | None:
    """Return the status of the last daemon, even if it has ended; raises as ``load`` does."""
    try:
        found = loader.load(path, Status, loader.OWN)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise UsageError(f"the status {path} is root's to read", hint="run it with sudo") from error
    except (OSError, UnusableFileError) as error:
        raise StatusError(
            f"the status {path} cannot be read: {error}",
            hint="restart hbatune.service, which writes it again",
        ) from error
    if found.schema != SCHEMA:
        raise StatusError(
            f"the status {path} is of schema {found.schema}, not {SCHEMA}",
            hint="restart hbatune.service: another version wrote it",
        )
    return found


def save(path: Path, status: Status) -> OSError | None:
    """Write the status for everybody to read.

    If the file system is full, the status goes into the space that is reserved for it and names
    itself as unwritten; this error is returned. Raises OSError if the status cannot be written.
    """
    data, problem = msgspec.json.encode(status), None
    try:
        files.make_folder(path.parent)
        files.publish(path, data, mode=files.READABLE)
    except OSError as error:
        problem = error
        itself = UnwrittenFile(str(path), error.strerror or str(error))
        status = replace(status, unwritten=(*status.unwritten, itself))
        data = msgspec.json.encode(status)
        files.replace(path, data, mode=files.READABLE)
    with suppress(OSError):  # the next status then is missing, which its reader notices
        files.reserve_space(path, len(data) + _GROWTH)
    return problem
