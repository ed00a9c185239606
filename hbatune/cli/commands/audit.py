"""`hbatune audit`: drift and outliers in the snapshots of many hosts."""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

from hbatune.cli.arguments import add_json, add_profile, make_number_type, save_named
from hbatune.cli.command_context import make_context
from hbatune.errors import UsageError
from hbatune.fleet.audit import Audit, audit_fleet, format_metrics
from hbatune.fleet.hosts import (
    MAX_PROCESSES,
    SNAPSHOT_SUFFIXES,
    HostAudit,
    UnusableSnapshot,
    audit_host,
    list_snapshot_files,
    read_hosts,
)
from hbatune.operations.snapshot import take_snapshot
from hbatune.text.basic_output import add_pager
from hbatune.text.fleet_tables import make_audit_document, show_audit
from hbatune.text.leftovers import print_not_understood
from hbatune.text.terminal import print_note, show_csv, show_json

EXIT_FOUND = 1

SUMMARY = "many hosts by their snapshots: who drifts, and who is odd"
GROUP = "look"
EXAMPLES = (
    ("hbatune audit snapshots/", "all snapshots in a folder"),
    ("hbatune audit --html fleet.html snapshots/", "one page, with a table to filter"),
    ("hbatune audit --csv db1.snap db2.snap", "for a spreadsheet"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `audit`."""
    endings = " or ".join(SNAPSHOT_SUFFIXES)
    parser.add_argument(
        "paths",
        metavar="FILE",
        nargs="*",
        type=Path,
        help="what `hbatune snapshot` wrote on each host, or a folder with files whose names end "
        f"in {endings}; without any, this host alone",
    )
    add_profile(parser)
    add_json(parser)
    parser.add_argument(
        "--csv", action="store_true", help="print one table of comma-separated values"
    )
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write one HTML page as well, to look at"
    )
    parser.add_argument(
        "--metrics",
        metavar="FILE",
        type=Path,
        help="write metrics for Prometheus as well, for node_exporter's textfile collector; they "
        "take the place of those before",
    )
    parser.add_argument(
        "--force", action="store_true", help="let --html take the place of a file that exists"
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=make_number_type(1),
        help=f"read so many snapshots at once; without it, one for each CPU, "
        f"{MAX_PROCESSES} at most",
    )
    add_pager(parser)


def run(args: argparse.Namespace) -> int:
    """Print the audit; exit 1 if any host drifts or any file could not be audited."""
    if args.json and args.csv:
        raise UsageError("--json and --csv both print to standard output: name one of them")
    fleet_audit = audit_fleet(_audit_hosts(args))
    if not fleet_audit.hosts:
        raise UsageError(
            _explain_empty(fleet_audit), hint="`hbatune snapshot FILE` takes one on a host"
        )
    if args.html is not None:
        from hbatune.render import render_template  # here, as it imports the template engine
        from hbatune.report.fleet_page import make_fleet_page

        html = render_template("templates", "fleet.html.j2", page=make_fleet_page(fleet_audit))
        save_named(args.html, html.encode(), over=args.force)
    if args.metrics is not None:
        save_named(args.metrics, format_metrics(fleet_audit, time.time()), over=True)
    if args.json:
        show_json(make_audit_document(fleet_audit))
    elif args.csv:
        from hbatune.text.fleet_tables import format_audit_csv

        show_csv(format_audit_csv(fleet_audit))
    else:
        show_audit(fleet_audit)
    if args.json or args.csv:
        for unusable in fleet_audit.unusable:
            print_note(f"{unusable.file!r}: {unusable.reason}")
    print_not_understood(fleet_audit.not_understood)
    return EXIT_FOUND if fleet_audit.drifting or fleet_audit.unusable else 0


def _audit_hosts(args: argparse.Namespace) -> Iterable[HostAudit | UnusableSnapshot]:
    if args.paths:
        files = list_snapshot_files(args.paths)
        return read_hosts(files, args.profile, processes=args.processes)
    return [audit_host(take_snapshot(make_context()), "this host", args.profile)]


def _explain_empty(fleet_audit: Audit) -> str:
    first, *following = fleet_audit.unusable
    suffix = f", and {len(following)} more could not be used either" if following else ""
    return f"{first.file!r}: {first.reason}{suffix}"
