"""Print an audit of many hosts, also as JSON or CSV, and a comparison of two hosts."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, astuple

from hbatune.checks.finding import Severity, format_fact
from hbatune.facts.names import group_items
from hbatune.fleet import audit as audits
from hbatune.fleet.compared_facts import Difference, FactKind, HostComparison, Scalar, Valued
from hbatune.fleet.hosts import THIS_HOST, HostState, UnusableSnapshot
from hbatune.settings.table import SETTINGS
from hbatune.shipped import fill_message, find_message, load_texts
from hbatune.text import plan_tables, units
from hbatune.text.basic_output import format_count, format_second
from hbatune.text.tables import EMPTY_CELL, STYLES, Cell, Column, Table, load_columns, make_columns
from hbatune.text.terminal import Field, print_line, show_line, show_section

UNKNOWN_TEXT = "not known"
"""The text for a value that a host could not read."""

MAX_REMEDIES = 10
"""Maximum number of remedies that a screen or a page shows first."""


class Remedy(Struct, frozen=True):
    """A problem of some hosts, worst severity first, and a command that repairs or explains it.

    The command runs on the machine of the audit and names its host.
    """

    severity: Severity
    hosts: tuple[str, ...]
    text: str
    command: str


class UnusableEntry(Struct, frozen=True):
    """A file that could not be audited, with the reason as text."""

    file: str
    reason: str


class AuditDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `audit`; groups, odd facts and hosts refer to hosts by name.

    ``headline`` counts the hosts by state, ``do_first`` are the remedies, worst first.
    ``not_understood`` are settings in hosts' rules that this version ignores.
    """

    schema: str = "hbatune.audit/1"
    headline: str
    do_first: tuple[Remedy, ...]
    not_set_up: tuple[str, ...]
    hosts: tuple[audits.AuditedHost, ...]
    groups: tuple[audits.PeerGroup, ...]
    odd: tuple[audits.Outlier, ...]
    lone: tuple[audits.LoneHost, ...]
    drift: tuple[audits.FleetDrift, ...]
    findings: tuple[audits.FleetFinding, ...]
    inventory: tuple[audits.Stock, ...]
    unusable: tuple[UnusableEntry, ...]
    not_understood: tuple[str, ...]


def make_audit_document(audit: audits.Audit) -> AuditDocument:
    """Return the JSON document of an audit."""
    return AuditDocument(
        **asdict(audit) | {"unusable": tuple(map(with_reason, audit.unusable))},
        headline=summarise_audit(audit),
        do_first=list_remedies(audit),
        not_set_up=tuple(host.name for host in audit.hosts if host.state is HostState.NOT_SET_UP),
    )


def with_reason(snapshot: UnusableSnapshot) -> UnusableEntry:
    """Return an entry for a file that could not be audited, with the reason as text."""
    return UnusableEntry(snapshot.file, find_message(snapshot.failure).format(snapshot.detail))


def list_audit_rows(audit: audits.Audit) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of an audit's tables, by section: outliers first, unusable files last."""
    rows: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for outlier in audit.odd:
        fact, *values = _format_outlier(outlier)
        rows["odd"].append((outlier.host, *values, f"{outlier.agreeing}/{outlier.compared}", fact))
    for host in audit.lone:
        rows["lone"].append((host.host, format_adapters(host.adapters), describe_nearest(host)))
    for drift in audit.drift:
        setting = (drift.setting, drift.kind, *_format_drift(drift), drift.profile)
        counts = (str(len(drift.hosts)), str(drift.targets))
        rows["drift"].append((*setting, *counts, _format_hosts(drift.hosts), drift.source))
    for entry in audit.findings:
        check = (str(entry.severity), entry.id, str(len(entry.hosts)), _format_hosts(entry.hosts))
        advice = f"on {entry.hosts[0]}: {entry.advice}"
        rows["findings"].append((*check, entry.evidence, advice, entry.source))
    for stock in audit.inventory:
        subject = (str(stock.what), plan_tables.format_value(stock.of), _format_stock_value(stock))
        rows["inventory"].append((*subject, str(stock.count), str(len(stock.hosts))))
    rows["unusable"] = [astuple(with_reason(snapshot)) for snapshot in audit.unusable]
    return rows


