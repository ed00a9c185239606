"""`hbatune apply`: make it so, with a short probe before and after."""

import argparse
import sys
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from hbatune.act import active, claims, hands_off, interrupts, journal, paths, seen
from hbatune.act.apply import Means, UnfinishedError, apply
from hbatune.act.journal import Journal
from hbatune.agent.running import daemon, nudge
from hbatune.agent.turns import Turn
from hbatune.cli.arguments import add_allow_reset, add_json, add_profile, add_targets, require_root
from hbatune.cli.text.before_after import before_after
from hbatune.cli.text.beside import standing_lines, stands
from hbatune.cli.text.documents import document
from hbatune.cli.text.leftovers import tell, tell_unmatched
from hbatune.cli.text.output import Table, heading, note, say, show_json
from hbatune.cli.text.plan_table import outcome_line, show_rows, summary_line
from hbatune.cli.text.verdicts import show_verdicts
from hbatune.errors import UsageError
from hbatune.operations import balancing
from hbatune.operations.boot_rules import refresh
from hbatune.operations.keeping import Done, keep_results
from hbatune.operations.module_options import add_module_options, option_rows, write_options
from hbatune.operations.probing import Probing, paired
from hbatune.operations.situation import Situation, configuration, configuration_file, survey
from hbatune.operations.verifying import Verifying
from hbatune.operations.writing import writing
from hbatune.plan.memory import require_affordable
from hbatune.plan.rows import Outcome, Plan, Row, State
from hbatune.workers import Crew

PATIENCE = 1.0
"""Seconds to wait for writers that an interrupted run left; SIGKILL needs no more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `apply` takes."""
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
    """Apply the profile; exit 1 where not everything could be made so."""
    if args.verify and args.no_probe:
        raise UsageError("--verify compares by probing, which --no-probe forbids")
    if args.dry_run:
        return _dry_run(args)
    require_root("apply")
    configuration()  # a mistake in it is worth more than waiting for the lock
    with Turn(), Crew() as crew:
        stuck = claims.settle(paths.CLAIMS, patience=PATIENCE)
        situation = survey(args.profile, args.targets, stuck=stuck, crew=crew)
        tell(situation.journal, situation.machine, situation.stuck)
        tell_unmatched(situation.unmatched)
        plan = situation.plan(named=bool(args.targets), disrupt=args.allow_reset)
        require_affordable(plan)
        if not args.once and plan.profile != situation.config.profile:
            active.require_writable(configuration_file())
        done = _apply(plan, situation, args, crew)
        unfinished = {row.id for row in done.rows if not _as_it_should_be(row)}
        seen.remember(paths.SEEN, situation.machine, situation.ids, unfinished=unfinished)
        rows = done.rows + write_options(situation, args)
        lifted = _lift(situation, whole=not args.targets, once=args.once)
        compiled = True
        if not args.once:
            active.activate(configuration_file(), plan.profile)
            filed = _filed(situation)
            compiled = refresh(
                situation.profile,
                situation.boot_site,
                filed,
                rolled_back=journal.rollback_record(filed, situation.machine).ids,
                room=plan.memory.roomy,
            )
        keep_results(situation, done)
    if not args.once:
        nudge(paths.STATUS)
    elif daemon(paths.STATUS) is not None:
        note(
            "a daemon keeps the active profile and puts this back at its next look: "
            "`systemctl stop hbatune` first, or apply without --once"
        )
    _report(plan, rows, done, situation, args)
    so = compiled and lifted and done.saved
    return 0 if so and all(map(_as_it_should_be, rows)) else 1


def _lift(situation: Situation, *, whole: bool, once: bool) -> bool:
    """Lift the rollback of what was applied; whether the record could be written.

    With ``--once`` the daemon stays out of it: only what was named is not rolled back any more.
    """
    record = situation.hands_off
    after = record.applied(None if whole else situation.ids or frozenset())
    if once:
        after = replace(after, everything=record.everything, lifted=record.lifted)
    if after == record:
        return True
    try:
        hands_off.save(after)
    except hands_off.RecordError as error:
        note(f"{error.message}; {error.hint}; until then the daemon leaves these disks alone")
        return False
    return True


def _dry_run(args: argparse.Namespace) -> int:
    situation = survey(args.profile, args.targets)
    plan = situation.plan(named=bool(args.targets), disrupt=args.allow_reset)
    rows = plan.rows + option_rows(situation, args)
    if args.json:
        show_json(document(plan, rows, situation.machine))
    else:
        show_rows(rows, situation.machine, unfold=args.all)
        say(summary_line(plan, rows))
        say("Nothing was written.")
    tell(situation.journal, situation.machine, situation.stuck)
    tell_unmatched(situation.unmatched)
    require_affordable(plan)
    return 0


