"""`hbatune report`: write an HTML page with the changes, their effects, and charts."""

import argparse
from pathlib import Path

from hbatune.act import paths
from hbatune.act.journal import Journal, load_with_current_ids
from hbatune.act.paths import Paths
from hbatune.cli.arguments import add_profile, add_snapshot, save_named
from hbatune.errors import UsageError
from hbatune.facts.machine import gather_machine
from hbatune.operations.situation import SituationRequest, read_situation, require_readable
from hbatune.policy.chosen import load_configuration
from hbatune.policy.library import installed_library
from hbatune.probe import history
from hbatune.probe.history import Record
from hbatune.render import render_template
from hbatune.report.page import ReportData
from hbatune.report.summary import format_values_csv, make_page
from hbatune.snapshot.file import load_snapshot
from hbatune.text.basic_output import format_count
from hbatune.text.leftovers import print_not_understood
from hbatune.text.terminal import print_line

SUMMARY = "write one page with what was changed, what came of it, and charts"
GROUP = "measure"
EXAMPLES = (
    ("sudo hbatune report db1.html", "this machine"),
    ("sudo hbatune report db1.html --csv db1.csv", "and the pictures' values for a spreadsheet"),
    ("hbatune report db1.html --snapshot db1.snap", "another host, from its snapshot"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("file", metavar="FILE", type=Path, help="the HTML file to make")
    add_profile(parser)
    add_snapshot(parser)
    parser.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        help="results to show instead of this machine's own: a copy of another's history.json",
    )
    parser.add_argument(
        "--csv",
        metavar="FILE",
        type=Path,
        help="also write the values of all pictures, as comma-separated values",
    )
    parser.add_argument("--force", action="store_true", help="take the place of a file that exists")


def run(args: argparse.Namespace) -> int:
    """Write the page, and the values of its charts; change nothing else."""
    if args.csv is not None and args.csv.resolve() == args.file.resolve():
        raise UsageError(f"{str(args.csv)!r} cannot be both the page and its values")
    report = make_page(_gather_data(args))
    html = render_template("templates", "report.html.j2", page=report)
    save_named(args.file, html.encode(), over=args.force)
    empty = [section.name for section in report.sections if not section.blocks]
    sections, size = (
        format_count(len(report.sections), "section"),
        format_count(len(html.encode()), "byte"),
    )
    print_line(f"{args.file}: {sections}, {size}.")
    if args.csv is not None:
        text = format_values_csv(report)
        save_named(args.csv, text.encode(), over=args.force)
        print_line(f"{args.csv}: {format_count(text.count(chr(10)) - 1, 'value')}.")
    if empty:
        print_line(f"Nothing to show yet: {'; '.join(empty)}. The page says how to measure it.")
    return 0


def _gather_data(args: argparse.Namespace) -> ReportData:
    records = _load_records(args)
    active = (
        load_configuration().profile
        if args.snapshot is None
        else load_snapshot(args.snapshot).policy.active
    )
    if args.profile is None and active is None:
        return _gather_without_profile(args, records)
    situation = read_situation(SituationRequest(profile=args.profile, snapshot=args.snapshot))
    print_not_understood(situation.not_understood)
    return ReportData(
        machine=situation.machine,
        profile=situation.profile,
        plan=situation.plan(),
        journal=situation.journal,
        records=records,
        yardsticks=installed_library().yardsticks(),
        recorded=args.snapshot is not None,
    )


def _gather_without_profile(args: argparse.Namespace, records: tuple[Record, ...]) -> ReportData:
    """Return the data without an active profile: after a rollback, or before the first apply."""
    if args.snapshot is None:
        machine = gather_machine((), deadline=load_configuration().act.deadline_seconds)
        require_readable(Paths())
        journal, _ = load_with_current_ids(paths.JOURNAL, machine)
    else:
        machine = load_snapshot(args.snapshot).machine
        journal = Journal(machine.boot_id)
    return ReportData(
        machine=machine,
        profile=None,
        plan=None,
        journal=journal,
        records=records,
        yardsticks=installed_library().yardsticks(),
        recorded=args.snapshot is not None,
    )


def _load_records(args: argparse.Namespace) -> tuple[Record, ...]:
    """Return this machine's results, or another machine's; a snapshot contains no results."""
    if args.history is not None:
        return history.load_named(args.history).records
    return () if args.snapshot is not None else history.load(paths.HISTORY).records
