"""`hbatune audit`: drift and outliers in the snapshots of many hosts."""

import argparse
import time
from pathlib import Path

from hbatune.cli import arguments
from hbatune.errors import ExitCode, UsageError
from hbatune.fleet import hosts
from hbatune.fleet.audit import audit_fleet, collect_metrics
from hbatune.operations.snapshot import take_snapshot
from hbatune.policy.config import load_configuration
from hbatune.policy.vendors import load_chosen_profile
from hbatune.text import fleet_tables, leftovers, terminal
from hbatune.text.leftovers import print_leftovers
from hbatune.watch.metrics import render_metrics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `audit`."""
    purpose = "snapshots of hosts (`hbatune snapshot`), or a directory with files whose names end "
    purpose += f"in {' or '.join(hosts.SNAPSHOT_SUFFIXES)}; without any, only this host"
    parser.add_argument("paths", metavar="FILE", nargs="*", type=Path, help=purpose)
    arguments.add_options(parser, "--profile", "--json", "--csv", "--html", "--metrics", "--force")
    purpose = "read N snapshots in parallel; without it, one for each CPU, "
    purpose += f"{hosts.MAX_PROCESSES} at most"
    number = arguments.make_number_type(1)
    parser.add_argument("--processes", metavar="N", type=number, help=purpose)
    arguments.add_options(parser, "--no-pager")


def run(args: argparse.Namespace) -> int:
    """Print the audit; exit 1 unless all hosts are as wanted and all files were read."""
    if args.paths:
        files = hosts.list_snapshot_files(args.paths)
        fleet_audit = audit_fleet(hosts.read_hosts(files, args.profile, processes=args.processes))
    else:
        snapshot = take_snapshot(print_leftovers)
        fleet_audit = audit_fleet([hosts.audit_host(snapshot, hosts.THIS_HOST, args.profile)])
    if not fleet_audit.hosts:
        if args.profile is not None:  # raise the error of a profile that does not exist
            load_chosen_profile(args.profile, load_configuration())
        first, *following = map(fleet_tables.with_reason, fleet_audit.unusable)
        suffix = f", and {len(following)} more could not be used either" if following else ""
        problem = f"{first.file!r}: {first.reason}{suffix}"
        raise UsageError(problem, hint="`hbatune snapshot FILE` takes one on a host")
    if args.html is not None:
        from hbatune.report.fleet_page import render_fleet_page  # it imports the template engine

        arguments.save_named(args.html, render_fleet_page(fleet_audit).encode(), over=args.force)
    if args.metrics is not None:
        metrics = render_metrics(collect_metrics(fleet_audit, time.time()))
        arguments.save_named(args.metrics, metrics, over=True)
    if args.json:
        terminal.show_json(fleet_tables.make_audit_document(fleet_audit))
    elif args.csv:
        terminal.show_csv("audit", fleet_tables.list_csv_rows(fleet_audit))
    else:
        fleet_tables.show_audit(fleet_audit)
    if args.json or args.csv:
        for unusable in map(fleet_tables.with_reason, fleet_audit.unusable):
            terminal.print_note(f"{unusable.file!r}: {unusable.reason}")
    leftovers.print_not_understood(fleet_audit.not_understood)
    return 0 if fleet_audit.is_good else ExitCode.FOUND
