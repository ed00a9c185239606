"""Text on probes of one disk or of all disks of an adapter, and the history as a table.

Text on probes: workloads, reasons for no figures, comparisons, sweeps.

Text on disks of one adapter that were probed at once: what holds them back, and the figures.

The history as one table of comma-separated values: a line for each run with its figures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hbatune.facts.model import Machine
from hbatune.policy.library import MediumFigures, RaidFigures, installed_library
from hbatune.policy.profile import Profile
from hbatune.probe.comparison import (
    Goal,
    Headroom,
    LinkShare,
    MixCost,
    Standing,
    compare_on_machine,
    mix_cost,
)
from hbatune.probe.history import Bottleneck, HistoryEntry, KeptTogether, Stale
from hbatune.probe.knee import Knee
from hbatune.probe.result import (
    Doubt,
    Failed,
    Failure,
    Pattern,
    ProbeResult,
    Served,
    Skip,
    Skipped,
    Workload,
)
from hbatune.probe.sweeps import DepthSweep, JobsAdvice, Swept, advise_jobs
from hbatune.text.basic_output import quantity
from hbatune.text.tables import Table, figure, identity, value
from hbatune.text.terminal import Field, csv_text, printable, say, show_table
from hbatune.text.units import beside, brief, digits, percent, rate

if TYPE_CHECKING:
    from hbatune.operations.probe import Together
    from hbatune.probe.history import KeptTogether
    from hbatune.probe.together import TogetherResult


READS_ONLY = "The probe only reads: it cannot see how writes queue."
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
    Skip.NO_FIO: "fio is not installed",
    Skip.OLD_FIO: "this fio is too old, 3.23 is needed",
    Skip.BROKEN_FIO: "fio is installed and does not start: try `fio --version`",
    Skip.NOT_ASKED: "other hosts share its array: probed only on request",
    Skip.EXCLUDED: "it is excluded in [site]",
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
    Skip.NO_TIME: "no time",
    Skip.CONFLICT: "its queue depth was changed during the runs, and not by hbatune: it stays so",
    Skip.NOT_RESTORED: "its queue depth could not be restored: run `hbatune rollback`",
    Skip.UNSWITCHABLE: "what was changed cannot be switched back and forth",
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
}
_DOUBTS = {
    Doubt.TOO_MANY: "untrusted: more in flight than issued",
    Doubt.TOO_FEW: "untrusted: under 90 % of the depth issued was in flight",
}


def shape_text(workload: Workload) -> str:
    """Return a workload in a few words: block size, order, mix, depth."""
    jobs = f" in {quantity(workload.jobs, 'job')}" if workload.jobs > 1 else ""
    if workload.rate is not None:
        most = f"at most {workload.issued} in flight"
        return f"{load_text(workload)}, {workload.rate} a second, {most}{jobs}"
    return f"{load_text(workload)}, {workload.issued} in flight{jobs}"


def load_text(workload: Workload) -> str:
    """Return a workload but for its depth: block size, order, mix."""
    size = workload.block_size
    block = f"{size // 1024}K" if size % 1024 == 0 else quantity(size, "byte")
    order = "sequential" if workload.pattern in (Pattern.READ, Pattern.WRITE) else "random"
    what = "reads" if workload.pattern in (Pattern.READ, Pattern.RANDOM_READ) else "writes"
    if workload.pattern is Pattern.RANDOM_MIX:
        what = f"{workload.reads} % reads and {100 - workload.reads} % writes"
    return f"{block} {order} {what}{beside(workload)}"


def why_not(outcome: Skipped | Failed) -> str:
    """Return the reason why an outcome has no figures."""
    if isinstance(outcome, Failed):
        return _why_failed(outcome)
    words = _SKIPS[outcome.reason]
    if outcome.load is not None:
        load = outcome.load
        words += f" ({percent(load.utilisation)} utilised, {load.in_flight} in flight)"
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
        if found.document.mean_ms is not None:
            yield f"{result.target}: {_mean(result, found.document)}."
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


def jobs_line(advice: JobsAdvice) -> str:
    """Return how many jobs are enough, and how deep each, as text (D0-14)."""
    jobs, each = quantity(advice.jobs, "job"), "" if advice.jobs == 1 else " each"
    if advice.jobs == advice.most:
        return f"fewer than {jobs} give fewer IOPS, and more may give more (D0-14)"
    return (
        f"{jobs} {advice.depth} deep{each} do as much as {quantity(advice.most, 'job')}, "
        "within 5 %: more threads, or deeper ones, wait for each other (D0-14)"
    )


def mix_line(found: MixCost) -> str:
    """Return what a mix costs beside the document's figures, as text."""
    low, high = (round(100 * each) for each in found.document)
    more = "cost" if found.cost >= 0 else "gain"
    return (
        f"{found.reads} % reads {more} {percent(abs(found.cost))} of the IOPS of reads alone, "
        f"beside {low} to {high} % ({found.source})"
    )