def show_audit(audit: audits.Audit) -> None:
    """Print an audit: the answer and the remedies first, then drift, outliers and findings."""
    rows = list_audit_rows(audit)
    remedies = list_remedies(audit)[:MAX_REMEDIES]
    print_line(f"{summarise_audit(audit)}.", hang=2)
    print_line()
    print_line("Do first" if remedies else "Nothing to do", style="bold")
    for number, remedy in enumerate(remedies, 1):
        names = f" on {_format_hosts(remedy.hosts)}" if remedy.hosts else ""
        text = f"{number:2} {remedy.severity}{names}: {remedy.text}"
        print_line(text, hang=3, style=STYLES[remedy.severity])
        show_line(f"   {remedy.command}")  # a broken command could not be copied
    print_line()
    lone = [(host, texts) for host, *texts in rows["lone"]]
    findings = []
    for *check, hosts, evidence, advice, source in rows["findings"]:
        if check[0] != Severity.INFO:
            findings.append((*check, (hosts, evidence, f"→ {advice}"), source))
    shown: dict[str, Sequence[Sequence[Cell]]] = {**rows, "lone": lone, "findings": findings}
    for name, table in load_texts("messages.toml")["audit"].items():
        if shown.get(name):
            show_section(table["title"], Table(make_columns(table["columns"]), list(shown[name])))
    groups, outliers = format_count(len(audit.groups), "group"), {row.host for row in audit.odd}
    anonymous = sum(host.anonymous for host in audit.hosts)
    parts = (f"{groups} of peers", format_count(len(outliers), "outlier"), f"{anonymous} anonymous")
    print_line(f"{', '.join(parts)} (named by file).")


def summarise_audit(audit: audits.Audit) -> str:
    """Return the answer of an audit: the number of hosts in each state, and of unread files."""
    hosts = Counter(host.state for host in audit.hosts)
    counts = [(hosts[state], find_message(state)) for state in HostState]
    counts.append((len(audit.unusable), "not read"))
    parts = ", ".join(f"{count} {text}" for count, text in counts if count)
    return f"{format_count(len(audit.hosts) + len(audit.unusable), 'host')}: {parts}"


def list_remedies(audit: audits.Audit) -> tuple[Remedy, ...]:
    """Return the remedies: faults first, as no rollout mends them, then settings, then outliers."""
    remedies: list[Remedy] = []
    hosts = {host.name: host for host in audit.hosts}
    for entry in audit.findings:
        if entry.severity in (Severity.CRITICAL, Severity.WARNING):
            command = command_on(hosts[entry.hosts[0]], "check")
            remedies.append(Remedy(entry.severity, entry.hosts, entry.evidence, command))
    groups = group_items(audit.hosts, _get_situation).items()
    for (state, profile, *_), group in sorted(groups, key=lambda item: -len(item[1])):
        if state is not HostState.OK:
            names = tuple(host.name for host in group)
            text = fill_message("host_problem", state, profile=profile)
            remedies.append(Remedy(Severity.WARNING, names, text, find_command(audit, group)))
    for file in map(with_reason, audit.unusable):
        text = f"{file.file} could not be read: {file.reason}. Take it again with this hbatune"
        remedies.append(Remedy(Severity.WARNING, (), text, _find_snapshot_command(Path(file.file))))
    odd = {outlier.host for outlier in audit.odd}
    for outlier in audit.odd:
        host = hosts[outlier.host]
        peers = [peer for peer in audit.hosts if peer.group == host.group and peer.name not in odd]
        files = [peer.file for peer in (*peers[:1], host) if peer.file != THIS_HOST]
        command = f"hbatune compare {shlex.join(files)}" if peers else command_on(host, "check")
        text = describe_outlier(outlier)
        remedies.append(Remedy(Severity.ADVICE, (outlier.host,), text, command))
    return tuple(remedies)


