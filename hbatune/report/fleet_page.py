"""The page of an audit: a table of hosts with filters, and tables of their common facts.

Like every page of hbatune, it has no script, so it can be opened from any source under any policy.
The filters are radio buttons. Style sheets hide the rows without the class of the selected button
with the selector ``:has``. Browsers support it since 2023, and older browsers show every row.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator

from hbatune import __version__
from hbatune.checks.finding import Severity
from hbatune.fleet.audit import Audit, AuditedHost
from hbatune.render import render_template
from hbatune.report.page import PageTable, Tile
from hbatune.text.basic_output import format_count
from hbatune.text.fleet_tables import (
    format_adapters,
    format_fact_values,
    format_values,
    list_audit_rows,
    name_fact,
)
from hbatune.text.plan_tables import format_value
from hbatune.text.units import format_time

MAX_OPTIONS = 40
"""Maximum number of filter options. The largest groups and most common profiles come first."""

MAX_FACTS = 12
"""Maximum number of facts in a host's row. The table of outliers has all of them."""


_Option = tuple[str, str, int]
"""An option of a filter: the required class of rows, empty for all, its label and its hosts."""

_Filter = tuple[str, str, list[_Option]]
"""A filter of the hosts: its id, name and options. The first option shows all hosts."""

_HostRow = tuple[list[str], list[str], list[str]]
"""A host in the table: its classes for the filters, its cells, and its outlier facts."""


def render_fleet_page(audit: Audit) -> str:
    """Return the page of an audit as HTML."""
    marks = {profile: f"p{n}" for n, (profile, _) in enumerate(_count_profiles(audit), 1)}
    odd: dict[str, list[str]] = defaultdict(list)
    for outlier in audit.odd:
        values, usual = format_fact_values(outlier.found), format_values(outlier.usual)
        odd[outlier.host].append(f"{name_fact(outlier)}: {values}, usually {usual}")
    return render_template(
        "templates",
        "fleet.html.j2",
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        tiles=list(_list_tiles(audit)),
        filters=list(_list_filters(audit, marks)),
        hosts=[_make_row(host, marks[host.profile], odd[host.name]) for host in audit.hosts],
        sections=[(id, table) for id, table in _list_tables(audit) if table.rows],
    )


def _count_profiles(audit: Audit) -> list[tuple[str | None, int]]:
    return Counter(host.profile for host in audit.hosts).most_common()


def _list_tiles(audit: Audit) -> Iterator[Tile]:
    for number, noun, suffix in (
        (len(audit.hosts), "host", ""),
        (len(audit.groups), "group", " of peers"),
        (len(audit.drifting), "host", " with drift"),
        (len(audit.odd_hosts), "outlier", ""),
        (len(audit.unusable), "file", " not audited"),
    ):
        if number or noun != "file":
            count, label = format_count(number, noun).split(" ", 1)
            yield count, f"{label}{suffix}"


def _list_marks(host: AuditedHost, profile: str) -> Iterator[str]:
    yield from (f"g{host.group}", profile)
    yield "drift" if host.drift else "steady"
    if host.odd:
        yield "odd"
    for severity in (Severity.CRITICAL, Severity.WARNING):
        if host.findings.get(severity):
            yield str(severity)


_STATES = {
    "drift": "drift",
    "steady": "do not drift",
    "odd": "odd ones out",
    "critical": "critical findings",
    "warning": "warnings",
}


def _list_filters(audit: Audit, marks: dict[str | None, str]) -> Iterator[_Filter]:
    everyone = ("", "all", len(audit.hosts))
    counts: Counter[str] = Counter()
    for host in audit.hosts:
        counts.update(_list_marks(host, marks[host.profile]))
    states = [(mark, _STATES[mark], counts[mark]) for mark in _STATES if counts[mark]]
    yield "state", "Hosts that", [everyone, *states]
    groups = []
    for group in audit.groups[:MAX_OPTIONS]:
        label = f"{group.number}: {format_adapters(group.adapters)}"
        groups.append((f"g{group.number}", label, len(group.hosts)))
    yield "group", "Alike hosts", [everyone, *groups]
    profiles = []
    for profile, count in _count_profiles(audit)[:MAX_OPTIONS]:
        profiles.append((marks[profile], profile or "none", count))
    yield "profile", "Profile", [everyone, *profiles]


def _make_row(host: AuditedHost, profile: str, odd: list[str]) -> _HostRow:
    cells = [host.name, str(host.group), format_value(host.profile), str(host.drift)]
    for severity in (Severity.CRITICAL, Severity.WARNING):
        cells.append(str(host.findings.get(severity, 0)))
    cells += [host.kernel, format_time(host.taken)]
    hidden = len(odd) - MAX_FACTS
    facts = [*odd[:MAX_FACTS], f"and {hidden} more"] if hidden > 0 else odd
    return list(_list_marks(host, profile)), cells, facts


def _list_tables(audit: Audit) -> Iterator[tuple[str, PageTable]]:
    rows = list_audit_rows(audit)
    heads: tuple[str, ...] = ("Host", "Here", "Usual", "Hosts", "Differs in")
    caption, right = "Outliers", frozenset({3})
    yield "odd", PageTable(caption, heads, tuple(rows["odd"]), right, wide=True)
    heads = ("Host", "Adapters", "Nearest group")
    caption = "Hosts without peers"
    yield "lone", PageTable(caption, heads, tuple(rows["lone"]), wide=True)
    heads = ("Setting", "Current", "Wanted", "Profile", "Hosts", "Targets", "Source", "On")
    drift = tuple((*values, source, hosts) for *values, hosts, source in rows["drift"])
    yield "drift", PageTable("Drift", heads, drift, frozenset({4, 5}), wide=True)
    heads = ("Severity", "Check", "Hosts", "Source", "On")
    heads = (*heads, "Found on the first of them", "What to do")
    findings = tuple((*row[:3], row[-1], *row[3:-1]) for row in rows["findings"])
    caption, right = "Findings, by severity", frozenset({2})
    yield "findings", PageTable(caption, heads, findings, right, wide=True)
    heads = ("What", "Of", "Value", "Count", "Hosts")
    inventory = tuple(rows["inventory"])
    yield "inventory", PageTable("What there is", heads, inventory, frozenset({3, 4}))
    yield "unusable", PageTable("Not audited", ("File", "Why"), tuple(rows["unusable"]), wide=True)
