"""`hbatune help`: print the same help as `--help`, for hbatune or one command."""

import argparse
import sys

from hbatune.cli.parser import format_help_page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `help`."""
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="the command to explain")


def run(args: argparse.Namespace) -> int:
    """Print the help."""
    sys.stdout.write(format_help_page(args.command))
    return 0
