"""`hbatune report`: write an HTML page with the changes, their effects, and charts."""

import argparse
import re
import time
from pathlib import Path

from msgspec.structs import asdict

from hbatune.cli import arguments
from hbatune.operations.snapshot import read_measured_host
from hbatune.report.page import ReportData
from hbatune.report.summary import make_sections, render_page
from hbatune.text.basic_output import format_count
from hbatune.text.leftovers import print_not_understood
from hbatune.text.terminal import print_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path)
    arguments.add_options(parser, "--profile", "--snapshot")
    parser.add_argument("--history", metavar="FILE", type=Path)
    arguments.add_options(parser, "--force")


def run(args: argparse.Namespace) -> int:
    """Write the page; change nothing else."""
    host = read_measured_host(args.profile, snapshot=args.snapshot, results=args.history)
    # The name of a snapshot's host is hostile: it must not lead to another directory.
    name = re.sub(r"[^\w.-]", "-", host.machine.hostname)
    file = args.file or Path(f"hbatune-{name}-{time.strftime('%Y-%m-%d')}.html")
    print_not_understood(host.not_understood)
    data = ReportData(**asdict(host), recorded=args.snapshot is not None)
    report_sections = make_sections(data)
    html = render_page(data, report_sections)
    arguments.save_named(file, html.encode(), over=args.force)
    empty = [section.name for section in report_sections if not section.blocks]
    sections = format_count(len(report_sections), "section")
    print_line(f"{file}: {sections}, {format_count(len(html.encode()), 'byte')}.")
    if empty:
        print_line(f"Nothing to show yet: {'; '.join(empty)}. The page says how to measure it.")
    return 0
