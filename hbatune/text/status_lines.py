"""Print the answer of `hbatune status`: is this host tuned?

The modules for alerts, verdicts and stalls, which most hosts do not have, are imported if needed,
and those for the daemon, which take 4 of 70 ms, only if it runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from hbatune.agent.host_state import DaemonState, Stall
from hbatune.facts.names import natural_key
from hbatune.plan.rows import ServingAdapter
from hbatune.shipped import fill_message, find_message, load_texts
from hbatune.text import terminal
from hbatune.text.basic_output import format_count, format_second
from hbatune.text.status_document import StatusDocument
from hbatune.text.tables import Table, make_columns
from hbatune.text.terminal import get_width

if TYPE_CHECKING:
    from hbatune.agent.orders import SettingChange
    from hbatune.agent.status import Status
    from hbatune.probe.history import Record

_MAX_DRIFT, _MAX_SKIPPED, _MAX_UNSET, _MAX_ADAPTERS = 6, 6, 4, 4
"""The numbers of drift groups, skipped disks, settings that udev's rules could not set, and
adapters."""

_COLUMNS = make_columns("id TARGET | id SETTING | value CURRENT | value WANTED | reason WHY NOT")


def show_status(document: StatusDocument) -> None:
    """Print the headline, the rows of the profile, daemon and problems, and the next commands."""
    mark = ""
    if get_width() is not None:
        mark = f"{terminal.format_mark(load_texts('status.toml')[document.state]['mark'])} "
    terminal.print_heading(mark + document.headline)
    terminal.print_line()
    status = document.status
    if document.profile is not None:
        kept = "kept across boots" if document.kept else "not kept across boots"
        _print_rows("Profile", [f"{document.profile}, {kept}"])
    _print_rows("Adapter", _describe_adapters(document.adapters))
    if (changes := document.rule_changes) != 0:
        name, settings = "changes" if changes else "unknown", format_count(changes or 0, "setting")
        _print_rows("Rules", [fill_message("rule_changes", name, settings=settings)])
    drift = list(document.drift[:_MAX_DRIFT])
    if (more := len(document.drift) - _MAX_DRIFT) > 0:
        drift.append(f"and {more} more groups: `hbatune diff`")
    _print_rows("Drift", drift)
    skipped = list(document.skipped[:_MAX_SKIPPED])
    if (more := document.counts["excluded"] - _MAX_SKIPPED) > 0:
        skipped.append(f"{more} more: `hbatune diff`")
    _print_rows("Left alone", skipped)
    hidden = ["for root only: `sudo hbatune status`"] if document.verdicts is None else []
    _print_rows("Verdicts", hidden or map(_describe_verdict, document.verdicts or ()))
    _print_rows("Daemon", _describe_daemon(document))
    _print_rows("Findings", [_describe_findings(document)])
    if status is not None:
        _print_rows("Alerts", _describe_alerts(status))
    unset = [_describe_unset(document)] if document.unset else []
    _print_rows("udev", (*unset, *document.lost_rules))
    if values := (document.journal or {}).get("values"):
        _print_rows("Undo", [f"{format_count(values, 'original value')} recorded"])
    if status is not None and status.open:
        _show_open(status)
    if document.next:
        terminal.print_line()
    terminal.show_next(document.next)


def format_short(document: StatusDocument) -> str:
    """Return the status in one line: host, state, profile, settings, daemon."""
    counts = document.counts
    compared = counts["ok"] + counts["drift"] + counts["unreadable"]
    parts = [document.state, document.profile or "no profile", f"{counts['ok']}/{compared}"]
    return f"{document.hostname}: {', '.join((*parts, f'daemon {document.daemon}'))}"


def _print_rows(label: str, texts: Iterable[str]) -> None:
    """Print the texts below each other, with the label before the first one."""
    for text in texts:
        terminal.print_line(f"  {label:<10} {text}", hang=13)
        label = ""


def _describe_adapters(adapters: Sequence[ServingAdapter]) -> Iterator[str]:
    for adapter in adapters[:_MAX_ADAPTERS]:
        disks = ", ".join(format_count(number, kind) for kind, number in adapter.disks.items())
        facts = [adapter.product, disks]
        if (get_width() or 0) >= 132:  # wide enough for its link, driver and firmware
            from hbatune.text.plan_tables import describe_adapter  # imports many modules

            facts += describe_adapter(adapter.link, adapter.driver, adapter.firmware)
        yield f"{adapter.target}  {', '.join(facts)}"
    if len(adapters) > _MAX_ADAPTERS:
        yield f"and {len(adapters) - _MAX_ADAPTERS} more: `hbatune list`"


def _describe_verdict(record: "Record") -> str:
    from hbatune.text.verdict_tables import format_verdict

    assert record.proof is not None
    settings = " ".join(record.proof.settings)
    verdict = format_verdict(record.proof.verdict)
    return f"{record.target}: {settings}: {verdict}, {format_second(record.time)}"


def _describe_unset(document: StatusDocument) -> str:
    unset = document.unset[:_MAX_UNSET]
    names = [f"{entry.setting or 'any setting'} of {entry.target}" for entry in unset]
    if more := len(document.unset) - len(names):
        names.append(f"{more} more")
    problem = f"udev's rules could not set {', '.join(names)} as the disks appeared"
    return f"{problem} (`hbatune check` shows the reasons)"


def _describe_findings(document: StatusDocument) -> str:
    findings, looked = document.findings, "looked at now"
    if findings is None:
        return "not looked at: `sudo hbatune check`"
    if document.checked is not None:
        from hbatune.text.units import format_duration

        age = format_duration(document.time - document.checked)
        looked = f"{age} ago, without the kernel's log"
    severe = [f"{name} {number}" for name, number in findings.items() if name != "info"]
    if severe:
        return f"{', '.join(severe)} ({looked}): `hbatune check`"
    return f"none above info ({looked})"


def _describe_daemon(document: StatusDocument) -> Iterator[str]:
    """Yield the daemon's work, its latest pass and its problems."""
    status = document.status
    if status is None:
        yield "not running"
        return
    from hbatune.text.daemon_messages import describe_doubt, format_status_line

    yield format_status_line(status)
    passes = format_count(status.passes, "pass", "passes")
    work = f"{passes}, {format_count(status.written, 'value')} set"
    yield f"running since {format_second(status.since)}, {work}"
    if (last := status.last) is not None:
        yield f"last pass {format_second(last.time)} ({last.reason})"
    for stall in document.stalls:
        yield f"it is stalled: {_describe_stall(stall, status)} ({find_message(stall.cause)})"
    if document.daemon is DaemonState.UNKNOWN:
        yield fill_message("daemon", "no-times")
    if status.abandoned:
        processes = format_count(status.abandoned, "process", "processes")
        hang = "hangs" if status.abandoned == 1 else "hang"
        yield fill_message("daemon", "hanging", processes=processes, hang=hang)
    if status.mistake is not None:
        yield fill_message("daemon", "mistake", mistake=status.mistake)
    yield from map(describe_doubt, status.doubts)


