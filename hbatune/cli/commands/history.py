"""`hbatune history`: the results of this machine, run by run, with the stale ones marked."""

import argparse
import time
from collections.abc import Sequence

from msgspec import Struct

from hbatune.act import paths
from hbatune.cli.arguments import add_json, add_targets
from hbatune.cli.text.output import Table, say, show_json
from hbatune.cli.text.probes import NONE, knee_line, stale_notes
from hbatune.cli.text.units import digits, percent_change
from hbatune.cli.text.verdicts import change_text
from hbatune.facts.machine import gather
from hbatune.facts.model import Machine
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.operations.situation import configuration, resolved
from hbatune.probe import history
from hbatune.probe.history import SCHEMA, HistoryEntry, Record, history_entries

HEADINGS = ("WHEN", "TARGET", "WHAT", "IOPS", "MEAN µs", "P99 µs", "SINCE THE LAST", "VERDICT")


class HistoryDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `history`, the oldest result first."""

    schema: str = SCHEMA

    hostname: str
    entries: tuple[HistoryEntry, ...]


SUMMARY = "what was measured, run against run, and which results are stale"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `history`."""
    add_targets(parser, "whose results to show")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the results; it changes nothing."""
    records = history.load(paths.HISTORY).records
    deadline = configuration().act.deadline_seconds
    machine = gather((), deadline=deadline)
    wanted = _ids(args.targets, machine, records)
    entries = history_entries(
        [each for each in records if wanted is None or each.id in wanted], machine
    )
    if args.json:
        show_json(HistoryDocument(hostname=machine.hostname, entries=tuple(entries)))
        return 0
    if not entries:
        say("Nothing has been measured yet: `hbatune probe` and `hbatune apply` do.")
        return 0
    Table(HEADINGS, [_cells(entry) for entry in entries], frozenset({3, 4, 5})).show()
    for line in dict.fromkeys(stale_notes(entries)):
        say(line)
    return 0


def _ids(
    targets: Sequence[str], machine: Machine, records: Sequence[Record]
) -> frozenset[str] | None:
    """Return the ids of the targets; a disk that is gone is still known by its results."""
    if not targets:
        return None
    ids: set[str] = set()
    for name in map(resolved, targets):
        # The name of a gone disk may belong to another one now: then the present one counts.
        gone = {each.id for each in records if name in (each.target, each.id)}
        try:
            ids |= named(machine, [name])
        except UnknownTargetError:
            if not gone:
                raise
            ids |= gone
    return frozenset(ids)


def _cells(entry: HistoryEntry) -> list[str]:
    record = entry.record
    figures = None if record.result is None else record.result.figures
    values = (
        [NONE] * 3
        if figures is None
        else [digits(each) for each in (figures.iops, figures.mean_us, figures.p99_us)]
    )
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.time))
    return [when, record.target, _what(record), *values, _since(entry), _verdict(entry)]


def _what(record: Record) -> str:
    depth = f", queue depth {record.queue_depth}" if record.queue_depth else ""
    if record.proof is None:
        return f"{record.command}{depth}"
    alone = f" ({record.proof.group} alone)" if record.proof.group else ""
    return f"{record.command}: {' '.join(record.proof.settings)}{alone}"


def _since(entry: HistoryEntry) -> str:
    if entry.since is None:
        return NONE
    parts = (("IOPS", entry.since.iops), ("p99", entry.since.p99))
    return ", ".join(f"{name} {percent_change(ratio)}" for name, ratio in parts)


def _verdict(entry: HistoryEntry) -> str:
    proof, knee = entry.record.proof, entry.record.knee
    if knee is not None:
        return knee_line(knee)
    if proof is None:
        return "stale" if entry.stale else NONE
    words = [str(proof.verdict.word)]
    words += [change_text(each) for each in proof.verdict.changes if each.beyond][:1]
    if entry.record.reverted:
        words.append(f"{' '.join(entry.record.reverted)} reverted")
    return ", ".join([*words, *(("stale",) if entry.stale else ())])
