"""`hbatune apply`: set the values of a profile, and measure with and without them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hbatune.act import paths
from hbatune.agent.client import daemon
from hbatune.cli.arguments import (
    add_allow_reset,
    add_json,
    add_module_options,
    add_profile,
    add_targets,
    require_root,
)
from hbatune.cli.command_context import command_context
from hbatune.errors import UsageError
from hbatune.operations.apply import Applied, ApplyRequest, ComparisonRequest, apply
from hbatune.operations.situation import survey
from hbatune.plan.joint_limits import require_affordable
from hbatune.text.leftovers import tell, tell_unmatched
from hbatune.text.plan_tables import outcome_line, show_left_alone, show_rows, summary_line
from hbatune.text.terminal import note, say, show_json

if TYPE_CHECKING:
    # Import the modules for measurements only if there are measurements.
    from hbatune.operations.verify import Verified
    from hbatune.probe.comparison import Standing

SUMMARY = "set what a profile wants, and put back what is worse for it"
GROUP = "change"
EXAMPLES = (
    ("sudo hbatune apply --profile oltp --dry-run", "show the plan, write nothing"),
    ("sudo hbatune apply --profile oltp", "everything that the profile covers"),
    ("sudo hbatune apply --profile oltp --verify sda", "one disk, compared for longer"),
    ("sudo hbatune apply --profile oltp --file /srv sda", "with writes, to a file on it"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `apply`."""
    add_targets(parser, "what to tune")
    add_profile(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the plan and write nothing")
    parser.add_argument("--once", action="store_true", help="leave the active profile as it is")
    parser.add_argument("--no-probe", action="store_true", help="do not measure what it does")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare for longer, and so more surely: see [probe] of hbatune.toml",
    )
    parser.add_argument(
        "--keep-worse",
        action="store_true",
        help="leave what turns out to be worse as it was set; exit 1 all the same",
    )
    parser.add_argument(
        "--file",
        metavar="DIR",
        type=Path,
        help="measure the disk that this folder is on through a file made there, with writes",
    )
    parser.add_argument(
        "--destructive",
        action="store_true",
        help="measure with writes on the disks that are named, which have to be empty",
    )
    parser.add_argument(
        "--probe-shared", action="store_true", help="measure fc and iscsi endpoints, too"
    )
    parser.add_argument(
        "--all", action="store_true", help="every LUN on its own line, and what was right, too"
    )
    add_allow_reset(parser)
    add_module_options(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Apply the profile; exit 1 if not all settings took effect."""
    _check_options(args)
    if args.dry_run:
        return _show_plan(args)
    require_root("apply")
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
        ),
        disrupt=args.allow_reset,
        module_options=args.module_options,
    )
    applied = apply(command_context(), request)
    if args.once and daemon(paths.STATUS) is not None:
        note(
            "a daemon keeps the active profile and puts this back at its next look: "
            "`systemctl stop hbatune` first, or apply without --once"
        )
    _print_report(applied, args)
    return 0 if applied.complete else 1


def _check_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options that contradict each other."""
    for option, is_given in (
        ("--verify", args.verify),
        ("--keep-worse", args.keep_worse),
        ("--file", args.file is not None),
        ("--destructive", args.destructive),
    ):
        if is_given and args.no_probe:
            raise UsageError(f"{option} is about probing, which --no-probe forbids")
    if args.destructive and args.file is not None:
        raise UsageError("--file takes the place of --destructive", hint="name one or the other")
    if args.destructive and not args.targets:
        raise UsageError(
            "--destructive writes, and destroys what is on a disk", hint="name each empty disk"
        )


def _show_plan(args: argparse.Namespace) -> int:
    situation = survey(args.profile, args.targets)
    plan = situation.plan(named=bool(args.targets), disrupt=args.allow_reset)
    rows = plan.rows
    if args.module_options:
        from hbatune.operations.boot_files import option_rows  # rarely needed

        rows += option_rows(situation, args.targets)
    if args.json:
        from hbatune.text.apply_document import document

        show_json(document(plan, rows, situation.machine))
    else:
        show_rows(rows, situation.machine, unfold=args.all)
        show_left_alone(plan.left_alone)
        say(summary_line(plan, rows))
        say("Nothing was written.")
    tell(situation.journal, situation.rollbacks, situation.machine, situation.stuck)
    tell_unmatched(situation.unmatched)
    # After the plan is shown, because its rows explain why memory is insufficient.
    require_affordable(plan)
    return 0


def _print_report(applied: Applied, args: argparse.Namespace) -> None:
    plan, rows, situation = applied.plan, applied.rows, applied.situation
    verified = applied.verified
    if args.json:
        _show_document(applied)
        return
    show_rows(rows, situation.machine, unfold=args.all)
    show_left_alone(plan.left_alone)
    if verified is not None:
        _show_measured(applied, verified)
    say(outcome_line(plan, rows, worse=0 if verified is None else len(verified.worse)))
    # A hint for a person; a script that reads the output has no use for it.
    if not args.once and sys.stdout.isatty():
        say(f"Profile {plan.profile} is the active one. `hbatune rollback` puts everything back.")


def _show_document(applied: Applied) -> None:
    from hbatune.operations.verify import Verified
    from hbatune.text.apply_document import document

    verified = applied.verified or Verified(applied.rows)
    standings = _compare_results(applied)
    machine = applied.situation.machine
    show_json(document(applied.plan, applied.rows, machine, verified, standings))


def _show_measured(applied: Applied, verified: Verified) -> None:
    from hbatune.text.probe_tables import standing_lines
    from hbatune.text.verdict_tables import show_verdicts

    show_verdicts(verified, applied.situation.profile)
    standings = _compare_results(applied)
    for result in applied.results:
        if (stood := standings.get(result.target)) is not None:
            for line in standing_lines(result, stood, applied.plan.profile):
                say(line)
    if standings:
        say()


def _compare_results(applied: Applied) -> dict[str, Standing]:
    """Compare the last result of each target with the source documents."""
    from hbatune.text.probe_tables import stands

    machine, profile = applied.situation.machine, applied.situation.profile
    pairs = ((result.target, stands(result, machine, profile)) for result in applied.results)
    return {target: standing for target, standing in pairs if standing is not None}
