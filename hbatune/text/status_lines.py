"""The answer of `hbatune status`, is this host tuned?: its JSON document and its lines.

The modules for alerts, verdicts and stalls, which most hosts do not have, are imported if needed,
and those for the daemon, which take 4 of 70 ms, only if it runs.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from hbatune.act.paths import Paths
from hbatune.agent.host_state import SCHEMA, Ages, DaemonHealth, DaemonState, Stall, assess_host
from hbatune.errors import UsageError
from hbatune.facts.names import natural_key
from hbatune.facts.udev import UnsetSetting
from hbatune.loader import is_missing
from hbatune.plan.rows import HostLook, Row, ServingAdapter, State
from hbatune.shipped import fill_message, find_message, load_texts
from hbatune.text import terminal
from hbatune.text.basic_output import format_count, format_second
from hbatune.text.tables import Table, make_columns
from hbatune.text.terminal import get_width

if TYPE_CHECKING:
    from hbatune.agent.orders import SettingChange
    from hbatune.agent.status import Status
    from hbatune.probe.history import Record

_MAX_DRIFT, _MAX_SKIPPED, _MAX_UNSET, _MAX_ADAPTERS, _MAX_VERDICTS = 6, 6, 4, 4, 5
"""The numbers of drift groups, skipped disks, settings that udev's rules could not set, adapters
and verdicts."""

_COLUMNS = make_columns("id TARGET | id SETTING | value CURRENT | value WANTED | reason WHY NOT")


class StatusDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `status`; ``verdicts`` are the most recent ones, in order of time.

    ``state`` is the host's, a key of ``templates/status.toml``, and ``daemon`` the daemon's, with
    ``stalls`` as reasons. ``counts`` are the settings by state, ``skipped`` describes the excluded
    ones. ``kept`` is whether udev rules tune at boot. ``findings`` are counted by severity, as the
    daemon ``checked`` them, or now without a daemon. ``journal`` has the number of original
    ``values``. Both are null if unknown. ``next`` are commands with their purposes. ``unset`` are
    the settings that udev's rules could not set as a disk appeared, and that the daemon has not set
    since. ``lost_rules`` describes other udev rules that did not take effect.
    ``rule_changes`` is the number of settings that the next apply changes because of new shipped
    rules, or null if unknown. ``drift`` describes the changes to make. ``verdicts`` are null if
    only root can read them.
    """

    schema: str = SCHEMA
    hostname: str
    time: float
    state: str
    headline: str
    profile: str | None
    kept: bool
    counts: dict[str, int]
    skipped: tuple[str, ...]
    drift: tuple[str, ...]
    findings: dict[str, int] | None
    checked: float | None
    adapters: tuple[ServingAdapter, ...]
    journal: dict[str, int] | None
    next: tuple[tuple[str, str], ...]
    running: bool
    well: bool
    daemon: DaemonState
    stalls: tuple[Stall, ...] = ()
    ages: Ages | None = None
    status: "Status | None"
    verdicts: "tuple[Record, ...] | None"
    unset: tuple[UnsetSetting, ...] = ()
    lost_rules: tuple[str, ...] = ()
    rule_changes: int | None = 0

    @property
    def exit_code(self) -> int:
        """The exit code of `status`, which differs for some states without a daemon."""
        with_daemon, without = load_texts("status.toml")[self.state]["exit"]
        return int(with_daemon if self.running else without)


def make_status_document(
    look: HostLook,
    status: "Status | None",
    health: DaemonHealth,
    unset: tuple[UnsetSetting, ...],
    rule_changes: int | None,
    *,
    kept: bool,
) -> StatusDocument:
    """Return the document of a host, with the headline of its state and the next commands."""
    host, state = os.uname().nodename, assess_host(look, health, status)
    last_profile = look.profile if status is None else status.profile or status.last_profile
    facts = {
        "host": host,
        "subject": f"{host} is tuned{' in part' if look.counts.get('unmatched') else ''}",
        "settings": _describe_settings(look),
        "profile": look.profile,
        "last_profile": last_profile,
        "mistake": look.mistake,
        "alerts": format_count(len(status.alerts) if status else 0, "alert"),
        "values": format_count(look.values or 0, "original value"),
    }
    commands = []
    for command, purpose in load_texts("status.toml")[state]["next"]:
        if last_profile is not None or "{last_profile}" not in command:
            commands.append((command.format(**facts), purpose))
    return StatusDocument(
        hostname=host,
        time=time.time(),
        state=state,
        headline=load_texts("status.toml")[state]["headline"].format(**facts),
        profile=look.profile,
        kept=kept,
        counts={name: look.counts.get(name, 0) for name in (*map(str, State), "unmatched")},
        skipped=look.skipped,
        drift=tuple(_describe_drift(look.drift)),
        findings=look.findings,
        checked=look.checked,
        adapters=look.adapters,
        journal=None if look.values is None else {"values": look.values},
        next=tuple(commands),
        running=status is not None,
        well=health.good,
        daemon=health.state,
        stalls=health.stalls,
        ages=health.ages,
        status=status,
        verdicts=read_latest_verdicts(),
        unset=unset,
        lost_rules=look.lost_rules,
        rule_changes=rule_changes,
    )


def _describe_settings(look: HostLook) -> str:
    """Return the profile and how many settings have its values."""
    counts = look.counts
    compared = sum(counts.get(state, 0) for state in (State.OK, State.DRIFT, State.UNREADABLE))
    settings = format_count(compared, "setting")
    text = f"profile {look.profile}, {counts.get(State.OK, 0)} of {settings} as wanted"
    if excluded := counts.get(State.EXCLUDED):
        text += f", {excluded} left alone"
    if unmatched := counts.get("unmatched"):
        text += f"; {format_count(unmatched, 'disk')} without a rule"
    return text


def _describe_drift(rows: Collection[Row]) -> Iterator[str]:
    """Yield the targets with the same change of a setting, and the change."""
    if rows:
        from hbatune.text.plan_tables import fold_rows, format_targets  # imports many modules

        for targets, row in fold_rows(rows, lambda row: (row.setting, row.current, row.value)):
            yield f"{format_targets(targets)}  {row.setting}  {row.current} → {row.value}"


def read_latest_verdicts() -> "tuple[Record, ...] | None":
    """Return the latest verdicts, or None if this user may not read them."""
    if is_missing(Paths.history):
        return ()
    from hbatune.probe import history  # 5 of 70 ms, and most hosts have no verdict

    try:
        records = history.load(Paths.history).records
    except UsageError:
        return None
    return tuple(record for record in records if record.proof is not None)[-_MAX_VERDICTS:]


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
    from hbatune.text.daemon_messages import describe_ramp, describe_writer

    if change.handled is Handled.RAMPING:
        return describe_ramp(change)
    why = change.reason or load_texts("messages.toml")["open_change"][change.handled]
    if change.writer is not None:
        why = f"{why}; {describe_writer(change.writer)}"
    if change.retry is None:
        return why
    since, next = format_second(change.retry.since), format_second(change.retry.next)
    tries = "once" if change.retry.tries == 1 else format_count(change.retry.tries, "time")
    return f"{why}: tried {tries} since {since}, next at {next}"
