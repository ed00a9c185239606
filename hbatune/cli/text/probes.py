"""Text on probes: before and after, reasons for no figures, comparisons, sweeps."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from hbatune.cli.text.output import printable, say, show_table
from hbatune.cli.text.table import NOTHING, Table, figure, identity, value
from hbatune.cli.text.units import digits, percent, percent_change
from hbatune.facts.model import Machine
from hbatune.policy.load import RaidFigures, installed_library
from hbatune.policy.model import Profile
from hbatune.probe.comparison import Goal, Headroom, LinkShare, Standing, compare_on_machine
from hbatune.probe.history import HistoryEntry, Stale
from hbatune.probe.knee import Knee
from hbatune.probe.model import (
    Doubt,
    Failed,
    Failure,
    Figures,
    Pattern,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
)
from hbatune.probe.sweeps import DepthSweep

HEADERS = (
    "target",
    "probe",
    "IOPS",
    "mean µs",
    "p50 µs",
    "p95 µs",
    "p99 µs",
    "p99.9 µs",
    "CPU µs/IO",
)
READS_ONLY = "The probe only reads: it cannot see how writes queue."
RARE = 1000  # below this many I/Os not even one lies above p99.9
_COLUMNS: tuple[Callable[[Figures], float], ...] = (
    lambda figures: figures.iops,
    lambda figures: figures.mean_us,
    lambda figures: figures.p50_us,
    lambda figures: figures.p95_us,
    lambda figures: figures.p99_us,
    lambda figures: figures.p999_us,
    lambda figures: figures.cost_us_per_io,
)
_TAILS = (
    identity("TARGET"),
    figure("DEPTH"),
    value(""),
    figure("P50 µs"),
    figure("P95 µs"),
    figure("P99 µs"),
    figure("P99.9 µs"),
)
_SKIPS = {
    Skip.DECLINED: "as asked",
    Skip.NO_FIO: "fio is not installed",
    Skip.OLD_FIO: "this fio is too old, 3.23 is needed",
    Skip.BROKEN_FIO: "fio is installed and does not start: try `fio --version`",
    Skip.NOT_ASKED: "other hosts share its array: probed only on request",
    Skip.UNCLASSIFIED: "it could not be classified",
    Skip.ZONED: "it is zoned",
    Skip.NOT_RUNNING: "it is not running",
    Skip.UNREADABLE: "its state could not be read",
    Skip.NO_SIZE: "it has no size",
    Skip.TOO_SMALL: "it is too small for this workload",
    Skip.NO_NODE: "it has no device node",
    Skip.UNSAFE_NAME: "its name cannot be written into fio's job file",
    Skip.FIXED_DEPTH: "its queue depth cannot be set to this value",
    Skip.BUSY: "it is busy",
    Skip.NOT_NAMED: "it would be written to, and was not named itself",
    Skip.MOUNTED: "it is mounted",
    Skip.SWAP: "it holds swap space in use",
    Skip.HELD: "other devices are built on it",
    Skip.MULTIPATH: "it belongs to a multipath map",
    Skip.PARTITIONED: "it has a partition table",
    Skip.SIGNED: "it holds data",
    Skip.UNKNOWN_CONTENT: "whether it holds data cannot be determined",
    Skip.TAKEN: "opened exclusively by another process",
    Skip.NOT_COUNTED: "whether it is busy is unknown: its iostats are off",
}
_FAILURES = {
    Failure.LAUNCH: "could not start",
    Failure.IO: "I/O error",
    Failure.EXIT: "fio failed",
    Failure.GARBAGE: "fio's output cannot be parsed",
    Failure.NO_IO: "no I/O was completed",
    Failure.TIMEOUT: "passed its deadline and was killed",
    Failure.STUCK: "passed its deadline and could not be killed: the disk does not answer",
}
BLANK = (
    "every block sampled is zero: never written to, or trimmed, it may have answered "
    "without reading its medium"
)
SATURATED = 0.9
"""Share of the CPUs' time beyond which they are measured, and not the drive."""


_STALE: Mapping[Stale, str] = {
    Stale.DRIVER: "its driver",
    Stale.FIRMWARE: "its firmware",
    Stale.KERNEL: "the kernel",
    Stale.GONE: "the disk is not there any more",
}
_DOUBTS = {
    Doubt.TOO_MANY: "untrusted: more in flight than issued",
    Doubt.TOO_FEW: "untrusted: under 90 % of the depth issued was in flight",
}


