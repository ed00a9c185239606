"""The daemon's status, which it saves regularly in a file for `hbatune status`."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.act import files, rollback_record
from hbatune.act.paths import Paths
from hbatune.agent import orders
from hbatune.agent.host_state import SCHEMA
from hbatune.errors import HbatuneError
from hbatune.loader import Figure, LongText, Moment, ShortText
from hbatune.plan.rows import HostLook, ServingAdapter, State
from hbatune.processes import read_clock_id
from hbatune.watch.watch import Alert
from hbatune.workers import Process

_UNSET = (orders.Handled.FAILED, orders.Handled.WAITING)
_GROWTH = 1024
"""Bytes reserved beyond the size of the current status."""


class LastPass(Struct, frozen=True):
    """The latest pass: its end in seconds since the epoch, its reason, and its number of writes."""

    time: Moment
    reason: orders.PassReason
    written: int


class Times(Struct, frozen=True):
    """Times of the daemon in seconds of CLOCK_MONOTONIC, which does not run during a suspend.

    ``clock`` is the clock's id (``processes.read_clock_id``). The daemon ``started``, and ``saved``
    this status. It saves the next status before ``save_due``. ``pass_started`` belongs to the pass
    in progress, and is missing in its first seconds. ``pass_ended`` belongs to the last pass that
    could read the machine. The pass in progress, or else the next one, must end by ``pass_due``.
    """

    clock: ShortText
    started: Figure
    saved: Figure
    save_due: Figure
    pass_due: Figure
    pass_started: Figure | None = None
    pass_ended: Figure | None = None


class Status(Struct, frozen=True):
    """The state of the daemon.

    ``since`` is in seconds since the epoch. ``open`` are the settings that differ from the profile
    values. ``error`` is the failure that ended the last pass early. ``mistake`` is the reason why
    the configuration in the files is not active. ``passes`` and ``written`` count since the start.
    ``alerts`` are the active alerts. ``unreadable`` is the number of settings that the last pass
    could not read. ``counts``, ``skipped`` and ``adapters`` belong to the last full pass, whose
    handled drift counts as ok (``plan.rows.count_settings``). ``rolled_back`` is whether nothing is
    tuned because everything was rolled back. ``ready`` is whether a pass has ended. ``times`` are
    missing in a status of an older version. ``unwritten`` are files that could not be written.
    ``findings`` of the checks, by severity, and ``lost_rules``, other udev rules without effect,
    were ``checked`` at this time, without the kernel's log. ``last_profile`` was active before a
    rollback. ``abandoned`` is the number of processes that hang in the kernel. ``doubts`` are the
    errors of rules without effect. ``lost_writes`` counts the times at which the kernel dropped
    events of writes, whose writers are unknown.
    """

    process: Process
    since: Moment
    profile: ShortText | None
    endpoints: int = 0
    open: tuple[orders.SettingChange, ...] = ()
    last: LastPass | None = None
    passes: int = 0
    written: int = 0
    overruns: int = 0
    error: LongText | None = None
    mistake: LongText | None = None
    alerts: tuple[Alert, ...] = ()
    unreadable: int = 0
    rolled_back: bool = False
    ready: bool = False
    times: Times | None = None
    unwritten: tuple[orders.UnwrittenFile, ...] = ()
    abandoned: int = 0
    doubts: tuple[LongText, ...] = ()
    counts: dict[ShortText, int] = {}
    skipped: tuple[LongText, ...] = ()
    adapters: tuple[ServingAdapter, ...] = ()
    findings: dict[ShortText, int] | None = None
    lost_rules: tuple[LongText, ...] = ()
    checked: Moment | None = None
    last_profile: ShortText | None = None
    lost_writes: int = 0
    schema: ShortText = SCHEMA

    @property
    def of_this_boot(self) -> bool:
        """Whether this boot's daemon wrote it. A process of another boot is a different one."""
        return self.times is None or self.times.clock.split()[:1] == read_clock_id().split()[:1]

    @property
    def well(self) -> bool:
        """Whether nothing needs attention."""
        problems = (self.amiss, self.error, self.mistake, self.alerts, self.unreadable)
        return self.ready and not any((*problems, self.unwritten, self.abandoned, self.doubts))

    @property
    def amiss(self) -> tuple[orders.SettingChange, ...]:
        """The settings that differ from the profile values and need attention."""
        return tuple(change for change in self.open if change.amiss)

    @property
    def failing(self) -> bool:
        """Whether a pass failed, or settings could not be set."""
        unset = any(change.handled in _UNSET for change in self.amiss)
        return bool(unset or self.error or self.abandoned)

    def news(self, report: orders.PassReport) -> tuple[orders.SettingChange, ...]:
        """Return the new changes of a report. A ramp is reported once, not at each step."""
        previous = frozenset(self.open)
        ramping = {change.key for change in self.open if change.handled is orders.Handled.RAMPING}
        new = []
        for change in report.changes:
            continues_ramp = change.handled is orders.Handled.RAMPING and change.key in ramping
            if change not in previous and not continues_ramp:
                new.append(change)
        return tuple(new)

    def after(self, order: orders.Order, report: orders.PassReport, epoch: float) -> "Status":
        """Return the status after a pass. A partial pass keeps the state of other devices."""
        # The pass has read nothing, so all open settings are still open.
        if report.subjects is None and report.error is not None:
            return replace(self, error=report.error)
        open_changes, has_checked = report.open, report.findings is not None
        if order.names is not None:
            scanned_ids = {change.id for change in report.changes} | set(report.looked)
            remaining = (change for change in self.open if change.id not in scanned_ids)
            open_changes = (*remaining, *open_changes)
        return replace(
            self,
            profile=report.profile,
            endpoints=report.endpoints,
            open=open_changes,
            last=LastPass(epoch, order.reason, len(report.written)),
            passes=self.passes + 1,
            written=self.written + len(report.written),
            unreadable=report.unreadable,
            counts=report.counts if report.whole else self.counts,
            skipped=report.skipped if report.whole else self.skipped,
            adapters=report.adapters if report.whole else self.adapters,
            findings=report.findings if has_checked else self.findings,
            lost_rules=report.lost_rules if has_checked else self.lost_rules,
            checked=epoch if has_checked else self.checked,
            rolled_back=False,
            error=report.error,
        )


