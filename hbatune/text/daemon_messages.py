"""Messages of the daemon: entries for systemd's journal, and its status in one line."""

import errno
import os
import time
from collections.abc import Collection, Mapping

from hbatune.act.paths import Paths
from hbatune.agent import orders, status
from hbatune.agent.orders import ChangeOrigin, Handled, PassReason, PassReport, SettingChange
from hbatune.agent.service import ServiceManager
from hbatune.agent.status import Status
from hbatune.errors import UsageError
from hbatune.policy.config import UnmatchedName
from hbatune.shipped import load_texts
from hbatune.text.basic_output import format_count, format_second
from hbatune.watch.alerts import AlertChange
from hbatune.watch.watch import AlertEvent

ERROR, WARNING, NOTICE, INFO = 3, 4, 5, 6
"""Priorities of syslog(3)."""


class JournalReporter:
    """Reports the daemon's work to systemd's journal and to `systemctl status`."""

    def __init__(self, by: ServiceManager) -> None:
        self._by = by
        # Read at the start: a message must not depend on reading one more file.
        self._texts = load_texts("notes.toml")
        self._unsaved = False
        self._unmatched: frozenset[UnmatchedName] = frozenset()

    def began(self, profile: str | None, doubts: Collection[str]) -> None:
        """Report that the daemon is ready, and the rules in doubt."""
        state = f"profile {profile}" if profile else "no profile is active, so nothing is tuned"
        self._log("ready", INFO, f"ready: {state}")
        for doubt in doubts:
            self._log("configured", ERROR, describe_doubt(doubt))

    def passed(self, reason: PassReason, report: PassReport) -> None:
        """Report the end of a pass."""
        if report.error is not None:
            hint = f" ({report.hint})" if report.hint else ""
            prefix = "the pass failed: " if report.subjects is None else ""
            self._log("failed", ERROR, f"{prefix}{report.error}{hint}")
        for change in report.changes:
            self._log_change(reason, change)
        if report.subjects is not None:
            self._log_unmatched(report.unmatched)
        if reason in (PassReason.RELOAD, PassReason.CONFIGURED, PassReason.OVERRUN):
            cause = self._texts["PassReason"][reason.name]
            count = format_count(len(report.written), "value")
            self._log("looked", INFO, f"all settings were scanned {cause}, {count} set")

    def left(self, changes: Collection[SettingChange]) -> None:
        """Report settings that another tool keeps changing back. The daemon now skips them."""
        for change in changes:
            text = self._texts["journal"]["left"].format(change=change)
            self._log("left", WARNING, text, _make_fields(change))

    def overrun(self) -> None:
        """Report lost events, which cause a full scan."""
        self._log("overrun", WARNING, self._texts["journal"]["overrun"])

    def reloaded(self, profile: str | None, mistake: UsageError | None) -> None:
        """Report a new configuration, or the error because of which the old one remains active."""
        if mistake is None:
            text = f"the configuration was read again: {profile or 'no profile'}"
            self._log("configured", INFO, text)
            return
        text = "invalid configuration; the last valid one remains active: "
        hint = f" ({mistake.hint})" if mistake.hint else ""
        self._log("configured", ERROR, f"{text}{mistake.message}{hint}")

    def alerted(self, event: AlertEvent) -> None:
        """Report an alert that was raised or cleared."""
        from hbatune.text.watch_view import format_event  # rare, and it imports the tables

        alert, raised = event.alert, event.change is AlertChange.RAISED
        fields = {"HBATUNE_TARGET": alert.target, "HBATUNE_ID": alert.id}
        fields["HBATUNE_ALERT"] = str(alert.condition)
        if raised:
            self._log("raised", WARNING, format_event(event), fields)
        else:
            self._log("cleared", NOTICE, format_event(event), fields)

    def failed(self, problem: str) -> None:
        """Report why metrics cannot be published, or an internal error of a pass or a worker."""
        self._log("failed", ERROR, problem)

    def unnamed(self, problem: str) -> None:
        """Report why the writers of settings are not named."""
        self._log("unnamed", NOTICE, self._texts["journal"]["unnamed"].format(problem))

    def restored(self, problem: str | None) -> None:
        """Report that all values were restored at the end, or the reason why not."""
        if problem is None:
            self._log("restored", INFO, "all values restored")
        else:
            hint = "`hbatune rollback` restores the others"
            self._log("failed", ERROR, f"not all values were restored: {problem} ({hint})")

    def ended(self) -> None:
        """Report that the daemon stops."""
        self._log("stopped", INFO, "stopping")

    def save(self, daemon_status: Status) -> None:
        """Save the status file, and send the status line to systemd."""
        self._by.notify(f"STATUS={format_status_line(daemon_status)}")
        try:
            problem = status.save(Paths.status, daemon_status)
        except OSError as error:
            problem = error
        # Logged once for each series of failures: the status is saved repeatedly.
        if problem is not None and not self._unsaved:
            self._log("failed", ERROR, f"{Paths.status} cannot be written: {problem.strerror}")
        self._unsaved = problem is not None

    def _log_unmatched(self, names: Collection[UnmatchedName]) -> None:
        """Log each name in [site] that matches no device, once until it matches one."""
        for name in names:
            if name not in self._unmatched:
                # Rarely needed, and heavy.
                from hbatune.text.leftovers import describe_unmatched
                from hbatune.text.terminal import make_printable

                self._log("configured", WARNING, make_printable(describe_unmatched(name)))
        self._unmatched = frozenset(names)

    def _log_change(self, reason: PassReason, change: SettingChange) -> None:
        value = f"{change.target}: {change.setting} {change.before} → {change.value}"
        fields = _make_fields(change)
        match change.handled:
            case Handled.WRITTEN:
                is_drift = change.origin is ChangeOrigin.DRIFT
                is_drift &= reason in (PassReason.AUDIT, PassReason.EVENT)
                why: str = self._texts["PassReason"][reason.name]
                # At the start, the reason is always the start itself.
                if reason is not PassReason.START:
                    why = self._texts["ChangeOrigin"].get(change.origin.name, why)
                text = f"{value}, {why}{_add_writer(change)} ({change.rule})"
                self._log("drifted" if is_drift else "tuned", NOTICE, text, fields)
            case Handled.FAILED:
                cause = os.strerror(change.errno) if change.errno else str(change.outcome)
                why = change.reason or cause
                text = f"{value} failed: {why} ({change.rule})"
                if change.retry is not None:
                    retry_time = time.strftime("%H:%M:%S", time.localtime(change.retry.next))
                    text += f", try {change.retry.tries}, the next one at {retry_time}"
                self._log("failed", WARNING, text, fields)
            case Handled.RAMPING:
                text = f"{change.target}: {describe_ramp(change)}"
                self._log("ramping", NOTICE, text, fields)
            case Handled.REPORTED:
                text = f"{change.target}: {change.setting} is {change.before}, not {change.value}"
                text = f"{text}{_add_writer(change)} ({change.rule})"
                self._log("drifted", WARNING, text, fields)
            # Not logged: one entry per pass would fill the journal. `hbatune status` shows them.
            case Handled.LEFT | Handled.HELD | Handled.WAITING:
                pass

    def _log(
        self, event: str, priority: int, message: str, fields: Mapping[str, str] | None = None
    ) -> None:
        id = self._texts["message_ids"][event]
        self._by.log(message, priority, {"MESSAGE_ID": id, **(fields or {})})