class ProbeTable(Struct, frozen=True):
    """A table of text, and the notes to print below it."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def before_after(pairs: Sequence[tuple[ProbeOutcome, ProbeOutcome | None]]) -> ProbeTable:
    """Return a table with the figures before and after, and their change, for each pair.

    The second of a pair is None where there was no second probe.
    """
    rows = [row for before, after in pairs for row in _rows(before, after)]
    notes = [note for before, after in pairs for note in _notes(before, after)]
    return ProbeTable(HEADERS, tuple(rows), tuple([READS_ONLY, *notes] if rows else notes))


def figures_table(found: ProbeTable) -> Table:
    """Return the figures as a table for people; every row has its target."""
    target, probe, *figures = found.headers
    table = Table([identity(target), identity(probe), *map(figure, figures)])
    named = ""
    for name, *cells in found.rows:
        named = name or named
        table.rows.append([named, *cells])
    return table


def why_not(outcome: Skipped | Failed) -> str:
    """Return the reason why an outcome has no figures."""
    if isinstance(outcome, Failed):
        return _why_failed(outcome)
    words = _SKIPS[outcome.reason]
    if outcome.load is not None:
        load = outcome.load
        words += f" ({load.utilisation:.0%} utilised, {load.in_flight} in flight)"
    if outcome.detail:
        words += f" ({_plain(outcome.detail)})"
    return words


def stands(result: ProbeResult, machine: Machine, profile: Profile | None) -> Standing | None:
    """Return the comparisons of a result with the shipped figures, None if its disk is gone."""
    return compare_on_machine(result, machine, profile, installed_library().yardsticks())


def standing_lines(result: ProbeResult, found: Standing, profile: str) -> Iterator[str]:
    """Yield one line each on the objective, the documents and the link, where known."""
    if found.goal is not None:
        yield f"{result.target}: {_goal(found.goal, profile)}."
    if found.document is not None:
        yield f"{result.target}: {_document(result, found)}."
    for link in found.links:
        yield f"{result.target}: {_link(link)}."
    if found.raid:
        yield f"{result.target}: {_raid(result.workload.pattern, found.raid)}."


def knee_line(knee: Knee) -> str:
    """Return the knee with its confidence interval and the gain of the next depth, as text."""
    if knee.past is None or knee.iops is None or knee.p99 is None:
        return f"no knee up to depth {knee.depth}: more depth may still give more IOPS"
    unsure = f" (it may be anywhere from {knee.low} to {knee.high})"
    return (
        f"past depth {knee.depth}: {_more(knee.iops)} IOPS for {_more(knee.p99)} p99"
        f"{unsure if knee.low < knee.high else ''}"
    )


def show_curves(found: Sequence[DepthSweep]) -> None:
    """Print the tails and knees of sweeps, and the depth at which the CPUs become the limit."""
    table = Table(_TAILS)
    for curve in found:
        for where, result in _tails(curve):
            figures = result.figures
            tails = (figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us)
            depth = str(result.workload.issued)
            table.rows.append([curve.name, depth, where, *map(digits, tails)])
    show_table(table)
    for curve in found:
        for line in _lines(curve):
            say(f"{curve.name}: {line}.")


def limits(results: Iterable[ProbeResult]) -> Iterator[str]:
    """Yield the depth at which the CPUs, and not the drive, become the limit, if they do."""
    for each in results:
        if each.figures.busy is not None and each.figures.busy >= SATURATED:
            share = percent(each.figures.busy)
            yield (
                f"from depth {each.workload.issued} on the CPUs are the limit: those involved are "
                f"busy {share} of the time"
            )
            return


def stale_notes(entries: Sequence[HistoryEntry]) -> Iterator[str]:
    """Yield a line for each thing that makes results stale."""
    for entry in entries:
        for stale in entry.stale:
            target = entry.record.target
            if stale.what is Stale.GONE:
                yield f"{target}: {_STALE[stale.what]}."
            else:
                yield (
                    f"{target}: stale: {_STALE[stale.what]} was {stale.then or 'unknown'} then and "
                    f"is {stale.now or 'unknown'} now (D1-3)."
                )


def doubt_text(result: ProbeResult) -> str:
    """Return why a result must not be trusted (D3-6), empty if it can be."""
    return "" if result.doubt is None else _DOUBTS[result.doubt]


def _rows(before: ProbeOutcome, after: ProbeOutcome | None) -> Iterator[tuple[str, ...]]:
    first = before.figures if isinstance(before, ProbeResult) else None
    second = after.figures if isinstance(after, ProbeResult) else None
    if first is None and second is None:
        return
    yield (_plain(before.target), "before", *_cells(first))
    yield ("", "after", *_cells(second))
    if first is not None and second is not None:
        yield ("", "change", *(_change(value(first), value(second)) for value in _COLUMNS))


def _cells(figures: Figures | None) -> list[str]:
    if figures is None:
        return [NOTHING] * len(_COLUMNS)
    return [digits(value(figures)) for value in _COLUMNS]


def _change(before: float, after: float) -> str:
    return percent_change(after / before) if before else NOTHING


def _notes(before: ProbeOutcome, after: ProbeOutcome | None) -> Iterator[str]:
    target = _plain(before.target)
    for when, outcome in (("before", before), ("after", after)):
        if isinstance(outcome, Skipped):
            again = "" if when == "before" else " again"
            yield f"{target}: not probed{again}: {why_not(outcome)}."
        elif isinstance(outcome, Failed):
            yield f"{target}: the probe {when} failed: {why_not(outcome)}."
        elif isinstance(outcome, ProbeResult):
            yield from (f"{target}, {when}: {doubt}." for doubt in _doubts(outcome))
    if isinstance(before, ProbeResult) and after is None:
        yield f"{target}: there was no second probe."


def _doubts(result: ProbeResult) -> Iterator[str]:
    figures = result.figures
    if result.blank:
        yield BLANK
    if not result.full:
        yield (
            f"of {result.workload.issued} I/Os asked for only {figures.concurrency:.1f} were in "
            "flight on average, so these figures do not show the disk at that depth"
        )
    if figures.ios < RARE:
        yield f"p99.9 is the slowest of only {figures.ios} I/Os"


def _why_failed(failed: Failed) -> str:
    words = _FAILURES[failed.reason]
    if failed.errno is not None:
        words += f" ({os.strerror(failed.errno)})"
    if failed.status is not None:
        words += f" (status {failed.status})"
    if failed.process is not None:
        words += f" (process {failed.process.pid})"
    if failed.text:
        words += f": {_plain(failed.text)}"
    return words


def _plain(text: str) -> str:
    """Return text of unknown origin on one line, without what a terminal could obey."""
    return printable(" ".join(text.split()))


def _more(share: float) -> str:
    return f"{percent(abs(share))} {'more' if share >= 0 else 'less'}"


def _goal(goal: Goal, profile: str) -> str:
    spare = percent(abs(goal.spare))
    words = {
        Headroom.MISSED: f"missed by {spare}",
        Headroom.SCANT: f"met, but with only {spare} to spare where 20 to 40 % are wise (D0-9)",
        Headroom.ENOUGH: f"met, with {spare} to spare",
        Headroom.AMPLE: f"met, with {spare} to spare, more than the 20 to 40 % of D0-9",
    }
    return (
        f"p99 is {digits(goal.measured_ms)} ms; {profile} wants at most {goal.p99_ms:g} ms "
        f"({goal.source}): {words[goal.headroom]}"
    )


def _document(result: ProbeResult, found: Standing) -> str:
    figures, document = result.figures, found.document
    assert document is not None
    here = "/".join(digits(us / 1000) for us in (figures.p95_us, figures.p99_us, figures.p999_us))
    there = f"{document.p95_ms:g}/{document.p99_ms:g}/{document.p999_ms:g}"
    depth = "" if found.same_depth else f", measured at depth {document.depth}"
    return (
        f"p95/p99/p99.9 of {here} ms and {digits(figures.iops)} IOPS at depth "
        f"{result.workload.issued}, beside {there} ms and {document.iops[0]} to "
        f"{document.iops[1]} IOPS on such a medium ({document.source}{depth})"
    )


def _link(link: LinkShare) -> str:
    text = (
        f"{digits(link.measured)} GB/s, {percent(link.used)} of what the link of {link.adapter} "
        f"carries ({digits(link.ceiling)} GB/s)"
    )
    if link.document is not None:
        text += f"; an adapter on such a link gave {digits(link.document)} ({link.source})"
    return text


def _raid(pattern: Pattern, figures: Sequence[RaidFigures]) -> str:
    """Return what pairs of such adapters gave, by RAID level, in the unit of the pattern."""
    field, unit = _CORNERS[pattern]
    levels = ", ".join(f"RAID {each.level} {digits(getattr(each, field))}" for each in figures)
    first = figures[0]
    return (
        f"{first.adapters} {first.card.split()[0]} with {first.drives} SSDs in such slots gave, in "
        f"{unit}: {levels} ({first.source})"
    )


_CORNERS = {
    Pattern.RANDOM_READ: ("random_read", "IOPS"),
    Pattern.RANDOM_WRITE: ("random_write", "IOPS"),
    Pattern.READ: ("read_gb_per_s", "GB/s"),
    Pattern.WRITE: ("write_gb_per_s", "GB/s"),
}


def _tails(curve: DepthSweep) -> Iterator[tuple[str, ProbeResult]]:
    """Yield the results whose tails are shown: the middle depth and the knee (D3-5)."""
    middle = curve.results[len(curve.results) // 2]
    at = None if curve.knee is None else curve.knee.depth
    knees = [each for each in curve.results if each.workload.issued == at]
    if middle in knees:
        yield "middle, and the knee", middle
        return
    yield "middle", middle
    for each in knees:
        yield "the knee", each


def _lines(curve: DepthSweep) -> Iterator[str]:
    if curve.knee is not None:
        yield knee_line(curve.knee)
    yield from limits(curve.results)