def show_curves(found: Sequence[DepthSweep]) -> None:
    """Print the tails and knees of sweeps, and the depth at which the CPUs become the limit."""
    table = Table(_TAILS)
    for curve in found:
        for where, result in _tails(curve):
            figures = result.figures
            tails = (figures.p50_us, figures.p95_us, figures.p99_us, figures.p999_us)
            depth = str(result.workload.issued)
            table.rows.append([_curve_name(curve, found), depth, where, *map(digits, tails)])
    show_table(table)
    for curve in found:
        for line in _lines(curve):
            say(f"{_curve_name(curve, found)}: {line}.")
    alike: dict[object, list[DepthSweep]] = {}
    for curve in found:
        load = replace(Swept.DEPTH.without(curve.results[0].workload), jobs=1)
        alike.setdefault((curve.target, load), []).append(curve)
    for curves in alike.values():
        if (advice := advise_jobs(curves)) is not None:
            say(f"{curves[0].name}: {jobs_line(advice)}.")


def _curve_name(curve: DepthSweep, found: Sequence[DepthSweep]) -> str:
    """Return the name of a sweep; of several on one disk, with its load."""
    alike = sum(each.name == curve.name for each in found)
    asked = curve.results[0].workload
    jobs = f" in {quantity(asked.jobs, 'job')}" if asked.jobs > 1 else ""
    return curve.name if alike == 1 else f"{curve.name}, {load_text(asked)}{jobs}"


def limits(results: Iterable[ProbeResult]) -> Iterator[str]:
    """Yield the depth at which the CPUs, and not the drive, become the limit, if they do."""
    for result in results:
        if result.figures.busy is not None and result.figures.busy >= SATURATED:
            share = percent(result.figures.busy)
            yield (
                f"from depth {result.workload.issued} on the CPUs are the limit: those involved "
                f"are busy {share} of the time"
            )
            return


def stale_notes(entries: Sequence[HistoryEntry]) -> Iterator[str]:
    """Yield a line for each thing that makes results stale, and for rules that rest on them."""
    newest = {entry.record.rule: entry for entry in entries}
    for entry in entries:
        for stale in entry.stale:
            target = entry.record.target
            if stale.what is Stale.GONE:
                what = "adapter" if entry.record.together is not None else "disk"
                yield f"{target}: the {what} is not there any more."
            else:
                yield (
                    f"{target}: stale: {_STALE[stale.what]} was {stale.then or 'unknown'} then and "
                    f"is {stale.now or 'unknown'} now (D1-3)."
                )
        rule = entry.record.rule
        if entry.stale and rule is not None and newest[rule] is entry:
            yield (
                f"{rule} was measured then: `hbatune autotune {entry.record.target}` "
                "measures it again."
            )


def doubt_text(result: ProbeResult | TogetherResult | KeptTogether) -> str:
    """Return why a result must not be trusted (D3-6), empty if it can be."""
    if result.doubt is None:
        return ""
    if result.doubt is Doubt.RATE:
        disks = 1 if isinstance(result, ProbeResult) else len(result.targets)
        asked = disks * (result.workload.rate or 0)
        return f"the rate could not be held: {digits(result.figures.iops)} of {asked} a second"
    return _DOUBTS[result.doubt]


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


def _mean(result: ProbeResult, document: MediumFigures) -> str:
    assert document.mean_ms is not None
    low, high = document.mean_ms
    there = f"about {low:g}" if low == high else f"{low:g} to {high:g}"
    return (
        f"a mean of {digits(result.figures.mean_us / 1000)} ms at depth {result.workload.issued}, "
        f"beside {there} ms on such a medium at a depth that is not told ({document.mean_source})"
    )


def mix_lines(results: Sequence[ProbeResult]) -> Iterator[str]:
    """Yield what a mix costs on each target, where that was measured and a document tells it."""
    yardsticks = installed_library().yardsticks()
    for target in dict.fromkeys(result.target for result in results):
        own = [result for result in results if result.target == target]
        if (found := mix_cost(own, yardsticks)) is not None:
            yield f"{target}: {mix_line(found)}."


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
    knees = [result for result in curve.results if result.workload.issued == at]
    if middle in knees:
        yield "middle, and the knee", middle
        return
    yield "middle", middle
    for knee in knees:
        yield "the knee", knee


