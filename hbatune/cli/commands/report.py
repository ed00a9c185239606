"""`hbatune report`: write an HTML page with the changes, their effects, and charts."""

import argparse

from hbatune.act import paths
from hbatune.act.journal import Journal, load_with_current_ids
from hbatune.act.paths import Paths
from hbatune.cli import arguments
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
    arguments.add_path(parser, "file", "the HTML file to make")
    arguments.add_profile(parser)
    arguments.add_snapshot(parser)
    purpose = "results to show instead of this machine's own: a copy of another's history.json"
    arguments.add_path(parser, "--history", purpose)
    purpose = "also write the values of all pictures, as comma-separated values"
    arguments.add_path(parser, "--csv", purpose)
    arguments.add_flag(parser, "--force", "take the place of a file that exists")


def run(args: argparse.Namespace) -> int:
    """Write the page, and the values of its charts; change nothing else."""
    if args.csv is not None and args.csv.resolve() == args.file.resolve():
        raise UsageError(f"{str(args.csv)!r} cannot be both the page and its values")
    report = make_page(_gather_data(args))
    html = render_template("templates", "report.html.j2", page=report)
    arguments.save_named(args.file, html.encode(), over=args.force)
    empty = [section.name for section in report.sections if not section.blocks]
    sections = format_count(len(report.sections), "section")
    size = format_count(len(html.encode()), "byte")
    print_line(f"{args.file}: {sections}, {size}.")
    if args.csv is not None:
        text = format_values_csv(report)
        arguments.save_named(args.csv, text.encode(), over=args.force)
        print_line(f"{args.csv}: {format_count(text.count(chr(10)) - 1, 'value')}.")
    if empty:
        print_line(f"Nothing to show yet: {'; '.join(empty)}. The page says how to measure it.")
    return 0


def _gather_data(args: argparse.Namespace) -> ReportData:
    """Return the data; there is no plan without an active profile, as after a rollback."""
    records, snapshot = _load_records(args), args.snapshot
    if snapshot is None:
        active = load_configuration().profile
    else:
        active = load_snapshot(snapshot).policy.active
    profile = plan = None
    if args.profile is not None or active is not None:
        situation = read_situation(SituationRequest(profile=args.profile, snapshot=snapshot))
        print_not_understood(situation.not_understood)
        machine, profile, journal = situation.machine, situation.profile, situation.journal
        plan = situation.plan()
    elif snapshot is None:
        machine = gather_machine((), deadline=load_configuration().act.deadline_seconds)
        require_readable(Paths())
        journal, _ = load_with_current_ids(paths.JOURNAL, machine)
    else:
        machine = load_snapshot(snapshot).machine
        journal = Journal(machine.boot_id)
    return ReportData(
        machine=machine,
        profile=profile,
        plan=plan,
        journal=journal,
        records=records,
        yardsticks=installed_library().yardsticks(),
        recorded=snapshot is not None,
    )


def _load_records(args: argparse.Namespace) -> tuple[Record, ...]:
    """Return this machine's results, or another machine's; a snapshot contains no results."""
    if args.history is not None:
        return history.load_named(args.history).records
    return () if args.snapshot is not None else history.load(paths.HISTORY).records