def _get_situation(host: audits.AuditedHost) -> tuple[HostState, str | None, bool, int | None]:
    """Return the key of the hosts with one remedy. Only peers can share a new profile."""
    return host.state, host.profile, host.anonymous, None if host.profile else host.group


def find_command(audit: audits.Audit, hosts: Sequence[audits.AuditedHost]) -> str:
    """Return the command for hosts in one state: a rollout to several, otherwise a comparison."""
    first = hosts[0]
    usual = [host.profile for host in audit.hosts if host.group == first.group and host.profile]
    profile = first.profile or max(usual, key=usual.count, default=None)
    if profile is None:
        return "hbatune profiles"
    is_rollout = first.state in (HostState.DRIFT, HostState.NOT_SET_UP) and not first.anonymous
    if len(hosts) == 1 or not is_rollout:
        return command_on(first, f"diff --profile {shlex.quote(profile)}")
    limit = ",".join(host.hostname for host in hosts)
    variables = f"-e hbatune_profile={shlex.quote(profile)} --limit {shlex.quote(limit)}"
    return f"ansible-playbook hbatune.hbatune.rollout -i inventory {variables}"


def _find_snapshot_command(file: Path) -> str:
    """Return the command that takes a snapshot again on its host, by whose name it is filed."""
    folder, name = shlex.quote(str(file.parent)), shlex.quote(file.stem)
    variables = f"-e hbatune_snapshots={folder} --limit {name}"
    return f"ansible-playbook hbatune.hbatune.snapshots -i inventory {variables}"


def command_on(host: audits.AuditedHost, words: str) -> str:
    """Return a command for a host: local, over ssh, or on the snapshot of an anonymous host."""
    if host.file == THIS_HOST:
        return f"hbatune {words}"
    if host.anonymous:
        return f"hbatune {words} --snapshot {shlex.quote(host.file)}"
    return f"hbatune -H {shlex.quote(host.hostname)} {words}"


def describe_outlier(outlier: audits.Outlier) -> str:
    """Describe a fact in which a host differs from its peers."""
    fact, values, usual = _format_outlier(outlier)
    share = f"{outlier.agreeing} of {format_count(outlier.compared, 'host')}"
    return f"{fact} is {values}, and {usual} on {share}"


def _format_outlier(outlier: audits.Outlier) -> tuple[str, str, str]:
    """Return the name of the fact, the values of the host and the usual values."""
    fact, usual = f"{outlier.what} of {outlier.subject}", map(_format_scalar, outlier.usual)
    return fact, format_fact_values(outlier.found), ", ".join(usual)


def format_fact_values(values: Sequence[Valued]) -> str:
    """Return the values of a fact as text; several values with their targets."""
    if len(values) == 1:
        return _format_scalar(values[0].value)
    return ", ".join(map(_format_valued, values))


def format_adapters(names: Sequence[str]) -> str:
    """Return the names of the adapters of a group or a host."""
    return ", ".join(names) or "no adapter"


def describe_nearest(lone: audits.LoneHost) -> str:
    """Describe the difference between a host without peers and the nearest group."""
    if lone.group is None:
        return "no group of hosts has any of them"
    parts = [f"lacks {', '.join(lone.lacks)}"] if lone.lacks else []
    parts += [f"has besides {', '.join(lone.besides)}"] if lone.besides else []
    return f"group {lone.group} is nearest: it {' and '.join(parts) or 'has others of that name'}"


def _format_drift(drift: audits.FleetDrift) -> tuple[str, str]:
    """Return the current and the wanted value of drift."""
    if drift.current is None and drift.value is None:
        return "each its own", "each its own"  # such as the CPUs of interrupts
    return plan_tables.format_value(drift.current), plan_tables.format_value(drift.value)


def _format_hosts(hosts: Sequence[str]) -> str:
    """Return the names of hosts as text, with ranges; only the first of many names."""
    return " ".join(plan_tables.fold_names(hosts, count=False))