def make_host_look(status: Status, paths: Paths) -> HostLook:
    """Return the tuning of the host by the daemon's last pass, and by hbatune's records."""
    from hbatune.act import journal  # not for the daemon
    from hbatune.facts.assembly import read_boot_id

    counts = Counter(status.counts)
    counts[State.OK] -= len(status.open)
    counts[State.DRIFT] += len(status.amiss)
    counts[State.UNREADABLE] = status.unreadable
    values = None
    with suppress(HbatuneError):  # if this user may not read the journal
        values = len(journal.load(paths.journal, read_boot_id())[0].entries)
    return HostLook(
        profile=status.profile,
        mistake=status.mistake or next(iter(status.doubts), None),
        counts=+counts,
        skipped=status.skipped,
        adapters=status.adapters,
        # The daemon may not have noticed a rollback yet.
        rolled_back=status.rolled_back or rollback_record.load(paths).covers_all,
        values=values,
        findings=status.findings,
        lost_rules=status.lost_rules,
        checked=status.checked,
    )


class StatusError(HbatuneError):
    """The status cannot be read."""


def load_status(path: Path) -> Status | None:
    """Return the running daemon's status, or None. Raises StatusError, and UsageError if denied."""
    status = load_last_status(path)
    return status if status is not None and status.of_this_boot and status.process.alive() else None


def load_last_status(path: Path) -> Status | None:
    """Return the last daemon's status, even if it has ended. Raises as ``load_status`` does."""
    return loader.StateFile(
        "the status",
        Status,
        SCHEMA,
        loader.STATE_BOUNDS,
        StatusError,
        hint="restart hbatune.service, which writes it again",
        version_hint="restart hbatune.service: another version wrote it",
    ).load(path)


def save(path: Path, status: Status) -> OSError | None:
    """Write the status, readable for all users.

    If the file system is full, the status is written into its reserved space and lists itself as
    unwritten, and this error is returned. Raises OSError if the status cannot be written.
    """
    data, problem = msgspec.json.encode(status), None
    try:
        files.make_folder(path.parent)
        files.publish(path, data, mode=files.READABLE_MODE)
    except OSError as error:
        problem = error
        itself = orders.UnwrittenFile(str(path), error.strerror or str(error))
        status = replace(status, unwritten=(*status.unwritten, itself))
        data = msgspec.json.encode(status)
        files.replace(path, data, mode=files.READABLE_MODE)
    with suppress(OSError):  # then the next status is missing, which its reader notices
        files.reserve_space(path, len(data) + _GROWTH)
    return problem
