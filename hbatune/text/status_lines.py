"""Print the status of the daemon.

A monitoring agent runs `status` often, and most daemons have no alerts, verdicts or stalls. The
modules for these are therefore imported only if needed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hbatune.agent.orders import Handled, SettingChange
from hbatune.agent.status import DaemonHealth, DaemonState, Stall, StallCause, Status
from hbatune.facts.names import natural_key
from hbatune.text.basic_output import (
    describe_last_pass,
    describe_running,
    format_count,
    format_second,
    format_sentence,
)
from hbatune.text.daemon_messages import describe_doubt, describe_ramp, format_status_line
from hbatune.text.tables import Table, make_columns
from hbatune.text.terminal import print_line, show_table

if TYPE_CHECKING:
    from hbatune.probe.history import Record


_COLUMNS = make_columns("id TARGET | id SETTING | value CURRENT | value WANTED | reason WHY NOT")

_WHY = {
    Handled.FAILED: "it could not be set",
    Handled.WAITING: "it could not be set",
    Handled.REPORTED: "reported only, as [daemon.drift_of] says",
    Handled.LEFT: "another program keeps setting it back",
    Handled.HELD: "a measurement is using it",
}


_RESTART = "`journalctl -u hbatune` may show the cause; `systemctl restart hbatune` restarts it"
_REMEDIES = {
    StallCause.SIGNAL: "`systemctl restart hbatune` restarts it, `kill -CONT` lets it continue",
    StallCause.STATUS: _RESTART,
    StallCause.START: _RESTART,
    StallCause.PASS: "`hbatune check` shows hung disks; `systemctl restart hbatune` ends the pass",
    StallCause.NO_PASS: "another hbatune may hold the lock, or every pass fails: "
    "`journalctl -u hbatune` shows errors",
    StallCause.FILE: "free space there or make it writable",
}


def show_status(status: Status, health: DaemonHealth, verdicts: "Sequence[Record]") -> None:
    """Print the status of a running daemon, and the latest verdicts."""
    for stall in health.stalls:
        remedy = _REMEDIES[stall.cause]
        print_line(f"The daemon is stalled: {_describe_stall(stall, status)} ({remedy}).")
    if health.state is DaemonState.UNKNOWN:
        print_line(
            "Cannot tell whether the daemon works: its status has no times of this boot "
            "(`systemctl restart hbatune` starts the installed version)."
        )
    if status.abandoned:
        processes = format_count(status.abandoned, "process", "processes")
        hang = "hangs" if status.abandoned == 1 else "hang"
        command = "`ps -eo pid,stat,wchan,args | grep hbatune` shows state D"
        print_line(f"{processes} of the daemon {hang} in the kernel ({command}).")
    print_line(format_sentence(format_status_line(status)))
    print_line(describe_running(status.since, status.passes, status.written))
    if status.last is not None:
        print_line(describe_last_pass(status.last.time, status.last.reason))
    if status.mistake is not None:
        print_line(
            f"The configuration is invalid; the last valid one remains active: {status.mistake}"
        )
    for doubt in status.doubts:
        print_line(format_sentence(describe_doubt(doubt)))
    if status.open:
        from hbatune.text.plan_tables import group_equal_rows

        table = Table(_COLUMNS)
        changes = sorted(status.open, key=lambda change: natural_key(change.target))
        for change in group_equal_rows(changes, _explain_unset):
            values = [str(change.before), str(change.value), _explain_unset(change)]
            table.rows.append([change.target, change.setting, *values])
        show_table(table)
    for alert in status.alerts:
        from hbatune.text.watch_view import format_alert

        print_line(f"Alert since {format_second(alert.raised)}: {format_alert(alert)}.")
    for record in verdicts:
        from hbatune.text.verdict_tables import format_verdict

        assert record.proof is not None
        settings = " ".join(record.proof.settings)
        verdict = format_verdict(record.proof.verdict)
        print_line(f"{format_second(record.time)} {record.target}: {settings}: {verdict}.")


def _describe_stall(stall: Stall, status: Status) -> str:
    if stall.cause is StallCause.SIGNAL:
        return f"a signal has stopped its process {status.process.pid}"
    if stall.file is not None:
        return f"it cannot write {stall.file.path}: {stall.file.reason}"
    from hbatune.text.units import format_duration

    assert stall.seconds is not None
    assert stall.limit is not None
    age, limit = format_duration(stall.seconds), f"limit {format_duration(stall.limit)}"
    match stall.cause:
        case StallCause.STATUS:
            return f"it last saved its status {age} ago, {limit}"
        case StallCause.START:
            return f"it started {age} ago and has not finished its first pass, {limit}"
        case StallCause.PASS:
            return f"the pass that started {age} ago has not ended, {limit}"
    return f"the last complete pass ended {age} ago, {limit}"


def _explain_unset(change: SettingChange) -> str:
    if change.handled is Handled.RAMPING:
        return describe_ramp(change)
    why = change.reason or _WHY[change.handled]
    if change.retry is None:
        return why
    since, next = format_second(change.retry.since), format_second(change.retry.next)
    tries = "once" if change.retry.tries == 1 else format_count(change.retry.tries, "time")
    return f"{why}: tried {tries} since {since}, next at {next}"
