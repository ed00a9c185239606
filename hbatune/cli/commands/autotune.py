"""`hbatune autotune`: search the best depth and settings of disks; save only with --write."""

import argparse
from pathlib import Path

from msgspec import Struct

from hbatune.cli.arguments import add_json, add_profile, make_seconds_type, require_root
from hbatune.cli.command_context import make_context
from hbatune.errors import UsageError
from hbatune.operations.autotune import AutotuneRequest, AutotuneResult, search_disks
from hbatune.operations.measured_rules import MeasuredRules
from hbatune.search.tournament import DiskSearchResult
from hbatune.text.search_tables import show_autotuned
from hbatune.text.terminal import show_json

SCHEMA = "hbatune.autotune/1"
MAX_MINUTES = 24 * 60.0


class AutotuneDocument(Struct, frozen=True, kw_only=True):
    """The JSON document of ``autotune``; ``rules`` is null without --write."""

    schema: str = SCHEMA

    hostname: str
    kernel: str
    profile: str
    disks: tuple[DiskSearchResult, ...]
    rules: MeasuredRules | None


SUMMARY = "search the best depth and settings of disks; keep nothing unless asked"
GROUP = "measure"
EXAMPLES = (
    ("sudo hbatune autotune sda", "what would be better on a disk, within the active profile"),
    ("sudo hbatune autotune sda --profile oltp --minutes 5", "in so much time at most"),
    ("sudo hbatune autotune sda --file /srv", "schedulers, too, by writes to a file on the disk"),
    ("sudo hbatune autotune sda --write", "make rules of what is better"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `autotune`."""
    parser.add_argument("targets", metavar="TARGET", nargs="+", help="a disk, adapter or stable id")
    add_profile(parser)
    parser.add_argument(
        "--minutes",
        metavar="N",
        type=make_seconds_type(),
        help="the longest that it may take in all",
    )
    parser.add_argument(
        "--file",
        metavar="DIR",
        type=Path,
        help="judge schedulers, too: beside a writer to a file made in this folder on the disk",
    )
    parser.add_argument(
        "--destructive",
        action="store_true",
        help="judge schedulers, too: by writes to the disks that are named, which have to be empty",
    )
    parser.add_argument(
        "--write", action="store_true", help="write a rule of the site for what is better"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Search; exit 1 if a search did not finish, or a rule could not be written."""
    if args.minutes is not None and not 0 < args.minutes <= MAX_MINUTES:
        raise UsageError(f"--minutes must be above 0 and at most {MAX_MINUTES:.0f}")
    if args.file is not None and args.destructive:
        raise UsageError("--file takes the place of --destructive", hint="name one or the other")
    require_root("autotune")
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
        show_json(_make_document(done))
    else:
        show_autotuned(done)
    return 0 if done.complete else 1


def _make_document(done: AutotuneResult) -> AutotuneDocument:
    machine = done.situation.machine
    return AutotuneDocument(
        hostname=machine.hostname,
        kernel=machine.kernel,
        profile=done.situation.profile.name,
        disks=done.disks,
        rules=done.rules,
    )
