"""`hbatune compare`: compare two hosts, or two snapshots of one; most important first."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from hbatune.act import paths
from hbatune.cli import arguments
from hbatune.errors import ExitCode, HbatuneError, UsageError
from hbatune.fleet.compare import compare_hosts
from hbatune.operations.snapshot import take_snapshot
from hbatune.probe import history
from hbatune.snapshot.file import load_snapshot
from hbatune.text import fleet_tables, terminal
from hbatune.text.leftovers import print_leftovers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compare`."""
    parser.add_argument("first", metavar="FIRST", type=Path)
    parser.add_argument("second", metavar="SECOND", nargs="?", type=Path)
    parser.add_argument("--history", metavar="FILE", action="append", type=Path, default=[])
    arguments.add_options(parser, "--json", "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the differences; exit 1 if there are any."""
    if len(args.history) > 2:
        raise UsageError("--history is given more than twice, and there are two hosts")
    first = load_snapshot(args.first)
    with_this_host = args.second is None
    second = take_snapshot(print_leftovers) if with_this_host else load_snapshot(args.second)
    one_host = first.machine.hostname == second.machine.hostname
    results = _load_results(args.history, with_this_host=with_this_host, one_host=one_host)
    comparison = compare_hosts(first, second, results)
    if args.json:
        terminal.show_json(comparison)
    else:
        fleet_tables.show_comparison(comparison)
    return ExitCode.FOUND if comparison.differences else 0


def _load_results(
    files: Sequence[Path], *, with_this_host: bool, one_host: bool
) -> tuple[Sequence[history.Record], Sequence[history.Record]]:
    """Return the results of each host; one history is enough for two snapshots of one host."""
    histories = [history.load_named(file).records for file in files]
    if with_this_host:
        own_records = histories[1] if len(histories) > 1 else _load_own()
        fallback = own_records if one_host else ()
        return (histories[0] if histories else fallback), own_records
    if one_host and len(histories) == 1:
        return histories[0], histories[0]
    histories += [(), ()]
    return histories[0], histories[1]


def _load_own() -> tuple[history.Record, ...]:
    try:
        return history.load(paths.HISTORY).records
    except HbatuneError as error:
        terminal.print_note(f"{error.message}: the results of this host are omitted")
        return ()
