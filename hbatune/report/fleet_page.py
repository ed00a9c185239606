"""The page of an audit: a table of hosts that can be filtered, and what they have in common.

It has no script, as no page of hbatune has. The filters are radio buttons, and style sheets hide
the rows that do not have the class of the one that is chosen (the selector ``:has``, which browsers
have since 2023; an older one shows every row). A script would filter no better, and a page without
one can be opened wherever it came from, under any policy.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from hbatune import __version__
from hbatune.checks.finding import Severity
from hbatune.fleet.audit import Audit, AuditedHost
from hbatune.report.page import PageTable, Tile
from hbatune.text.basic_output import quantity
from hbatune.text.fleet_tables import (
    about,
    adapters_text,
    drift_values,
    found_text,
    hosts_text,
    nearest_text,
    share_text,
    stock_value,
    told,
    values_text,
)
from hbatune.text.plan_tables import shown
from hbatune.text.units import format_time

MOST_OPTIONS = 40
"""Options of a filter at most: the largest groups and the most common profiles come first."""

MOST_FACTS = 12
"""Facts of one host that its row shows; the table of odd hosts has them all."""


class FilterOption(Struct, frozen=True):
    """A choice of a filter: the class that rows must have, empty for all, and its label."""

    mark: str
    label: str
    count: int


class HostFilter(Struct, frozen=True):
    """A filter of the hosts: its id, its name, and its choices, the first of which hides none."""

    id: str
    name: str
    options: tuple[FilterOption, ...]


class HostRow(Struct, frozen=True):
    """A host in the table: the classes that filters look at, its cells, and what it is odd in."""

    marks: tuple[str, ...]
    cells: tuple[str, ...]
    odd: tuple[str, ...]


class FleetPage(Struct, frozen=True):
    """The whole page of an audit."""

    made: str
    version: str
    tiles: tuple[Tile, ...]
    filters: tuple[HostFilter, ...]
    heads: tuple[str, ...]
    right: frozenset[int]
    hosts: tuple[HostRow, ...]
    sections: tuple[tuple[str, PageTable], ...]


_HEADS = ("Host", "Group", "Profile", "Drift", "Critical", "Warnings", "Kernel", "Taken", "Odd in")
_RIGHT = frozenset({1, 3, 4, 5})


def fleet_page(audit: Audit) -> FleetPage:
    """Return the page of an audit."""
    marks = {profile: f"p{n}" for n, (profile, _) in enumerate(_profiles(audit), 1)}
    odd: dict[str, list[str]] = defaultdict(list)
    for each in audit.odd:
        said = f"{about(each)}: {found_text(each.found)}, usually {values_text(each.usual)}"
        odd[each.host].append(said)
    return FleetPage(
        made=time.strftime("%Y-%m-%d %H:%M %Z"),
        version=__version__,
        tiles=tuple(_tiles(audit)),
        filters=tuple(_filters(audit, marks)),
        heads=_HEADS,
        right=_RIGHT,
        hosts=tuple(_row(host, marks[host.profile], odd[host.name]) for host in audit.hosts),
        sections=tuple((id, table) for id, table in _tables(audit) if table.rows),
    )


def _profiles(audit: Audit) -> list[tuple[str | None, int]]:
    return Counter(host.profile for host in audit.hosts).most_common()


def _tiles(audit: Audit) -> Iterator[Tile]:
    for number, noun, more in (
        (len(audit.hosts), "host", ""),
        (len(audit.groups), "group", " of alike hosts"),
        (len(audit.drifting), "host", " with drift"),
        (len(audit.odd_hosts), "odd host", ""),
        (len(audit.unusable), "file", " not audited"),
    ):
        if number or noun != "file":
            counted, named = quantity(number, noun).split(" ", 1)
            yield Tile(counted, f"{named}{more}")


def _marks(host: AuditedHost, profile: str) -> Iterator[str]:
    yield from (f"g{host.group}", profile)
    yield "drift" if host.drift else "steady"
    if host.odd:
        yield "odd"
    for severity in (Severity.CRITICAL, Severity.WARNING):
        if host.findings.get(severity):
            yield str(severity)


_STATES = (
    ("drift", "drift"),
    ("steady", "do not drift"),
    ("odd", "odd ones out"),
    ("critical", "critical findings"),
    ("warning", "warnings"),
)


def _filters(audit: Audit, marks: dict[str | None, str]) -> Iterator[HostFilter]:
    everyone = FilterOption("", "all", len(audit.hosts))
    counted = Counter(mark for host in audit.hosts for mark in _marks(host, marks[host.profile]))
    states = (FilterOption(mark, label, counted[mark]) for mark, label in _STATES)
    yield HostFilter("state", "Hosts that", (everyone, *(state for state in states if state.count)))
    groups = (
        FilterOption(
            f"g{group.number}",
            f"{group.number}: {adapters_text(group.adapters)}",
            len(group.hosts),
        )
        for group in audit.groups[:MOST_OPTIONS]
    )
    yield HostFilter("group", "Alike hosts", (everyone, *groups))
    profiles = (
        FilterOption(marks[profile], profile or "none", count)
        for profile, count in _profiles(audit)[:MOST_OPTIONS]
    )
    yield HostFilter("profile", "Profile", (everyone, *profiles))


def _row(host: AuditedHost, profile: str, odd: list[str]) -> HostRow:
    cells = (
        *(host.name, str(host.group), shown(host.profile), str(host.drift)),
        *(str(host.findings.get(each, 0)) for each in (Severity.CRITICAL, Severity.WARNING)),
        *(host.kernel, format_time(host.taken)),
    )
    more = len(odd) - MOST_FACTS
    said = [*odd[:MOST_FACTS], f"and {more} more"] if more > 0 else odd
    return HostRow(tuple(_marks(host, profile)), cells, tuple(said))


def _tables(audit: Audit) -> Iterator[tuple[str, PageTable]]:
    yield (
        "odd",
        PageTable(
            "Odd among alike hosts",
            ("Host", "Here", "Usual", "Hosts", "Differs in"),
            tuple(
                (e.host, found_text(e.found), values_text(e.usual), share_text(e), about(e))
                for e in audit.odd
            ),
            right=frozenset({3}),
            wide=True,
        ),
    )
    yield (
        "lone",
        PageTable(
            "Like no other, or too few to compare",
            ("Host", "Adapters", "Nearest group"),
            tuple((e.host, adapters_text(e.adapters), nearest_text(e)) for e in audit.lone),
            wide=True,
        ),
    )
    yield (
        "drift",
        PageTable(
            "What drifts",
            ("Setting", "Current", "Wanted", "Profile", "Hosts", "Targets", "Source", "On"),
            tuple(
                (
                    *(e.setting, *drift_values(e), e.profile, str(len(e.hosts)), str(e.targets)),
                    *(e.source, hosts_text(e.hosts)),
                )
                for e in audit.drift
            ),
            right=frozenset({4, 5}),
            wide=True,
        ),
    )
    yield (
        "findings",
        PageTable(
            "Findings, by severity",
            (
                "Severity",
                "Check",
                "Hosts",
                "Source",
                "On",
                "Found on the first of them",
                "What to do",
            ),
            tuple(_finding_rows(audit)),
            right=frozenset({2}),
            wide=True,
        ),
    )
    yield (
        "inventory",
        PageTable(
            "What there is",
            ("What", "Of", "Value", "Count", "Hosts"),
            tuple(
                (str(e.what), shown(e.of), stock_value(e), str(e.count), str(len(e.hosts)))
                for e in audit.inventory
            ),
            right=frozenset({3, 4}),
        ),
    )
    yield (
        "unusable",
        PageTable(
            "Not audited",
            ("File", "Why"),
            tuple((e.file, e.reason) for e in audit.unusable),
            wide=True,
        ),
    )


def _finding_rows(audit: Audit) -> Iterable[tuple[str, ...]]:
    for each in map(told, audit.findings):
        yield (
            *(str(each.severity), each.id, str(len(each.hosts)), each.source),
            *(hosts_text(each.hosts), each.evidence, each.advice),
        )