def _describe_alerts(status: "Status") -> Iterator[str]:
    for alert in status.alerts:
        from hbatune.text.watch_view import format_alert

        yield f"{format_alert(alert)}, since {format_second(alert.raised)}"
    if not status.alerts:
        yield "none"


def _show_open(status: "Status") -> None:
    from hbatune.text.plan_tables import group_equal_rows

    terminal.print_line()
    table = Table(_COLUMNS)
    changes = sorted(status.open, key=lambda change: natural_key(change.target))
    for change in group_equal_rows(changes, _explain_unset):
        values = [str(change.before), str(change.value), _explain_unset(change)]
        table.rows.append([change.target, change.setting, *values])
    terminal.show_table(table)


def _describe_stall(stall: Stall, status: "Status") -> str:
    from hbatune.text.units import format_duration

    facts: dict[str, object] = {"pid": status.process.pid, "file": stall.file}
    if stall.seconds is not None and stall.limit is not None:
        facts |= {"age": format_duration(stall.seconds), "limit": format_duration(stall.limit)}
    return fill_message("stall", stall.cause, **facts)


def _explain_unset(change: "SettingChange") -> str:
    from hbatune.agent.orders import Handled
    from hbatune.text.daemon_messages import describe_ramp

    if change.handled is Handled.RAMPING:
        return describe_ramp(change)
    why = change.reason or load_texts("messages.toml")["open_change"][change.handled]
    if change.retry is None:
        return why
    since, next = format_second(change.retry.since), format_second(change.retry.next)
    tries = "once" if change.retry.tries == 1 else format_count(change.retry.tries, "time")
    return f"{why}: tried {tries} since {since}, next at {next}"
