"""`hbatune snapshot`: save all facts about this host to one small file. It needs no root."""

import argparse
from pathlib import Path

from hbatune.cli import arguments
from hbatune.operations.snapshot import take_snapshot
from hbatune.snapshot.anonymous import anonymise_snapshot
from hbatune.snapshot.file import encode_snapshot
from hbatune.text.basic_output import format_count
from hbatune.text.leftovers import print_leftovers
from hbatune.text.terminal import print_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `snapshot`."""
    parser.add_argument("file", metavar="FILE", type=Path)
    arguments.add_options(parser, "--anonymous", "--force")


def run(args: argparse.Namespace) -> int:
    """Write the snapshot."""
    snapshot = take_snapshot(print_leftovers)
    data = encode_snapshot(anonymise_snapshot(snapshot) if args.anonymous else snapshot)
    arguments.save_named(args.file, data, over=args.force)
    adapters = format_count(len(snapshot.machine.adapters), "adapter")
    endpoints = format_count(len(snapshot.machine.endpoints), "endpoint")
    print_line(f"{args.file}: {adapters}, {endpoints}, {format_count(len(data), 'byte')}.")
    print_line("`list`, `diff`, `check` and other commands read it with --snapshot.")
    return 0
