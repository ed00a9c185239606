"""Puts back what the journal holds, in the same order as it was written: scheduler first."""

import time
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import journal, paths
from hbatune.act.apply import Means, chain_of, execute, read_now
from hbatune.act.chain import Chain, Step
from hbatune.act.claims import Claim
from hbatune.act.executor import Report
from hbatune.act.journal import Entry, Journal, Run
from hbatune.act.saved import adopted, spend
from hbatune.facts.model import Machine
from hbatune.facts.targets import Target, targets
from hbatune.rows import Outcome
from hbatune.settings.table import SCHEDULER_TUNABLES, Value, setting
from hbatune.workers import this_process

RESTORED = frozenset({Outcome.KEPT, Outcome.WRITTEN})


class Restored(Struct, frozen=True):
    """What came of putting one setting back to ``before``; ``found`` is what was read last.

    ``current`` is what it was when the rollback began; ``limit`` says why nothing was tried. The
    target may be ``gone``, and its values with it.
    """

    target: str
    id: str
    adapter: str | None
    setting: str
    current: Value | None
    before: Value
    outcome: Outcome
    errno: int | None = None
    found: Value | None = None
    limit: str | None = None
    gone: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing is left to put back."""
        return self.gone or self.outcome in RESTORED


def rollback(
    machine: Machine,
    filed: Journal,
    means: Means,
    *,
    ids: Collection[str] | None = None,
    stuck: Iterable[Claim] = (),
    disrupt: bool = False,
) -> tuple[Restored, ...]:
    """Put back every entry of the journal, or those of ``ids``, and take them out of it.

    What udev's rules had saved before they wrote is an entry like any other.

    What could not be put back stays in the journal, but for what is gone: a disk that comes back
    has the kernel's own values. ``stuck`` are writers of an earlier run that are still in the
    kernel; their targets are not touched. What disrupts the I/O of a whole adapter is put back only
    where that was allowed (``disrupt``). JournalError as for ``apply``.
    """
    concerned = [each for each in machine.endpoints if ids is None or each.id in ids]
    filed = adopted(filed, concerned, paths.SPENT)
    known = targets(machine)
    waiting = {claim.id for claim in stuck}
    entries = [entry for entry in filed.entries if ids is None or entry.id in ids]
    reachable: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.id in known and entry.id not in waiting:
            reachable.setdefault(entry.id, []).append(entry)
    current = read_now(
        {known[id].directory: [e.setting for e in found] for id, found in reachable.items()},
        means.deadline,
        means.crew,
    )
    now = {id: current[known[id].directory] for id in reachable}
    chains = [
        chain
        for id, found in reachable.items()
        if (chain := leading_to(known[id], _goal(found, disrupt), now[id]))
    ]
    run = Run("rollback", None, this_process(), time.time())
    begun = filed.begun(run, ())
    if chains:
        journal.save(means.journal, begun)
    report = execute(chains, means)
    places = {id.partition("@")[2] for id in known}
    rows = tuple(
        replace(row, gone=_gone(row, places))
        for row in (_row(entry, known, waiting, now, report) for entry in entries)
    )
    done = {(row.id, row.setting) for row in rows if row.done}
    journal.save(means.journal, begun.ended(e for e in begun.entries if e.key not in done))
    spend(concerned, paths.SPENT)
    return rows


def _goal(entries: Iterable[Entry], disrupt: bool) -> dict[str, Value]:
    """Return the values to go back to, less those whose write would disrupt I/O."""
    allowed = (entry for entry in entries if disrupt or not setting(entry.setting).disrupts)
    return {entry.setting: entry.before for entry in allowed}


def _gone(row: Restored, places: Collection[str]) -> bool:
    """Whether the target went, and its values with it.

    Where another one stands in its place, or the same one that cannot tell its name just now, the
    journal keeps the entry. ``places`` are those where something is.
    """
    return row.outcome is Outcome.VANISHED and row.id.partition("@")[2] not in places


def leading_to(target: Target, goal: Mapping[str, Value], now: Mapping[str, Value]) -> Chain | None:
    """Return the writes that bring one target from ``now`` to ``goal``, None where it is there.

    What those writes may change besides is in the chain too, after them; a worker writes only
    what then differs.
    """
    steps: list[Step] = []
    reset: set[str] = set()
    for name in sorted(goal, key=lambda name: setting(name).order):
        follows = (SCHEDULER_TUNABLES if name.startswith(SCHEDULER_TUNABLES) else name) in reset
        current = now.get(name)
        if follows or current != goal[name]:
            steps.append(Step(name, goal[name], None if follows else current))
            reset.update(setting(name).resets)
    return chain_of(target, steps) if steps else None


def _row(
    entry: Entry,
    known: Mapping[str, Target],
    waiting: Collection[str],
    now: Mapping[str, Mapping[str, Value]],
    report: Report,
) -> Restored:
    result = report.results.get(entry.key)
    current = now.get(entry.id, {}).get(entry.setting)
    errno, found, limit = None, None, None
    if result is not None:
        outcome, errno, found = result.outcome, result.errno, result.found
        if outcome is Outcome.WRITTEN and current == entry.before:
            outcome = Outcome.KEPT  # a write to another setting might have changed it
    elif entry.id not in known:
        outcome = Outcome.VANISHED
    elif entry.id in waiting:
        outcome = Outcome.STUCK
    elif current != entry.before and (disrupts := setting(entry.setting).disrupts):
        outcome, limit = Outcome.REFUSED, f"{disrupts}: only with --allow-reset"
    else:
        outcome = Outcome.KEPT
    return Restored(
        target=known[entry.id].name if entry.id in known else entry.target,
        id=entry.id,
        adapter=entry.adapter,
        setting=entry.setting,
        current=current,
        before=entry.before,
        outcome=outcome,
        errno=errno,
        found=found,
        limit=limit,
    )