def _format_stock_value(stock: audits.Stock) -> str:
    """Return the value in a line of the inventory."""
    if stock.value is None:
        return "none" if stock.what is audits.Stocked.PROFILE else UNKNOWN_TEXT
    return stock.value


def _format_valued(valued: Valued) -> str:
    value = _format_scalar(valued.value)
    if not valued.targets:
        return f"{value} ({valued.count})"
    remaining = valued.count - len(valued.targets)
    names = " ".join(valued.targets) + (f" and {remaining} more" if remaining else "")
    return f"{value} ({names})"


def _format_scalar(value: Scalar) -> str:
    return UNKNOWN_TEXT if value is None else format_fact(value)


def list_csv_rows(audit: audits.Audit) -> Iterator[tuple[Field, ...]]:
    """Yield an audit as CSV: hosts, outliers, drift, findings, inventory and unusable files."""
    for host in audit.hosts:
        groups = f"group {host.group}"
        yield ("host", host.name, None, groups, host.kernel, None, host.drift, host.profile, None)
    rows = list_audit_rows(audit)
    for label, value, usual, _, fact in rows["odd"]:
        yield ("odd", label, None, fact, value, usual, None, None, None)
    for label, adapters, nearest in rows["lone"]:
        yield ("lone", label, None, adapters, nearest, None, None, None, None)
    for drift in audit.drift:
        for name in drift.hosts:
            values = _format_drift(drift)
            yield ("drift", name, None, drift.setting, *values, None, drift.profile, drift.source)
    for entry in audit.findings:
        for name in entry.hosts:
            evidence = entry.evidence if name == entry.hosts[0] else None
            first = ("finding", name, entry.severity, entry.id, evidence)
            yield (*first, None, None, None, entry.source)
    for stock in audit.inventory:
        subject = f"{stock.what}" if stock.of is None else f"{stock.what} of {stock.of}"
        for name in stock.hosts:
            yield ("stock", name, None, subject, _format_stock_value(stock), None, None, None, None)
    for file, reason in rows["unusable"]:
        yield ("unusable", file, None, reason, None, None, None, None, None)


def show_comparison(comparison: HostComparison, files: tuple[str, str]) -> None:
    """Print a comparison of these files, and one sentence with the number of differences."""
    first, second = comparison.first, comparison.second
    names = first.name, second.name
    compared = f"{first.name} and {second.name}"
    if comparison.one_host:
        for format_moment in (units.format_time, format_second):
            names = format_moment(first.taken), format_moment(second.taken)
            if names[0] != names[1]:
                break
        else:
            names = files
        compared = f"{first.name} on {names[0]} and on {names[1]}"
    table = _make_difference_table(comparison.differences, names)
    show_section("Differences, most important first", table)
    differences = format_count(len(comparison.differences), "difference")
    text = f"{compared}: {differences}, {format_count(comparison.same, 'equal fact')}"
    kinds = {difference.kind for difference in comparison.differences}
    if kinds & {FactKind.ERRORS, FactKind.COUNTERS}:
        since = "the first look" if comparison.one_boot else "each boot"
        text += f"; counts are those since {since}"
    print_line(f"{text}. A snapshot has no measurements: `hbatune history` on each host has them.")


def _make_difference_table(differences: Sequence[Difference], names: tuple[str, str]) -> Table:
    fact, reason = load_columns("differences")
    # The names of hosts are from their snapshots.
    table = Table([fact, *map(Column, names), reason])
    for difference in differences:
        source = f" ({difference.source})" if difference.source else ""
        reason_text = find_message(difference.kind)
        if difference.kind is FactKind.SETTING and difference.what in SETTINGS:
            reason_text = SETTINGS[difference.what].summary
        why = (difference.subject, f"{reason_text}{source}")
        sides = (difference.first, difference.second)
        texts = [format_fact_values(values) if values else EMPTY_CELL for values in sides]
        table.rows.append([difference.what, *texts, why])
    return table
