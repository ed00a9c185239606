"""Prints an audit of many hosts: who is odd, what drifts, what was found, what there is."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from hbatune.checks.model import Severity
from hbatune.cli.text.findings import text_of
from hbatune.cli.text.output import heading, say, show_table
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.rows import shown, target_names
from hbatune.cli.text.table import Column, Table, figure, identity, prose, reasons, state, value
from hbatune.fleet.alike import AlikeHosts, LoneHost, OddFact
from hbatune.fleet.audit import Audit, AuditedHost, FleetDrift, FleetFinding, Stock, Stocked
from hbatune.fleet.facts import Scalar, Valued
from hbatune.fleet.reading import Unusable

SCHEMA = "hbatune.audit/1"

UNKNOWN = "not known"
"""What a value is that a host could not read."""

OWN = "each its own"
"""The values of drift that are another for each target: the CPUs of interrupts."""


class ToldFinding(Struct, frozen=True):
    """Findings of one check and severity, with the text of the one on the first of the hosts."""

    id: str
    severity: Severity
    source: str
    targets: int
    hosts: tuple[str, ...]
    evidence: str
    advice: str


class AuditDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `audit`; groups, odd facts and hosts refer to hosts by name.

    ``not_understood`` are settings of hosts' rules that this version leaves out.
    """

    schema: str = SCHEMA

    hosts: tuple[AuditedHost, ...]
    groups: tuple[AlikeHosts, ...]
    odd: tuple[OddFact, ...]
    lone: tuple[LoneHost, ...]
    drift: tuple[FleetDrift, ...]
    findings: tuple[ToldFinding, ...]
    inventory: tuple[Stock, ...]
    unusable: tuple[Unusable, ...]
    not_understood: tuple[str, ...]


def audit_document(audit: Audit) -> AuditDocument:
    """Return the JSON document of an audit."""
    return AuditDocument(
        hosts=audit.hosts,
        groups=audit.groups,
        odd=audit.odd,
        lone=audit.lone,
        drift=audit.drift,
        findings=tuple(map(told, audit.findings)),
        inventory=audit.inventory,
        unusable=audit.unusable,
        not_understood=audit.not_understood,
    )


def told(finding: FleetFinding) -> ToldFinding:
    """Return findings with their text."""
    text = text_of(finding.example)
    return ToldFinding(
        id=finding.id,
        severity=finding.severity,
        source=finding.source,
        targets=finding.targets,
        hosts=finding.hosts,
        evidence=text.evidence,
        advice=text.advice,
    )


def show_audit(audit: Audit) -> None:
    """Print an audit: the odd hosts first, then drift, findings, the inventory, and other files."""
    names = (identity("HOST"), value("HERE"), value("USUAL"), figure("HOSTS"), prose("DIFFERS IN"))
    odd = [
        [each.host, found_text(each.found), values_text(each.usual), share_text(each), about(each)]
        for each in audit.odd
    ]
    _show("Odd among alike hosts", names, odd)
    _show(
        "Like no other, or too few to compare",
        (identity("HOST"), prose("ADAPTERS, AND THE NEAREST GROUP")),
        [[each.host, (adapters_text(each.adapters), nearest_text(each))] for each in audit.lone],
    )
    _show(
        "What drifts",
        (
            *(identity("SETTING"), value("CURRENT"), value("WANTED"), value("PROFILE")),
            *(figure("HOSTS"), figure("TARGETS"), prose("ON"), value("SOURCE")),
        ),
        [
            [
                *(each.setting, *drift_values(each), each.profile, str(len(each.hosts))),
                *(str(each.targets), hosts_text(each.hosts), each.source),
            ]
            for each in audit.drift
        ],
    )
    _show(
        "Findings",
        (
            *(state("SEVERITY"), identity("CHECK"), figure("HOSTS")),
            *(
                reasons("ON, WHAT WAS FOUND ON THE FIRST, WHAT TO DO", stacked=True),
                value("SOURCE"),
            ),
        ),
        [_finding(told(each)) for each in audit.findings if each.severity is not Severity.INFO],
    )
    _show(
        "What there is",
        (identity("WHAT"), value("OF"), value("VALUE"), figure("COUNT"), figure("HOSTS")),
        [
            [
                str(each.what),
                shown(each.of),
                stock_value(each),
                str(each.count),
                str(len(each.hosts)),
            ]
            for each in audit.inventory
        ],
    )
    _show(
        "Not audited",
        (identity("FILE"), prose("WHY")),
        [[each.file, each.reason] for each in audit.unusable],
    )
    say(summary(audit))