def _lines(curve: DepthSweep) -> Iterator[str]:
    if curve.knee is not None:
        yield knee_line(curve.knee)
    yield from limits(curve.results)


NO_TWO = "no adapter has two of these disks with figures, so that none were probed together"


def together_lines(found: Together) -> Iterator[str]:
    """Yield a line for each run on the disks of an adapter, or why there is none."""
    for result in found.results:
        yield f"{result.adapter}: {_figures(result)}: {bottleneck_text(result)}."
        if result.doubt is not None:
            yield f"{result.adapter}: that is {doubt_text(result)}."
    for failed in found.failed:
        yield f"{failed.target}: not probed together: {why_not(failed)}."
    if not found.results and not found.failed:
        yield f"Not probed together: {NO_TWO}."


def _figures(found: TogetherResult) -> str:
    alone = sum(each.figures.iops for each in found.alone)
    gb_per_s = found.figures.bandwidth / 1e9
    return (
        f"{quantity(len(found.targets), 'disk')} at once do {rate(found.figures.iops)} IOPS "
        f"({digits(gb_per_s)} GB/s), {percent(found.share)} of the {rate(alone)} that they do one "
        f"at a time ({brief(found.workload)} on each)"
    )


def bottleneck_text(found: TogetherResult | KeptTogether) -> str:
    """Return what holds the disks of an adapter back, with the figure that shows it."""
    match found.bottleneck:
        case Bottleneck.DISKS:
            return "the disks are the limit, and the adapter carries them all"
        case Bottleneck.LINK:
            assert found.ceiling is not None
            used = percent(found.figures.bandwidth / 1e9 / found.ceiling)
            return (
                f"the link is the limit: {used} of the {digits(found.ceiling)} GB/s that it "
                "carries as it runs now"
            )
        case Bottleneck.CPU:
            return (
                "the CPUs are the limit: those that serve its interrupts, or fio's own, are busy "
                f"{percent(found.busy)} of the time"
            )
        case Bottleneck.ADAPTER:
            return "the adapter is the limit: neither its link nor the CPUs are full"


HEAD = (
    *("when", "target", "id", "command", "profile", "kernel", "driver", "firmware"),
    *("pattern", "block_bytes", "reads_percent", "depth", "jobs", "rate", "queue_depth", "writer"),
    *("iops", "bytes_per_second", "mean_us", "p50_us", "p95_us", "p99_us", "p999_us"),
    *("cpu_us_per_io", "interrupt_us_per_io", "busy", "in_flight", "written_beside_per_second"),
    *("doubt", "verdict", "stale"),
)
"""The columns; ``in_flight`` is by Little's law, ``depth`` is that of each job.

A run on all disks of an adapter has the adapter as its target, and the load of each disk.
"""


def history_csv(entries: Iterable[HistoryEntry]) -> str:
    """Return the runs of a history as CSV (D3-9), in the order of the entries."""
    return csv_text(HEAD, _rows(entries))


def _rows(entries: Iterable[HistoryEntry]) -> Iterator[tuple[Field, ...]]:
    for entry in entries:
        record = entry.record
        measured = record.result or record.together
        if measured is None:
            continue
        asked, figures, served = measured.workload, measured.figures, _served(measured)
        doubt = record.result.doubt if record.result is not None else None
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(record.time))
        yield (
            *(when, record.target, record.id, record.command, record.profile, record.kernel),
            " ".join(str(each.driver) for each in served),
            " ".join(str(each.firmware) for each in served),
            *(asked.pattern, asked.block_size, asked.reads, asked.depth, asked.jobs, asked.rate),
            *(asked.queue_depth, "yes" if asked.writer else "no"),
            *(figures.iops, figures.bandwidth, figures.mean_us, figures.p50_us, figures.p95_us),
            *(figures.p99_us, figures.p999_us, figures.cpu_us_per_io, figures.interrupt_us_per_io),
            *(figures.busy, figures.concurrency, figures.written_beside, doubt),
            None if record.proof is None else record.proof.verdict.word,
            " ".join(each.what for each in entry.stale),
        )


def _served(measured: ProbeResult | KeptTogether) -> tuple[Served, ...]:
    if isinstance(measured, KeptTogether):
        return () if measured.served is None else (measured.served,)
    return measured.served