def _apply(plan: Plan, situation: Situation, args: argparse.Namespace, crew: Crew) -> Done:
    filed, earlier = journal.load_for(paths.JOURNAL, situation.machine)
    if filed.excluded:  # of an earlier version: from now on the record of rollbacks has them
        hands_off.save(situation.hands_off)
        filed = replace(filed, excluded=())
    if earlier is not None and earlier.entries:
        note("the journal of an earlier boot is dropped: the reboot has put those values back")
    write = _verified if args.verify and plan.drift else _probed
    return write(plan, situation, filed, args, crew)


def _probed(
    plan: Plan, situation: Situation, filed: Journal, args: argparse.Namespace, crew: Crew
) -> Done:
    probing = Probing(situation, plan, declined=args.no_probe, shared=args.probe_shared)
    before = probing.before()
    named = situation.ids or frozenset()
    balancing.ban(situation.machine, plan.rows, situation.ids)
    with writing("writing", _disks(plan), situation.config.act, crew) as means:
        rows, saved = _written(situation, plan, filed, means, named)
    balancing.unban_refused(situation.machine, rows, situation.ids)
    interrupts.remember_immovable(paths.LOCKED, plan, rows)
    if means.stop():
        note("stopped as asked: what was not tried is shown; `hbatune rollback` restores the rest")
        return Done(rows, paired(before, []), saved=saved)
    return Done(rows, probing.after(before), saved=saved)


def _written(
    situation: Situation, plan: Plan, filed: Journal, means: Means, named: Collection[str]
) -> tuple[tuple[Row, ...], bool]:
    """Write the plan; return the rows, and whether the journal could be brought up to date."""
    try:
        return apply(situation.machine, plan, filed, means, named=named), True
    except UnfinishedError as error:
        note(f"{error.message}; {error.hint}")
        return error.rows, False


def _verified(
    plan: Plan, situation: Situation, filed: Journal, args: argparse.Namespace, crew: Crew
) -> Done:
    verifying = Verifying(situation, plan, shared=args.probe_shared)
    named = situation.ids or frozenset()
    with writing("writing", _disks(plan), situation.config.act, crew) as means:
        verifying.before(means)
        balancing.ban(situation.machine, plan.rows, situation.ids)
        rows, saved = _written(situation, plan, filed, means, named)
        if not saved:  # the trial's switches could not be journalled
            return Done(rows, saved=False)
        verified = verifying.after(rows, means)
    balancing.unban_refused(situation.machine, verified.rows, situation.ids)
    if means.stop():
        note("stopped as asked: what was applied stays; `hbatune rollback` puts it back")
    return Done(verified.rows, [], verified)


def _filed(situation: Situation) -> Journal:
    """Return the journal as it is now: what was named is excluded no longer."""
    return journal.load_for(paths.JOURNAL, situation.machine)[0]


def _disks(plan: Plan) -> int:
    return len({row.target for row in plan.drift})


def _report(
    plan: Plan,
    rows: Sequence[Row],
    done: Done,
    situation: Situation,
    args: argparse.Namespace,
) -> None:
    probes, verified = done.probes, done.verified
    standings = {
        each.target: (each, found)
        for each in done.results
        if (found := stands(each, situation.machine, situation.profile)) is not None
    }
    if args.json:
        proofs = None if verified is None else verified.proofs
        known = {target: each for target, (_, each) in standings.items()}
        show_json(document(plan, rows, situation.machine, probes, proofs, known))
        return
    show_rows(rows, situation.machine, unfold=args.all)
    if verified is not None:
        show_verdicts(verified, situation.profile)
    if probes:
        table = before_after([(pair.before, pair.after) for pair in probes])
        if table.rows:
            heading("Probe before and after")
            Table(table.headers, list(table.rows), frozenset(range(2, len(table.headers)))).show()
        for line in table.notes:
            say(line)
        say()
    for result, stood in standings.values():
        for line in standing_lines(result, stood, plan.profile):
            say(line)
    if standings:
        say()
    say(outcome_line(plan, rows))
    if not args.once and sys.stdout.isatty():
        say(f"Profile {plan.profile} is the active one. `hbatune rollback` puts everything back.")


def _as_it_should_be(row: Row) -> bool:
    if row.state is State.UNREADABLE:
        return False
    return row.outcome in (None, Outcome.KEPT, Outcome.WRITTEN)
