"""`hbatune apply`: make it so, with a short probe before and after."""

import argparse
import sys
from collections.abc import Sequence

from hbatune.act import active, claims, journal, locked, paths
from hbatune.act.apply import apply
from hbatune.act.journal import Journal
from hbatune.agent.running import daemon, nudge
from hbatune.agent.turns import Turn
from hbatune.cli import balancing
from hbatune.cli.arguments import add_allow_reset, add_json, add_profile, add_targets, require_root
from hbatune.cli.before_after import before_after
from hbatune.cli.beside import standing_lines, stands
from hbatune.cli.boot_rules import refresh
from hbatune.cli.documents import document
from hbatune.cli.keeping import Done, keep_results
from hbatune.cli.leftovers import tell
from hbatune.cli.module_options import add_module_options, option_rows, write_options
from hbatune.cli.output import Table, heading, note, say, show_json
from hbatune.cli.plan_table import outcome_line, show_rows, summary_line
from hbatune.cli.probing import Probing, paired
from hbatune.cli.verdicts import show_verdicts
from hbatune.cli.verifying import Verifying
from hbatune.cli.writing import writing
from hbatune.errors import UsageError
from hbatune.rows import Outcome, Plan, Row, State
from hbatune.situation import Situation, configuration, configuration_file, survey
from hbatune.workers import Crew

PATIENCE = 1.0
"""Seconds to wait for writers that an interrupted run left; SIGKILL needs no more."""

_MIB = 1 << 20


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
        plan = situation.plan(named=bool(args.targets), disrupt=args.allow_reset)
        check_memory(plan, situation)
        if not args.once and plan.profile != situation.config.profile:
            active.require_writable(configuration_file())
        done = _apply(plan, situation, args, crew)
        rows = done.rows + write_options(situation, args)
        compiled = True
        if not args.once:
            active.activate(configuration_file(), plan.profile)
            compiled = refresh(situation.profile, situation.config.site, _filed(situation))
        keep_results(situation, done)
    if not args.once:
        nudge(paths.STATUS)
    elif daemon(paths.STATUS) is not None:
        note(
            "a daemon keeps the active profile and puts this back at its next look: "
            "`systemctl stop hbatune` first, or apply without --once"
        )
    _report(plan, rows, done, situation, args)
    return 0 if compiled and all(map(_as_it_should_be, rows)) else 1


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
    check_memory(plan, situation)
    return 0


def check_memory(plan: Plan, situation: Situation) -> None:
    """UsageError where the planned requests would take too much of the machine's memory."""
    share = situation.config.act.memory_share
    allowed = situation.machine.memory * share
    if plan.memory > allowed:
        raise UsageError(
            f"the planned nr_requests would take {plan.memory / _MIB:.0f} MiB of memory, more than "
            f"the {allowed / _MIB:.0f} MiB ({share:.0%}) that are allowed; nothing was written",
            hint="name fewer targets, or raise memory_share in [act] of hbatune.toml",
        )


def _apply(plan: Plan, situation: Situation, args: argparse.Namespace, crew: Crew) -> Done:
    filed, earlier = journal.load(paths.JOURNAL, situation.machine.boot_id)
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
    balancing.ban(situation.machine, plan.rows)
    with writing("writing", _disks(plan), situation.config.act, crew) as means:
        rows = apply(situation.machine, plan, filed, means, named=named)
    locked.remember(paths.LOCKED, plan, rows)
    if means.stop():
        note("stopped as asked: what was not tried is shown; `hbatune rollback` restores the rest")
        return Done(rows, paired(before, []))
    return Done(rows, probing.after(before))


def _verified(
    plan: Plan, situation: Situation, filed: Journal, args: argparse.Namespace, crew: Crew
) -> Done:
    verifying = Verifying(situation, plan, shared=args.probe_shared)
    named = situation.ids or frozenset()
    with writing("writing", _disks(plan), situation.config.act, crew) as means:
        verifying.before(means)
        balancing.ban(situation.machine, plan.rows)
        rows = apply(situation.machine, plan, filed, means, named=named)
        verified = verifying.after(rows, means)
    if means.stop():
        note("stopped as asked: what was applied stays; `hbatune rollback` puts it back")
    return Done(verified.rows, [], verified)


def _filed(situation: Situation) -> Journal:
    """Return the journal as it is now: what was named is excluded no longer."""
    return journal.load(paths.JOURNAL, situation.machine.boot_id)[0]


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
