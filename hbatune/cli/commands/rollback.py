"""`hbatune rollback`: put everything back as it was before the first apply."""

import argparse
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import active, claims, hands_off, journal, paths
from hbatune.act.apply import Means
from hbatune.act.claims import Claim
from hbatune.act.journal import Journal
from hbatune.act.rollback import Restored, RollbackUnsavedError, rollback
from hbatune.agent.running import nudge
from hbatune.agent.turns import Turn
from hbatune.cli.arguments import add_allow_reset, add_json, add_targets, require_root
from hbatune.cli.text.fold import adapter_line, by_adapter, fold, names, shown
from hbatune.cli.text.leftovers import tell
from hbatune.cli.text.output import Table, heading, note, say, show_json
from hbatune.facts.machine import gather
from hbatune.facts.model import Machine
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.operations import balancing, boot_rules
from hbatune.operations.module_options import remove_options
from hbatune.operations.situation import configuration, configuration_file, resolved, waiting_for
from hbatune.operations.writing import writing
from hbatune.plan.rows import Outcome
from hbatune.policy.config import Config
from hbatune.policy.files import PolicyError
from hbatune.workers import Crew

SCHEMA = "hbatune.rollback/1"
PATIENCE = 1.0


class RollbackDocument(Struct, frozen=True):
    """What `rollback` prints as JSON."""

    rows: tuple[Restored, ...]
    outcomes: dict[str, int]
    schema: str = SCHEMA


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `rollback` takes."""
    add_targets(parser, "what to put back")
    add_allow_reset(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Put back what the journal holds; exit 1 where something could not be."""
    require_root("rollback")
    config = _configuration(args.targets)
    with Turn(), Crew() as crew:
        if not args.targets:
            # First of all: from now on nothing is set again that is put back below.
            recorded = _recorded(hands_off.roll_back_everything)
        stuck = claims.settle(paths.CLAIMS, patience=PATIENCE)
        machine = gather(
            (),
            deadline=config.act.deadline_seconds,
            avoid={claim.target: waiting_for(claim) for claim in stuck},
            crew=crew,
        )
        filed, earlier = journal.load_for(paths.JOURNAL, machine)
        if earlier is not None and earlier.entries:
            note("the journal is of an earlier boot: the reboot has put those values back")
        tell(filed, machine, stuck)
        ids = _ids(args.targets, machine, filed)
        if ids is not None or filed.excluded:
            record = journal.rollback_record(filed, machine).with_targets(ids or ())
            recorded = _recorded(lambda: hands_off.save(record))
        filed = replace(filed, excluded=()).trying(ids)
        removed = True
        if ids is None:
            removed = _deactivated()
            # A disk that comes by now is not to be tuned any more, either.
            removed = boot_rules.withdraw() and removed
        disks = len({entry.id for entry in filed.entries})
        with writing("restoring", disks, config.act, crew) as means:
            rows, saved = _restored(machine, filed, means, ids, stuck, args.allow_reset)
        balancing.unban(machine, ids)
        if ids is None:
            removed = remove_options(machine) and removed
        else:
            left = journal.load_for(paths.JOURNAL, machine)[0]
            removed = boot_rules.refresh_active(config, left, stuck)
    nudge(paths.STATUS)
    _report(rows, machine, as_json=args.json)
    return 0 if recorded and saved and removed and all(row.done for row in rows) else 1


def _recorded(record: Callable[[], None]) -> bool:
    """Record the rollback; where that cannot be made durable, say so: the values go back first."""
    try:
        record()
    except hands_off.RecordError as error:
        note(f"{error.message}; {error.hint}")
        return False
    return True


def _restored(
    machine: Machine,
    filed: Journal,
    means: Means,
    ids: Collection[str] | None,
    stuck: Sequence[Claim],
    disrupt: bool,
) -> tuple[tuple[Restored, ...], bool]:
    """Put the values back; return the rows, and whether the journal could be written."""
    try:
        return rollback(machine, filed, means, ids=ids, stuck=stuck, disrupt=disrupt), True
    except RollbackUnsavedError as error:
        note(f"{error.message}; {error.hint}")
        return error.rows, False


def _configuration(targets: Sequence[str]) -> Config:
    """Return the configuration; a mistake in it keeps nobody from putting everything back."""
    try:
        return configuration()
    except PolicyError as error:
        if targets:  # the rules for boot are made anew without them, and need to be known
            raise
        note(f"{error.message}; rolled back all the same")
        return Config()


def _deactivated() -> bool:
    """Have no profile active; where that cannot be written, say so: the values go back first."""
    try:
        active.activate(configuration_file(), None)
    except active.ActiveProfileError as error:
        note(f"{error.message}; the daemon leaves every disk alone all the same")
        return False
    return True


def _ids(targets: list[str], machine: Machine, filed: Journal) -> set[str] | None:
    """Return the ids that the targets mean; a disk that is gone is known by the journal still."""
    if not targets:
        return None
    ids: set[str] = set()
    for name in map(resolved, targets):
        gone = {entry.id for entry in filed.entries if name in (entry.target, entry.id)}
        try:
            ids.update(named(machine, [name]))
        except UnknownTargetError:
            if not gone:
                raise
            ids.update(gone)
    return ids


def _report(rows: tuple[Restored, ...], machine: Machine, *, as_json: bool) -> None:
    outcomes = Counter(str(row.outcome) for row in rows)
    if as_json:
        show_json(RollbackDocument(rows, dict(outcomes)))
        return
    for adapter, group in by_adapter(rows).items():
        written = [row for row in group if row.outcome is not Outcome.KEPT]
        if written:
            heading(adapter_line(adapter, machine))
            table = Table(["TARGET", "SETTING", "WAS", "IS BACK AT", "OUTCOME", "WHY"], wraps="WHY")
            table.rows = [_cells(*each) for each in fold(written, _content)]
            table.show()
            say()
    lost, gone = sum(not row.done for row in rows), sum(row.gone for row in rows)
    went = f"; {gone} went with their disk or their scheduler" if gone else ""
    if not rows:
        say("Nothing to put back: the journal is empty.")
    elif not lost:
        say(f"All {len(rows) - gone} values are as they were before the first apply{went}.")
    else:
        back = len(rows) - lost - gone
        say(f"{back} values are as they were; {lost} could not be put back{went}.")


def _content(row: Restored) -> tuple[object, ...]:
    return row.setting, row.current, row.before, row.outcome, row.errno, row.found, row.limit


def _cells(targets: Sequence[str], row: Restored) -> list[str]:
    values = [shown(row.current), shown(row.before), str(row.outcome), _why(row)]
    return [names(targets), row.setting, *values]


def _why(row: Restored) -> str:
    reasons = ["it is gone, and its values with it"] if row.gone and row.limit is None else []
    if row.errno:
        reasons.append(os.strerror(row.errno))
    if row.limit is not None:
        reasons.append(row.limit)
    if row.found is not None and row.found != row.before:
        reasons.append(f"reads {row.found}")
    if not row.done and row.setting in _ADVICE:
        reasons.append(_ADVICE[row.setting])
    return "; ".join(reasons)


_ADVICE = {
    "nr_requests": "set its former scheduler and roll back again",
    "max_sectors_kb": "lower the map's max_sectors_kb or flush the map, and roll back again",
}
"""What to do about a setting that could not go back legally."""
