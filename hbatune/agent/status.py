"""What the daemon has to say of itself, in a file that `hbatune status` reads."""

from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import files
from hbatune.agent.orders import Handled, Order, PassReason, PassReport, SettingChange
from hbatune.errors import HbatuneError, UsageError
from hbatune.watch.watch import Alert
from hbatune.workers import Process

SCHEMA = "hbatune.status/1"


class LastPass(Struct, frozen=True):
    """The newest pass: when it ended (seconds since the epoch), why it was made, what it wrote."""

    time: float
    reason: PassReason
    written: int


class Status(Struct, frozen=True):
    """How the daemon is doing.

    ``since`` is in seconds since the epoch. ``open`` is what is not as the profile wants it,
    ``error`` what ended the last pass early, ``mistake`` why the configuration that is there now
    is not the one in force. ``passes`` and ``written`` count since the start. ``alerts`` are those
    that are raised. ``unreadable`` settings could not be read at the last pass.
    ``rolled_back`` is whether nothing is tuned since everything was rolled back, ``ready`` whether
    there was a pass.
    """

    process: Process
    since: float
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
        """Whether there is nothing that somebody should look at."""
        return self.ready and not (
            self.amiss or self.error or self.mistake or self.alerts or self.unreadable
        )

    @property
    def amiss(self) -> tuple[SettingChange, ...]:
        """What is not as the profile wants it and does not become so by itself."""
        return tuple(each for each in self.open if each.amiss)

    def news(self, report: PassReport) -> tuple[SettingChange, ...]:
        """Return the changes of a report that were not said yet.

        A ramp is said once, not at each of its steps.
        """
        ramping = {each.key for each in self.open if each.handled is Handled.RAMPING}
        return tuple(
            each
            for each in report.changes
            if each not in self.open
            and not (each.handled is Handled.RAMPING and each.key in ramping)
        )

    def after(self, order: Order, report: PassReport, now: float) -> "Status":
        """Return the status after a pass; one over a part says nothing of the rest.

        ``now`` is in seconds since the epoch.
        """
        if report.machine is None and report.error is not None:
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
    """Return the status of the daemon that runs, None where none does.

    StatusError for a file that cannot be read or makes no sense, UsageError for another user.
    """
    found = last(path)
    return found if found is not None and found.process.alive() else None


def last(path: Path) -> Status | None:
    """Return the status of the last daemon, be it gone; raises as ``load`` does."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Status)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise UsageError(f"the status {path} is root's to read", hint="run it with sudo") from error
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StatusError(
            f"the status {path} cannot be read: {error}",
            hint="restart hbatune.service, which writes it again",
        ) from error
    return found


def save(path: Path, status: Status) -> None:
    """Write the status. OSError where that cannot be done."""
    files.replace(path, msgspec.json.encode(status), mode=0o600)