def format_status_line(status: Status) -> str:
    """Return the daemon's status in one line."""
    if status.error is not None:
        return f"the last pass failed: {status.error}"
    if not status.ready:
        return "looking at everything for the first time"
    if status.rolled_back:
        return "everything was rolled back, so nothing is tuned"
    if status.profile is None:
        return "no profile is active, so nothing is tuned"
    parts = [f"profile {status.profile}, {format_count(status.endpoints, 'endpoint')}"]
    if status.amiss:
        expected = "it should be" if len(status.amiss) == 1 else "they should be"
        parts.append(f"{format_count(len(status.amiss), 'setting')} not as {expected}")
    if ramping := len(status.open) - len(status.amiss):
        parts.append(f"{format_count(ramping, 'queue depth')} that the kernel raises again")
    if status.unreadable:
        parts.append(f"{format_count(status.unreadable, 'setting')} that could not be read")
    if status.alerts:
        parts.append(format_count(len(status.alerts), "alert"))
    if status.mistake is not None or status.doubts:
        parts.append("the configuration has a mistake")
    if status.unwritten:
        parts.append(f"{format_count(len(status.unwritten), 'file')} that could not be written")
    return ", ".join(parts)


def describe_doubt(doubt: str) -> str:
    """Describe a rule with an invalid citation, which the daemon ignores."""
    return f"a rule is invalid, so its settings stay unchanged: {doubt}"


def describe_ramp(change: SettingChange) -> str:
    """Describe a queue depth that the kernel lowered, how it rises again, and how to avoid this."""
    pace = "" if change.step_seconds is None else f" every {change.step_seconds:g} s"
    return str(load_texts("notes.toml")["journal"]["ramp"].format(change=change, pace=pace))


def describe_writer(writer: orders.Writer) -> str:
    """Describe the last writer of a setting, and the udev rules that may have caused the write.

    The unit or cgroup is the kernel's proof. A process chooses its name, which is in quotes.
    """
    time = "" if writer.time is None else format_second(writer.time)
    place, name = writer.unit or writer.cgroup, (writer.comm or "").replace('"', "'")
    quoted = f' ("{name}")' if name else ""
    text: str = load_texts("notes.toml")["WriterKind"][writer.kind.name]
    text = text.format(writer=writer, place=place, name=name, quoted=quoted, time=time)
    return f"{text}, as in {' or '.join(writer.rules)}" if writer.rules else text


def _add_writer(change: SettingChange) -> str:
    """Return the writer after a colon, unless the origin of the change tells as much."""
    is_told = change.origin is ChangeOrigin.RESET and change.writer and not change.writer.pid
    return f": {describe_writer(change.writer)}" if change.writer and not is_told else ""


def _make_fields(change: SettingChange) -> dict[str, str]:
    fields = {
        "HBATUNE_TARGET": change.target,
        "HBATUNE_ID": change.id,
        "HBATUNE_SETTING": change.setting,
        "HBATUNE_FROM": str(change.before),
        "HBATUNE_TO": str(change.value),
        "HBATUNE_RULE": change.rule,
    }
    if writer := change.writer:
        fields["HBATUNE_WRITER"] = writer.unit or writer.cgroup or str(writer.kind)
    if change.errno:
        # Some errnos have no name (ENOTSUPP, 524).
        fields["HBATUNE_ERRNO"] = errno.errorcode.get(change.errno, str(change.errno))
    return fields
