"""The text of two probes side by side: rows for a table, and notes on what they do not show."""

import os
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from hbatune.probe.model import Failed, Failure, Figures, ProbeOutcome, ProbeResult, Skip, Skipped

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
NONE = "-"

_COLUMNS: tuple[Callable[[Figures], float], ...] = (
    lambda figures: figures.iops,
    lambda figures: figures.mean_us,
    lambda figures: figures.p50_us,
    lambda figures: figures.p95_us,
    lambda figures: figures.p99_us,
    lambda figures: figures.p999_us,
    lambda figures: figures.cost_us_per_io,
)

_SKIPS = {
    Skip.DECLINED: "as asked",
    Skip.NO_FIO: "fio is not installed",
    Skip.OLD_FIO: "this fio is too old, 3.23 is needed",
    Skip.NOT_ASKED: "other hosts share its array, so only when asked for",
    Skip.UNCLASSIFIED: "it could not be classified",
    Skip.ZONED: "it is zoned",
    Skip.NOT_RUNNING: "it is not running",
    Skip.UNREADABLE: "its state could not be read",
    Skip.NO_SIZE: "it has no size",
    Skip.TOO_SMALL: "it is too small for this workload",
    Skip.NO_NODE: "it has no device node",
    Skip.UNSAFE_NAME: "fio cannot be given its name",
    Skip.FIXED_DEPTH: "its own queue depth cannot be set so",
    Skip.BUSY: "it is busy",
    Skip.NOT_NAMED: "it would be written to, and was not named itself",
    Skip.MOUNTED: "it is mounted",
    Skip.SWAP: "it holds swap space in use",
    Skip.HELD: "other devices stand on it",
    Skip.MULTIPATH: "it belongs to a multipath map",
    Skip.PARTITIONED: "it has a partition table",
    Skip.SIGNED: "it holds something",
    Skip.UNKNOWN_CONTENT: "nobody can tell whether it holds something",
    Skip.TAKEN: "somebody has it open for himself alone",
    Skip.NOT_COUNTED: "nobody knows whether it is busy, since its iostats are off",
}

_FAILURES = {
    Failure.LAUNCH: "could not start",
    Failure.IO: "I/O error",
    Failure.EXIT: "fio failed",
    Failure.GARBAGE: "fio's output makes no sense",
    Failure.NO_IO: "not one I/O was completed",
    Failure.TIMEOUT: "passed its deadline and was killed",
    Failure.STUCK: "passed its deadline and could not be killed: the disk does not answer",
}


class Table(Struct, frozen=True):
    """A table of text, and the notes to print below it."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def before_after(pairs: Sequence[tuple[ProbeOutcome, ProbeOutcome | None]]) -> Table:
    """Return the figures before, after and their change for each pair of probes of one target.

    The second of a pair is None where there was no second probe.
    """
    rows = [row for before, after in pairs for row in _rows(before, after)]
    notes = [note for before, after in pairs for note in _notes(before, after)]
    return Table(HEADERS, tuple(rows), tuple([READS_ONLY, *notes] if rows else notes))


def why_not(outcome: Skipped | Failed) -> str:
    """Return in words why an outcome has no figures."""
    if isinstance(outcome, Failed):
        return _why_failed(outcome)
    words = _SKIPS[outcome.reason]
    if outcome.load is not None:
        load = outcome.load
        words += f" ({load.utilisation:.0%} utilised, {load.in_flight} in flight)"
    if outcome.detail:
        words += f" ({_plain(outcome.detail)})"
    return words


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
        return [NONE] * len(_COLUMNS)
    return [digits(value(figures)) for value in _COLUMNS]


def digits(value: float) -> str:
    """Return three digits that mean something, and all that stand before the point."""
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f}"


def _change(before: float, after: float) -> str:
    return f"{(after - before) / before:+.0%}".replace("%", " %") if before else NONE


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


BLANK = (
    "it holds nothing but zeros where one looked: never written to, or trimmed, it may have "
    "answered without reading its medium"
)


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
    """Return text of unknown origin on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text).strip()
