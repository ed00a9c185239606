"""The state of the daemon and of its host, as `hbatune status` reports it.

A host without a daemon has no status, so this module does not import the types of ``status``.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.plan.rows import HostLook, State

if TYPE_CHECKING:
    from hbatune.agent.orders import UnwrittenFile
    from hbatune.agent.status import Status, Times

SCHEMA = "hbatune.status/1"


class DaemonState(StrEnum):
    """The state of the daemon for a reader of its status."""

    OK = "ok"
    IDLE = "idle"  # no profile is active, or everything was rolled back
    STARTING = "starting"  # before the end of the first pass
    ATTENTION = "attention"  # it works, but something needs attention
    STALLED = "stalled"  # it does not work: see ``Stall``
    UNKNOWN = "unknown"  # a daemon of another version wrote no times
    NOT_RUNNING = "not_running"


class StallCause(StrEnum):
    """The reason why a daemon is stalled."""

    SIGNAL = "signal"  # a signal has stopped its process
    STATUS = "status"  # it no longer saves its status
    START = "start"  # it has not finished its first pass
    PASS = "pass"  # the pass in progress does not end
    NO_PASS = "no_pass"  # passes cannot be made
    FILE = "file"  # it cannot write a file


class Stall(Struct, frozen=True):
    """A cause, with its age and the limit that it exceeds, or with the file."""

    cause: StallCause
    seconds: float | None = None
    limit: float | None = None
    file: "UnwrittenFile | None" = None


class Ages(Struct, frozen=True):
    """Seconds since a status was saved, the last pass ended, and the current pass started."""

    status: float
    last_pass: float | None
    current_pass: float | None


class DaemonHealth(Struct, frozen=True):
    """The state of a running daemon for a reader of its status."""

    state: DaemonState
    stalls: tuple[Stall, ...] = ()
    ages: Ages | None = None

    @property
    def good(self) -> bool:
        """Whether nothing needs attention."""
        return self.state in (DaemonState.OK, DaemonState.IDLE)


def assess_health(
    status: "Status", *, clock: str, current_time: float, stopped: bool
) -> DaemonHealth:
    """Compare the times of a status with the current time.

    ``current_time`` is in seconds of the CLOCK_MONOTONIC with the id ``clock``. ``stopped`` is
    whether a signal has stopped the daemon.
    """
    stalls = [Stall(StallCause.FILE, file=file) for file in status.unwritten]
    times, ages = status.times, None
    if times is not None and times.clock == clock and times.saved <= current_time:
        ended, started = times.pass_ended, times.pass_started
        ages = Ages(
            current_time - times.saved,
            None if ended is None else current_time - ended,
            None if started is None else current_time - started,
        )
        stalls = [*_find_stalls(times, current_time, stopped=stopped), *stalls]
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


def _find_stalls(times: "Times", current_time: float, *, stopped: bool) -> Iterator[Stall]:
    if stopped:
        yield Stall(StallCause.SIGNAL, current_time - times.saved)
    elif current_time > times.save_due:
        yield Stall(StallCause.STATUS, current_time - times.saved, times.save_due - times.saved)
    if current_time > times.pass_due:
        if times.pass_started is not None and times.pass_started < times.pass_due:
            cause, since = StallCause.PASS, times.pass_started
        elif times.pass_ended is not None:
            cause, since = StallCause.NO_PASS, times.pass_ended
        else:
            cause, since = StallCause.START, times.started
        yield Stall(cause, current_time - since, times.pass_due - since)


def assess_host(look: HostLook, health: DaemonHealth, status: "Status | None") -> str:
    """Return a key of ``templates/status.toml``: tuned if a complete comparison shows no drift."""
    counts, changes = look.counts, () if status is None else status.amiss
    running = status is not None
    unset = look.unfinished or (status is not None and status.failing)
    conditions = (
        (look.mistake is not None, "mistake"),
        (look.rolled_back and bool(look.values), "half_back"),
        (look.rolled_back, "rolled_back"),
        (health.state is DaemonState.STALLED, "stalled"),
        (health.state is DaemonState.STARTING, "starting"),
        (look.hidden is not None or health.state is DaemonState.UNKNOWN, "unknown"),
        (look.profile is None, "not_set_up"),
        (unset or bool(counts.get(State.UNREADABLE)), "incomplete"),
        (bool(changes or counts.get(State.DRIFT)), "drifted"),
        (not counts.get(State.OK), "not_compared"),
        (status is not None and bool(status.alerts), "alerting"),
        (running and not (look.findings or {}).keys() <= {"info"}, "findings"),
        (running, "tuned"),
        (look.failed, "failed"),
        (look.installed, "stopped"),
    )
    return next((state for holds, state in conditions if holds), "applied")
