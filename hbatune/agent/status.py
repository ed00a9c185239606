"""The daemon's status, in a file that `hbatune status` reads."""

from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files
from hbatune.agent.brief import SCHEMA
from hbatune.agent.orders import Handled, Order, PassReason, PassReport, SettingChange
from hbatune.errors import HbatuneError, UsageError
from hbatune.loader import Moment, UnusableFileError
from hbatune.watch.watch import Alert
from hbatune.workers import Process


class LastPass(Struct, frozen=True):
    """The newest pass: its end in seconds since the epoch, its reason, and its number of writes."""

    time: Moment
    reason: PassReason
    written: int


class Status(Struct, frozen=True):
    """The state of the daemon.

    ``since`` is in seconds since the epoch. ``open`` are the settings that are not as the profile
    wants them, ``error`` is the failure that ended the last pass early, ``mistake`` the reason why
    the configuration in the files is not in force. ``passes`` and ``written`` count since the
    start. ``alerts`` are those that are raised. ``unreadable`` settings could not be read at the
    last pass. ``rolled_back`` is whether nothing is tuned because everything was rolled back,
    ``ready`` whether there was a pass.
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
    schema: str = SCHEMA

    @property
    def well(self) -> bool:
        """Whether nothing needs attention."""
        return self.ready and not (
            self.amiss or self.error or self.mistake or self.alerts or self.unreadable
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
            each
            for each in report.changes
            if each not in known and not (each.handled is Handled.RAMPING and each.key in ramping)
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
            seen = {each.id for each in report.changes} | set(report.looked)
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


class StatusError(HbatuneError):
    """The status cannot be read."""


def load(path: Path) -> Status | None:
    """Return the status of the running daemon, None where none runs.

    Raises StatusError for a file that cannot be read or parsed, UsageError without permission.
    """
    found = last(path)
    return found if found is not None and found.process.alive() else None


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


def save(path: Path, status: Status) -> None:
    """Write the status, for everybody to read. Raises OSError where that fails."""
    files.replace(path, msgspec.json.encode(status), mode=files.READABLE)
