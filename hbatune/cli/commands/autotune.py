"""`hbatune autotune`: search the best depth and settings of disks; save only with --write."""

import argparse

from msgspec import Struct

from hbatune.cli import arguments
from hbatune.cli.command_context import make_context
from hbatune.errors import UsageError
from hbatune.operations.autotune import AutotuneRequest, search_disks
from hbatune.operations.measured_rules import MeasuredRules
from hbatune.search.tournament import DiskSearchResult
from hbatune.text import search_tables, terminal

MAX_MINUTES = 24 * 60.0


class AutotuneDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``autotune``; ``rules`` is null without --write."""

    schema: str = "hbatune.autotune/1"
    hostname: str
    kernel: str
    profile: str
    disks: tuple[DiskSearchResult, ...]
    rules: MeasuredRules | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `autotune`."""
    parser.add_argument("targets", metavar="TARGET", nargs="+")
    arguments.add_options(parser, "--profile")
    parser.add_argument("--minutes", metavar="N", type=arguments.make_seconds_type())
    arguments.add_options(parser, "--file", "--destructive", "--write", "--json")


def run(args: argparse.Namespace) -> int:
    """Search; exit 1 if a search did not finish, or a rule could not be written."""
    if args.minutes is not None and not 0 < args.minutes <= MAX_MINUTES:
        raise UsageError(f"--minutes must be above 0 and at most {MAX_MINUTES:.0f}")
    if args.file is not None and args.destructive:
        raise UsageError("--file replaces --destructive", hint="use only one of them")
    arguments.require_root("autotune")
    arguments.require_fio()
    request = AutotuneRequest(
        targets=tuple(args.targets),
        profile=args.profile,
        minutes=args.minutes,
        write=args.write,
        folder=args.file,
        destructive=args.destructive,
    )
    done = search_disks(make_context(), request)
    if args.json:
        machine, profile = done.situation.machine, done.situation.profile.name
        document = AutotuneDocument(
            hostname=machine.hostname,
            kernel=machine.kernel,
            profile=profile,
            disks=done.disks,
            rules=done.rules,
        )
        terminal.show_json(document)
    else:
        search_tables.show_autotuned(done)
    return 0 if done.complete else 1
