"""`hbatune apply`: set the values of a profile, and measure with and without them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from hbatune.act.paths import Paths
from hbatune.agent.client import find_daemon
from hbatune.cli import arguments
from hbatune.cli.command_context import make_context
from hbatune.cli.commands.diff import print_differences
from hbatune.errors import UsageError
from hbatune.operations.apply import ApplyRequest, ApplyResult, apply_profile, preview_apply
from hbatune.operations.context import ComparisonRequest
from hbatune.operations.differences import Differences
from hbatune.plan.joint_limits import require_affordable
from hbatune.plan.rows import Outcome
from hbatune.shipped import fill_message
from hbatune.text import plan_tables
from hbatune.text.terminal import print_line, print_note, show_json
from hbatune.text.units import format_duration

if TYPE_CHECKING:
    # Import the modules for measurements only if there are measurements.
    from hbatune.operations.verify import ComparisonPreview, VerificationResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `apply`."""
    arguments.add_targets(parser, "what to tune")
    arguments.add_options(parser, "--profile", "--dry-run", "--once", "--no-probe", "--verify")
    arguments.add_options(parser, "--keep-worse", "--file", "--watch", "--trace", "--destructive")
    arguments.add_options(parser, "--probe-shared", "--all", "--allow-reset", "--module-options")
    arguments.add_options(parser, "--json")


def run(args: argparse.Namespace) -> int:
    """Apply the profile; exit 1 if not all settings took effect."""
    _check_options(args)
    if not args.dry_run:
        arguments.require_root("apply")
    request = ApplyRequest(
        profile=args.profile,
        targets=tuple(args.targets),
        once=args.once,
        probe=not args.no_probe,
        compare=ComparisonRequest(
            thorough=args.verify,
            shared=args.probe_shared,
            keep_worse=args.keep_worse,
            folder=args.file,
            destructive=args.destructive,
            names=tuple(args.targets),
            watched=args.watch,
            trace=args.trace,
        ),
        disrupt=args.allow_reset,
        module_options=args.module_options,
    )
    if args.dry_run:
        return _show_plan(*preview_apply(make_context(), request), args)
    applied = apply_profile(make_context(), request)
    if args.once and find_daemon(Paths.status) is not None:
        print_note(fill_message("daemon", "once"))
    _print_report(applied, args)
    return 0 if applied.complete else 1


def _check_options(args: argparse.Namespace) -> None:
    for option in ("--verify", "--keep-worse", "--file", "--destructive", "--watch", "--trace"):
        if args.no_probe and getattr(args, option[2:].replace("-", "_")):
            raise UsageError(f"{option} is about probing, which --no-probe forbids")
    if args.trace is not None and (args.watch is not None or not args.verify):
        raise UsageError("--trace is the load of --verify", hint="add --verify, and omit --watch")
    if args.destructive and args.file is not None:
        raise UsageError("--file replaces --destructive", hint="use only one of them")
    if args.destructive and not args.targets:
        raise UsageError(
            "--destructive writes, and destroys what is on a disk", hint="name each empty disk"
        )


def _show_plan(
    planned: Differences, comparisons: ComparisonPreview | None, args: argparse.Namespace
) -> int:
    print_differences(planned, as_json=args.json, unfold=args.all)
    if not args.json:
        if comparisons is not None:
            _show_comparisons(comparisons, args)
        print_line("Nothing was written.")
    # After the plan is shown, because its rows explain why memory is insufficient.
    require_affordable(planned.plan)
    return 0


def _show_comparisons(comparisons: ComparisonPreview, args: argparse.Namespace) -> None:
    from hbatune.text.verdict_tables import describe_unmeasured

    if comparisons.targets:
        how = "only reads" if args.file is None else f"reads and writes of a file in {args.file}"
        if args.destructive:
            how = "reads, and WRITES to the empty disks"
        seconds, limit = format_duration(comparisons.seconds), format_duration(comparisons.limit)
        text = f"An apply compares {', '.join(comparisons.targets)} with {how}: about {seconds}"
        print_line(f"{text}, or {limit} at most to confirm regressions.")
    for endpoint in comparisons.skipped:
        print_line(describe_unmeasured(endpoint, thorough=args.verify))


def _print_report(applied: ApplyResult, args: argparse.Namespace) -> None:
    plan, rows, verified = applied.plan, applied.rows, applied.verified
    if args.json:
        from hbatune.operations.verify import VerificationResult
        from hbatune.text.apply_document import make_plan_document

        verified = verified or VerificationResult(rows)
        standings = {target: entry[1] for target, entry in applied.standings.items()}
        show_json(make_plan_document(plan, rows, applied.situation.machine, verified, standings))
        return
    plan_tables.show_rows(rows, applied.situation.machine, unfold=args.all)
    plan_tables.show_unchanged(applied)
    if verified is not None:
        _show_measured(applied, verified)
    worse = 0 if verified is None else len(verified.worse)
    print_line(plan_tables.summarise_outcomes(plan, rows, unfold=args.all, worse=worse))
    # A hint for a person; a script that reads the output has no use for it.
    if not args.once and sys.stdout.isatty():
        if Outcome.WRITTEN in {row.outcome for row in rows} and not Paths.udev_rules.exists():
            print_line("The values last until the next boot. `hbatune install` keeps them.")
        print_line(
            f"Profile {plan.profile} is active. `hbatune rollback` restores all original values."
        )


def _show_measured(applied: ApplyResult, verified: VerificationResult) -> None:
    from hbatune.text.probe_tables import describe_standings, show_document_tables
    from hbatune.text.verdict_tables import show_verdicts

    show_verdicts(verified, applied.situation.profile)
    lines = list(describe_standings(applied.standings, applied.plan.profile))
    for line in lines:
        print_line(line)
    results = [result for result, _ in applied.standings.values()]
    show_document_tables(results, applied.situation.machine)
    if lines:
        print_line()
