"""Prints what differs between two hosts, what matters most first."""

from collections.abc import Sequence

from msgspec import Struct

from hbatune.cli.text.audit import found_text
from hbatune.cli.text.output import heading, say, show_table
from hbatune.cli.text.quantity import quantity
from hbatune.cli.text.table import NOTHING, Table, figure, identity, reasons, value
from hbatune.cli.text.units import latency, percent_change, rate, when, whole
from hbatune.fleet.compare import ComparedHost, Difference, HostComparison, Measured
from hbatune.fleet.facts import FactKind, Valued
from hbatune.settings.table import SETTINGS

SCHEMA = "hbatune.compare/1"

_WHY = {
    FactKind.PRESENCE: "how much there is to share the load",
    FactKind.LINK: "a ceiling for all that is behind it",
    FactKind.STATE: "what the kernel has given up does no work",
    FactKind.ERRORS: "each of them held up I/O for as long as its retry took",
    FactKind.RATE: "a ceiling for what goes through the port",
    FactKind.FIRMWARE: "how an adapter queues is its firmware's doing",
    FactKind.DRIVER: "a change of driver moved results by up to 50 %",
    FactKind.DEPTH: "how much may be in flight: too little costs throughput, too much latency",
    FactKind.INTERRUPTS: "how many CPUs take the completions",
    FactKind.OPTION: "how the module was loaded",
    FactKind.DRIVE: "another drive, or one that is set another way",
    FactKind.HOST: "what else is at work there",
    FactKind.COUNTERS: "counted, and harmless by itself",
}


class CompareDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `compare`; ``differences`` are in the order of what matters.

    ``same`` counts the facts that do not differ. In one boot errors are those since the first look,
    otherwise since each boot.
    """

    schema: str = SCHEMA

    first: ComparedHost
    second: ComparedHost
    one_host: bool
    one_boot: bool
    differences: tuple[Difference, ...]
    measured: tuple[Measured, ...]
    same: int


def compare_document(found: HostComparison) -> CompareDocument:
    """Return the JSON document of a comparison."""
    return CompareDocument(
        first=found.first,
        second=found.second,
        one_host=found.one_host,
        one_boot=found.one_boot,
        differences=found.differences,
        measured=found.measured,
        same=found.same,
    )


def show_comparison(found: HostComparison) -> None:
    """Print a comparison."""
    names = _names(found)
    if found.measured:
        heading("What was measured")
        show_table(_measured(found.measured, names))
        say()
    if found.differences:
        heading("What differs, what matters most first")
        show_table(_differences(found.differences, names))
        say()
    say(summary(found))


def summary(found: HostComparison) -> str:
    """Return one sentence with the number of differences."""
    first, second = found.first, found.second
    who = (
        f"{first.name} on {when(first.taken)} and on {when(second.taken)}"
        if found.one_host
        else f"{first.name} and {second.name}"
    )
    differ = quantity(len(found.differences), "difference") if found.differences else None
    since = "the first look" if found.one_boot else "each boot"
    counted = any(each.kind in (FactKind.ERRORS, FactKind.COUNTERS) for each in found.differences)
    return (
        f"{who}: {differ or 'no difference'}, {quantity(found.same, 'fact')} alike"
        f"{f'; counts are those since {since}' if counted else ''}."
    )


def _names(found: HostComparison) -> tuple[str, str]:
    if found.one_host:
        return when(found.first.taken), when(found.second.taken)
    return found.first.name, found.second.name


def _differences(differences: Sequence[Difference], names: tuple[str, str]) -> Table:
    table = Table(
        [identity("WHAT"), value(names[0]), value(names[1]), reasons("OF, AND WHY IT MATTERS")]
    )
    for each in differences:
        source = f" ({each.source})" if each.source else ""
        why = (each.subject, f"{_why(each)}{source}")
        table.rows.append([each.what, _side(each.first), _side(each.second), why])
    return table


def _why(difference: Difference) -> str:
    if difference.kind is FactKind.SETTING and difference.what in SETTINGS:
        return SETTINGS[difference.what].summary
    return _WHY.get(difference.kind, "a setting")


def _side(found: Sequence[Valued]) -> str:
    return found_text(found) if found else NOTHING


def _measured(results: Sequence[Measured], names: tuple[str, str]) -> Table:
    table = Table(
        [
            *(identity("WORKLOAD"), figure(f"P99 {names[0]}"), figure(f"P99 {names[1]}")),
            *(figure("CHANGE"), figure("IOPS"), figure("IOPS"), reasons("OF")),
        ]
    )
    for each in results:
        table.rows.append(
            [
                *(whole(each.workload), latency(each.first.p99_us), latency(each.second.p99_us)),
                *(percent_change(each.p99_ratio), rate(each.first.iops), rate(each.second.iops)),
                each.subject,
            ]
        )
    return table
