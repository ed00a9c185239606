"""`hbatune history`: the results and the drift of this machine, the latest first."""

import argparse
from collections.abc import Iterator, Sequence
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.paths import Paths
from hbatune.act.system import Drift, list_drift
from hbatune.cli import arguments
from hbatune.facts.machine import gather_machine
from hbatune.facts.names import group_items
from hbatune.facts.targets import find_named_targets
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library
from hbatune.probe import history
from hbatune.probe.comparison import Standing, compare_on_machine
from hbatune.probe.history import SCHEMA, HistoryEntry, Record, list_entries
from hbatune.probe.result import Workload
from hbatune.probe.selection import choose_representatives
from hbatune.text import probe_tables, units
from hbatune.text.basic_output import format_count
from hbatune.text.tables import Table, load_columns
from hbatune.text.terminal import print_line, show_csv, show_json, show_table
from hbatune.text.verdict_tables import format_metric_change


class HistoryDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `history`, the oldest result and the oldest drift first."""

    schema: str = SCHEMA
    hostname: str
    entries: tuple[HistoryEntry, ...]
    drift: tuple[Drift, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `history`."""
    arguments.add_targets(parser, "targets of the results")
    arguments.add_options(parser, "--json", "--runs", "--csv", "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the results; it changes nothing."""
    records = history.load(Paths.history).records
    machine = gather_machine((), deadline=load_configuration().act.deadline_seconds)
    wanted = None
    if args.targets:
        adapter_ids = {r.id for r in records if r.together and r.target in args.targets}
        past = [(record.target, record.id) for record in records]
        wanted = find_named_targets(machine, args.targets, past) | adapter_ids
    chosen = [record for record in records if wanted is None or record.id in wanted]
    entries = list_entries(chosen, machine)
    drift = tuple(entry for entry in list_drift() if wanted is None or entry.id in wanted)
    if args.json:
        show_json(HistoryDocument(hostname=machine.hostname, entries=tuple(entries), drift=drift))
        return 0
    if args.csv:
        show_csv("history", probe_tables.list_csv_rows(entries))
        return 0
    if not entries and not drift:
        disks = choose_representatives(machine, machine.endpoints_by_target, shared=True).subjects
        disk = [*args.targets, *(subject.target for subject in disks), "DISK"][0]
        print_line(f"Nothing has been measured yet: run `sudo hbatune probe depth-sweep {disk}`.")
        return 0
    # Only the record of a sweep's knee has a workload itself, and it is not a run.
    shown = [entry for entry in reversed(entries) if not args.runs or not entry.record.workload]
    rows = group_items(shown, id if args.runs else _get_row_key).values()
    table, yardsticks = Table(load_columns("history")), installed_library().yardsticks()
    timed_cells = []
    for row in rows:
        run = None if row[0].record.knee is None else row[-1].record.result
        standing = None if run is None else compare_on_machine(run, machine, None, yardsticks)
        timed_cells.append((row[0].record.time, _make_cells(row, standing)))
    for entry in reversed(drift):
        cells = [units.format_time(entry.time), entry.target, f"drift: {entry.setting}"]
        message = entry.message.removeprefix(f"{entry.target}: ")
        timed_cells.append((entry.time, [*cells, message]))
    timed_cells.sort(key=itemgetter(0), reverse=True)
    table.rows += [cells for _, cells in timed_cells]
    show_table(table)
    for line in dict.fromkeys(probe_tables.describe_stale(entries)):
        print_line(line)
    results = [entry.record.result for entry in entries if entry.record.result is not None]
    probe_tables.show_document_tables(results, machine)
    return 0


def _get_workload(record: Record) -> Workload | None:
    return (record.result or record.together or record).workload


def _get_row_key(entry: HistoryEntry) -> object:
    """Return a key that the runs of a sweep and its knee share."""
    record, workload = entry.record, _get_workload(entry.record)
    if workload is None or record.proof is not None:
        return id(entry)
    disks = () if record.together is None else record.together.targets
    # A sweep changes the depth, the block size, the mix or the rate.
    load = replace(workload, depth=1, block_size=512, reads=100, rate=None)
    return record.id, record.boot_id, record.command, record.time, disks, load


def _make_cells(row: Sequence[HistoryEntry], standing: Standing | None) -> list[str]:
    """Return the cells of one result, or of a sweep: its knee and its runs, the last one first."""
    measured = [run for e in row if (run := e.record.result or e.record.together) is not None]
    results = []
    if len(measured) == 1:
        figures = measured[0].figures
        mean, p99 = units.format_latency(figures.mean_us), units.format_latency(figures.p99_us)
        results = [f"{units.format_rate(figures.iops)} IOPS", f"mean {mean}", f"p99 {p99}"]
        results += filter(None, [probe_tables.describe_doubt(measured[0])])
        result, since = row[0].record.result, row[0].since
        # Two single runs do not show a change in percent.
        if result is not None and since is not None:
            iops = units.format_rate(result.figures.iops / since.iops)
            p99 = units.format_latency(result.figures.p99_us / since.p99)
            results.append(f"the last time {iops} IOPS and p99 {p99}")
    elif measured:
        # A run that must not be trusted is the best one only if all are like it.
        best = max(measured, key=lambda run: (run.doubt is None, run.figures.iops))
        untrusted = sum(run.doubt is not None for run in measured)
        top, count = units.format_rate(best.figures.iops), format_count(len(measured), "run")
        results = [f"up to {top} IOPS in {count}{f' ({untrusted} untrusted)' if untrusted else ''}"]
    results += _describe_verdict(row, standing)
    record, what = row[0].record, _describe_work(row)
    return [units.format_time(record.time), record.target, what, ", ".join(results)]


def _describe_work(row: Sequence[HistoryEntry]) -> str:
    """Return the command and its load, or the loads of a sweep from its first to its last run."""
    record = row[0].record
    first, last = _get_workload(row[-1].record), _get_workload(record)
    if record.proof is not None:
        group_text = f" ({record.proof.group} alone)" if record.proof.group else ""
        return f"{record.command}: {' '.join(record.proof.settings)}{group_text}"
    if first is None or last is None:
        return record.command
    loads = " to ".join(dict.fromkeys(map(probe_tables.format_load, (first, last))))
    depths = " to ".join(dict.fromkeys((str(first.issued), str(last.issued))))
    text = f"{record.command}, {loads}, {depths} in flight{probe_tables.format_jobs(first)}"
    if first.queue_depth is not None:
        text += f", queue depth {first.queue_depth}"
    if record.together is not None:
        text += f" on each of {format_count(len(record.together.targets), 'disk')} at once"
    return text


def _describe_verdict(row: Sequence[HistoryEntry], standing: Standing | None) -> Iterator[str]:
    record = row[0].record
    proof = record.proof
    if record.traced is not None:
        yield probe_tables.describe_cause(record.traced)
    if record.knee is not None:
        yield probe_tables.describe_knee(record.knee, standing)
    elif record.together is not None:
        limits = dict.fromkeys(str(e.record.together.bottleneck) for e in row if e.record.together)
        yield f"limit: {' or '.join(limits)}"
    elif proof is None:
        for setting in record.settings:
            yield f"{setting.setting} {setting.after} is better than {setting.before}"
    else:
        yield str(proof.verdict.word)
        yield from map(format_metric_change, [c for c in proof.verdict.changes if c.beyond][:1])
        if record.reverted:
            yield f"{' '.join(record.reverted)} reverted"
    if any(member.stale for member in row):
        yield "stale"
