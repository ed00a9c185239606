"""`hbatune diff`: compare the settings with a profile. It writes nothing and needs no root."""

import argparse

from hbatune.cli import arguments
from hbatune.errors import ExitCode
from hbatune.operations.differences import find_differences
from hbatune.operations.situation import SituationRequest
from hbatune.text import leftovers, plan_tables, terminal


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
    )
    differences = find_differences(request, module_options=args.module_options)
    plan = differences.plan
    if args.json:
        from hbatune.text.documents import make_diff_document

        machine = differences.situation.machine
        terminal.show_json(make_diff_document(plan, differences.rows, machine, differences.advice))
    else:
        plan_tables.show_differences(differences, unfold=args.all)
        if plan.drift and args.snapshot is None and terminal.get_width() is not None:
            row = plan.drift[0]
            explain = f"hbatune explain {row.target} {row.setting} --profile {plan.profile}"
            apply = " ".join(["sudo hbatune apply", *args.targets, "--profile", plan.profile])
            terminal.show_next([(apply, "set them"), (explain, "one of them in full")])
    leftovers.print_situation(differences.situation)
    return ExitCode.FOUND if differences.has_drift else 0
