"""`hbatune apply`: set the values of a profile, with a short probe before and after."""

import argparse
import sys

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
from hbatune.cli.context import command_context
from hbatune.cli.text.documents import document
from hbatune.cli.text.leftovers import tell, tell_unmatched
from hbatune.cli.text.output import heading, note, say, show_json, show_table
from hbatune.cli.text.probes import before_after, figures_table, standing_lines, stands
from hbatune.cli.text.rows import outcome_line, show_left_alone, show_rows, summary_line
from hbatune.cli.text.verdicts import show_verdicts
from hbatune.errors import UsageError
from hbatune.operations.apply import Applied, ApplyRequest, apply
from hbatune.operations.boot import option_rows
from hbatune.operations.situation import survey
from hbatune.plan.memory import require_affordable

SUMMARY = "set what a profile wants, with a short probe before and after"
GROUP = "change"
EXAMPLES = (
    ("sudo hbatune apply --profile oltp --dry-run", "show the plan, write nothing"),
    ("sudo hbatune apply --profile oltp", "everything that the profile covers"),
    ("sudo hbatune apply --profile oltp --verify sda", "one disk; put back what costs"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `apply`."""
    add_targets(parser, "what to tune")
    add_profile(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the plan and write nothing")
    parser.add_argument("--once", action="store_true", help="leave the active profile as it is")
    parser.add_argument("--no-probe", action="store_true", help="do not measure before and after")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare with and without the change until it can be told, and put back what costs",
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
    """Apply the profile; exit 1 where not all settings took."""
    if args.verify and args.no_probe:
        raise UsageError("--verify compares by probing, which --no-probe forbids")
    if args.dry_run:
        return _dry_run(args)
    require_root("apply")
    asked = ApplyRequest(
        profile=args.profile,
        targets=tuple(args.targets),
        once=args.once,
        probe=not args.no_probe,
        verify=args.verify,
        shared=args.probe_shared,
        disrupt=args.allow_reset,
        module_options=args.module_options,
    )
    applied = apply(command_context(), asked)
    if args.once and daemon(paths.STATUS) is not None:
        note(
            "a daemon keeps the active profile and puts this back at its next look: "
            "`systemctl stop hbatune` first, or apply without --once"
        )
    _report(applied, args)
    return 0 if applied.complete else 1


def _dry_run(args: argparse.Namespace) -> int:
    situation = survey(args.profile, args.targets)
    plan = situation.plan(named=bool(args.targets), disrupt=args.allow_reset)
    rows = plan.rows
    if args.module_options:
        rows += option_rows(situation, args.targets)
    if args.json:
        show_json(document(plan, rows, situation.machine))
    else:
        show_rows(rows, situation.machine, unfold=args.all)
        show_left_alone(plan.left_alone)
        say(summary_line(plan, rows))
        say("Nothing was written.")
    tell(situation.journal, situation.hands_off, situation.machine, situation.stuck)
    tell_unmatched(situation.unmatched)
    # After the plan is shown: with the rows in sight, a refusal for memory can be understood.
    require_affordable(plan)
    return 0


def _report(applied: Applied, args: argparse.Namespace) -> None:
    plan, rows, situation = applied.plan, applied.rows, applied.situation
    probes, verified = applied.probes, applied.verified
    standings = {
        each.target: (each, found)
        for each in applied.results
        if (found := stands(each, situation.machine, situation.profile)) is not None
    }
    if args.json:
        proofs = None if verified is None else verified.proofs
        known = {target: each for target, (_, each) in standings.items()}
        show_json(document(plan, rows, situation.machine, probes, proofs, known))
        return
    show_rows(rows, situation.machine, unfold=args.all)
    show_left_alone(plan.left_alone)
    if verified is not None:
        show_verdicts(verified, situation.profile)
    if probes:
        table = before_after([(pair.before, pair.after) for pair in probes])
        if table.rows:
            heading("Probe before and after")
            show_table(figures_table(table))
        for line in table.notes:
            say(line)
        say()
    for result, stood in standings.values():
        for line in standing_lines(result, stood, plan.profile):
            say(line)
    if standings:
        say()
    say(outcome_line(plan, rows))
    # A hint for a person; a script that reads the output has no use for it.
    if not args.once and sys.stdout.isatty():
        say(f"Profile {plan.profile} is the active one. `hbatune rollback` puts everything back.")
