"""`hbatune rollback`: restore all original values."""

import argparse

from msgspec import Struct

from hbatune.act.journal import Loss
from hbatune.cli import arguments
from hbatune.cli.command_context import make_context
from hbatune.operations.rollback import preview_rollback, roll_back_targets
from hbatune.plan.rows import Restored
from hbatune.text import notes, plan_tables, terminal


class RollbackDocument(Struct, frozen=True):
    """The JSON document of `rollback`.

    With `--dry-run` the outcome is null in the rows of values that would be restored.
    ``losses`` are original values that the journal has lost, so they have no row.
    """

    rows: tuple[Restored, ...]
    outcomes: dict[str, int]
    losses: tuple[Loss, ...]
    schema: str = "hbatune.rollback/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rollback`."""
    arguments.add_targets(parser, "what to restore")
    arguments.add_options(parser, "--dry-run", "--allow-reset", "--json")


def run(args: argparse.Namespace) -> int:
    """Restore the values in the journal; exit 1 if a value could not be restored."""
    if args.dry_run:
        done = preview_rollback(make_context(), args.targets, disrupt=args.allow_reset)
    else:
        arguments.require_root("rollback")
        done = roll_back_targets(make_context(), args.targets, disrupt=args.allow_reset)
    if args.json:
        outcomes = plan_tables.count_outcomes(done.rows)
        terminal.show_json(RollbackDocument(done.rows, outcomes, done.losses))
    else:
        notes.show_restored(done.rows, done.machine, lost=bool(done.losses), preview=args.dry_run)
    return 0 if args.dry_run or done.complete else 1
