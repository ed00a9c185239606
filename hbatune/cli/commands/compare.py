"""`hbatune compare`: compare two hosts, or two snapshots of one; most important first."""

import argparse
from pathlib import Path

from hbatune.cli import arguments
from hbatune.errors import ExitCode
from hbatune.fleet.compared_facts import compare_hosts
from hbatune.operations.snapshot import take_snapshot
from hbatune.snapshot.file import load_snapshot
from hbatune.text import fleet_tables, terminal
from hbatune.text.leftovers import print_leftovers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `compare`."""
    parser.add_argument("first", metavar="FIRST", type=Path)
    parser.add_argument("second", metavar="SECOND", nargs="?", type=Path)
    arguments.add_options(parser, "--json", "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the differences; exit 1 if there are any."""
    first = load_snapshot(args.first)
    second = load_snapshot(args.second) if args.second else take_snapshot(print_leftovers)
    comparison = compare_hosts(first, second)
    if args.json:
        terminal.show_json(comparison)
    else:
        fleet_tables.show_comparison(comparison, (str(args.first), str(args.second or "now")))
    return ExitCode.FOUND if comparison.differences else 0