def summary(audit: Audit) -> str:
    """Return one sentence with the numbers of hosts."""
    groups = quantity(len(audit.groups), "group")
    parts = [
        f"{quantity(len(audit.hosts), 'host')} in {groups} of alike ones",
        f"{_count(len(audit.drifting), 'drifts', 'drift')}",
        f"{_count(len(audit.odd_hosts), 'is odd', 'are odd')}",
    ]
    if without := sum(each.profile is None for each in audit.hosts):
        parts.append(f"{_count(without, 'has', 'have')} no profile to drift from")
    if anonymous := sum(each.anonymous for each in audit.hosts):
        parts.append(f"{_count(anonymous, 'is', 'are')} anonymous and named by file")
    if audit.unusable:
        parts.append(f"{quantity(len(audit.unusable), 'file')} could not be audited")
    return "; ".join(parts) + "."


def found_text(found: Sequence[Valued]) -> str:
    """Return the values of a fact; where there are several, with the targets that have them."""
    if len(found) == 1:
        return _scalar(found[0].value)
    return ", ".join(_valued(each) for each in found)


def values_text(values: Iterable[Scalar]) -> str:
    """Return values as text."""
    return ", ".join(map(_scalar, values))


def share_text(odd: OddFact) -> str:
    """Return how many of the compared hosts have the usual values."""
    return f"{odd.agreeing}/{odd.compared}"


def about(odd: OddFact) -> str:
    """Return what a fact is about."""
    return f"{odd.what} of {odd.subject}"


def adapters_text(names: Sequence[str]) -> str:
    """Return the names of the adapters of a group or a host."""
    return ", ".join(names) or "no adapter"


def nearest_text(lone: LoneHost) -> str:
    """Return what tells a lone host from the group that is nearest to it."""
    if lone.group is None:
        return "no group of hosts has any of them"
    parts = [
        f"{verb} {', '.join(names)}"
        for verb, names in (("lacks", lone.lacks), ("has besides", lone.besides))
        if names
    ]
    return f"group {lone.group} is nearest: it {' and '.join(parts) or 'has others of that name'}"


def drift_values(drift: FleetDrift) -> tuple[str, str]:
    """Return the current and the wanted value of drift."""
    if drift.current is None and drift.value is None:
        return OWN, OWN
    return shown(drift.current), shown(drift.value)


def hosts_text(hosts: Sequence[str]) -> str:
    """Return the names of hosts, those that follow each other as a range, of many only some."""
    return " ".join(target_names(hosts, count=False))


def stock_value(stock: Stock) -> str:
    """Return the value in a line of the inventory."""
    if stock.value is None:
        return "none" if stock.what is Stocked.PROFILE else UNKNOWN
    return stock.value


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _valued(found: Valued) -> str:
    value = _scalar(found.value)
    if not found.targets:
        return f"{value} ({found.count})"
    more = found.count - len(found.targets)
    names = " ".join(found.targets) + (f" and {more} more" if more else "")
    return f"{value} ({names})"


def _scalar(value: Scalar) -> str:
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _finding(each: ToldFinding) -> list[str | tuple[str, ...]]:
    found = (hosts_text(each.hosts), each.evidence, f"→ {each.advice}")
    return [str(each.severity), each.id, str(len(each.hosts)), found, each.source]


def _show(
    name: str, columns: Sequence[Column], rows: Iterable[Sequence[str | Sequence[str]]]
) -> None:
    table = Table(columns, list(rows))
    if table.rows:
        heading(name)
        show_table(table)
        say()
