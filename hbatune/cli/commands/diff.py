"""`hbatune diff`: compare the settings with a profile. It writes nothing and needs no root."""

import argparse

from hbatune.act.paths import Paths
from hbatune.cli import arguments
from hbatune.errors import ExitCode
from hbatune.operations.differences import Differences, find_differences
from hbatune.operations.situation import SituationRequest
from hbatune.text import leftovers, plan_tables, terminal
from hbatune.text.basic_output import format_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    arguments.add_targets(parser, "what to compare")
    arguments.add_options(parser, "--profile", "--module-options", "--json", "--no-pager")
    arguments.add_options(parser, "--snapshot", "--all")


def run(args: argparse.Namespace) -> int:
    """Print the differences; exit 1 if there are any."""
    request = SituationRequest(
        profile=args.profile,
        targets=args.targets,
        snapshot=args.snapshot,
        # Options of a module affect all disks that it serves.
        narrow=not args.module_options,
        firmware=False,
    )
    options = args.module_options
    differences = find_differences(request, module_options=options, measured=Paths.history)
    code = print_differences(differences, as_json=args.json, unfold=args.all)
    plan, is_terminal = differences.plan, terminal.get_width() is not None
    if plan.drift and args.snapshot is None and is_terminal and not args.json:
        row = plan.drift[0]
        named = ["--profile", args.profile] if args.profile else []  # else by the same rules
        explain = " ".join(["hbatune explain", row.target, row.setting, *named])
        apply = " ".join(["sudo hbatune apply", *args.targets, *named])
        purpose = "set them"
        # If an apply names targets, it overrides a rollback and an administrator's decisions.
        planned = differences.situation.plan(named=True) if args.targets else plan
        if overridden := len(planned.drift) - len(plan.drift):
            purpose += f", and {format_count(overridden, 'excluded setting')}"
        terminal.show_next([(apply, purpose), (explain, "one of them in full")])
    return code


def print_differences(differences: Differences, *, as_json: bool, unfold: bool) -> int:
    """Print the differences, and return the exit code."""
    plan, machine = differences.plan, differences.situation.machine
    if as_json:
        from hbatune.text.documents import make_diff_document

        terminal.show_json(make_diff_document(plan, differences.rows, machine, differences.advice))
    else:
        plan_tables.show_differences(differences, unfold=unfold)
        if machine.stacks:
            from hbatune.text.documents import show_stacks

            show_stacks(machine, differences.rows)
    leftovers.print_situation(differences.situation)
    return ExitCode.FOUND if differences.has_drift else 0
