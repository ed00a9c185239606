"""`hbatune history`: the results of this machine, with stale ones marked."""

import argparse
from collections.abc import Sequence

from msgspec import Struct

from hbatune.act import paths
from hbatune.cli import arguments
from hbatune.facts.machine import gather_machine
from hbatune.facts.model import Machine
from hbatune.facts.targets import find_named_targets
from hbatune.policy.config import load_configuration
from hbatune.policy.library import installed_library
from hbatune.probe import history
from hbatune.probe.comparison import Standing, compare_on_machine
from hbatune.probe.history import SCHEMA, HistoryEntry, Record, list_entries
from hbatune.probe.result import ProbeResult
from hbatune.text import probe_tables
from hbatune.text.basic_output import format_count
from hbatune.text.tables import EMPTY_CELL, Table, make_columns
from hbatune.text.terminal import print_line, show_csv, show_json, show_table
from hbatune.text.units import format_block_size, format_depth_share, format_digits, format_time
from hbatune.text.verdict_tables import format_metric_change

_COLUMNS = make_columns(
    "id WHEN | id TARGET | reason WHAT | number BLOCK | number DEPTH | number JOBS | number IOPS | "
    "number OF DEPTH | number MEAN µs | number P99 µs | value THE LAST TIME | reason VERDICT"
)


class HistoryDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of `history`, the oldest result first."""

    schema: str = SCHEMA
    hostname: str
    entries: tuple[HistoryEntry, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `history`."""
    arguments.add_targets(parser, "targets of the results")
    arguments.add_shared(parser, "--json")
    arguments.add_flag(parser, "--csv", "print every run as comma-separated values")
    arguments.add_shared(parser, "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the results; it changes nothing."""
    records = history.load(paths.HISTORY).records
    deadline = load_configuration().act.deadline_seconds
    machine = gather_machine((), deadline=deadline)
    wanted = _resolve_ids(args.targets, machine, records)
    chosen = [record for record in records if wanted is None or record.id in wanted]
    entries = list_entries(chosen, machine)
    if args.json:
        show_json(HistoryDocument(hostname=machine.hostname, entries=tuple(entries)))
        return 0
    if args.csv:
        show_csv(probe_tables.format_history_csv(entries))
        return 0
    if not entries:
        print_line("Nothing has been measured yet: `hbatune probe` and `hbatune apply` do.")
        return 0
    runs: dict[object, ProbeResult] = {}
    for record in chosen:
        if record.result is not None:
            runs[record.id, record.time, record.command, record.result.workload] = record.result
    table, yardsticks = Table(_COLUMNS), installed_library().yardsticks()
    for entry in entries:
        record = entry.record
        # The record of a knee has the workload of its sweep's last run.
        last = runs.get((record.id, record.time, record.command, record.workload))
        standing = None if last is None else compare_on_machine(last, machine, None, yardsticks)
        table.rows.append(_make_cells(entry, standing))
    show_table(table)
    for line in dict.fromkeys(probe_tables.describe_stale(entries)):
        print_line(line)
    results = [entry.record.result for entry in entries if entry.record.result is not None]
    probe_tables.show_document_tables(results, machine)
    return 0


def _resolve_ids(
    targets: Sequence[str], machine: Machine, records: Sequence[Record]
) -> frozenset[str] | None:
    if not targets:
        return None
    ids = set[str]()
    for record in records:
        if record.together is not None and record.target in targets:
            ids.add(record.id)
    past = [(record.target, record.id) for record in records]
    return find_named_targets(machine, targets, past) | ids


def _make_cells(entry: HistoryEntry, standing: Standing | None) -> list[str]:
    record = entry.record
    measured = record.result or record.together
    workload = record.workload if measured is None else measured.workload
    metrics = [EMPTY_CELL] * 7
    if workload is not None:
        metrics[0], metrics[2] = format_block_size(workload.block_size), str(workload.jobs)
    if measured is not None:
        disks = 1 if record.together is None else len(record.together.targets)
        figures, metrics[1] = measured.figures, str(measured.workload.depth)
        share = format_depth_share(measured.workload, figures, disks)
        times = map(format_digits, (figures.mean_us, figures.p99_us))
        metrics[3:] = [format_digits(figures.iops), share, *times]
    first = [format_time(record.time), record.target, _describe_record(record)]
    return [*first, *metrics, _describe_previous(entry), _describe_verdict(entry, standing)]


def _describe_record(record: Record) -> str:
    depth = f", queue depth {record.queue_depth}" if record.queue_depth else ""
    if (together := record.together) is not None:
        disks = format_count(len(together.targets), "disk")
        load = probe_tables.format_shape(together.workload)
        return f"{record.command}, {load} on each of {disks} at once"
    if record.proof is None:
        load = f", {probe_tables.format_load(record.workload)}" if record.workload else ""
        return f"{record.command}{load}{depth}"
    group_text = f" ({record.proof.group} alone)" if record.proof.group else ""
    return f"{record.command}: {' '.join(record.proof.settings)}{group_text}"


def _describe_previous(entry: HistoryEntry) -> str:
    """Return the results of the previous run; two single runs do not show a change in percent."""
    result, since = entry.record.result, entry.since
    if result is None or since is None:
        return EMPTY_CELL
    figures = result.figures
    iops, p99 = figures.iops / since.iops, figures.p99_us / since.p99
    return f"{format_digits(iops)} IOPS, p99 {format_digits(p99)} µs"


def _describe_verdict(entry: HistoryEntry, standing: Standing | None) -> str:
    record = entry.record
    proof, knee = record.proof, record.knee
    if knee is not None:
        return probe_tables.describe_knee(knee, standing)
    if record.together is not None:
        parts = [f"limit: {record.together.bottleneck}"]
    elif proof is None:
        parts = []
        for setting in record.settings:
            parts.append(f"{setting.setting} {setting.after} is better than {setting.before}")
    else:
        beyond = [change for change in proof.verdict.changes if change.beyond]
        parts = [str(proof.verdict.word), *map(format_metric_change, beyond[:1])]
        if record.reverted:
            parts.append(f"{' '.join(record.reverted)} reverted")
    if entry.stale:
        parts.append("stale")
    return ", ".join(parts) or EMPTY_CELL
