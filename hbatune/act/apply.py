"""Makes a plan so: the baselines first, durable, then the writes, then what came of them."""

import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from hbatune.act import claims, journal, paths
from hbatune.act.chain import Chain, ChainWriter, Result, Step
from hbatune.act.executor import Executor, Key, Report
from hbatune.act.journal import Entry, Journal, Run
from hbatune.act.saved import adopted
from hbatune.facts.model import Attribute, Machine, Missing
from hbatune.facts.survey import survey_each
from hbatune.facts.targets import Target, targets
from hbatune.rows import Outcome, Plan, Row, State
from hbatune.settings.table import SCHEDULER_TUNABLES, Value, disturbed, setting
from hbatune.workers import Crew, Pool, this_process

CHANGED = frozenset({Outcome.WRITTEN, Outcome.IGNORED, Outcome.STUCK})
"""Outcomes after which the device may have another value than before."""


class Means(Struct, frozen=True):
    """How writes are done: where the state is, how many workers, and the deadline in seconds.

    The workers are those of the ``crew``, where there is one.
    """

    journal: Path
    claims: Path
    workers: int
    deadline: float
    stop: Callable[[], bool] = lambda: False
    progress: Callable[[Chain], None] = lambda chain: None
    crew: Crew | None = None


def apply(
    machine: Machine, plan: Plan, filed: Journal, means: Means, *, named: Collection[str] = ()
) -> tuple[Row, ...]:
    """Write what drifts and return all rows of the plan with their outcomes.

    ``filed`` is this boot's journal as it is on disk; the ids that were ``named`` are excluded no
    longer. JournalError, before anything is written to a device, where the baselines cannot be
    made durable.
    """
    filed = filed.excluding(id for id in filed.excluded if id not in named).trying(named)
    drifting = {row.id for row in plan.drift}
    touched = (each for each in machine.endpoints if each.id in drifting)
    filed = adopted(filed, touched, paths.SPENT)
    chains = _chains(plan.drift, targets(machine))
    if not chains:
        journal.save(means.journal, filed.ended(map(_settled, filed.entries)))
        return outcomes(plan.rows, Report())
    wanted = {(row.id, row.setting): row.value for row in plan.drift}
    before = baselines(chains, wanted, means)
    run = Run("apply", plan.profile, this_process(), time.time())
    begun = filed.begun(run, before)
    journal.save(means.journal, begun)
    known = {entry.key for entry in begun.entries}
    report = execute([chain for chain in chains if _covered(chain, known)], means)
    for chain in chains:
        if not _covered(chain, known):
            report.results.update(_left_alone(chain))
    journal.save(means.journal, begun.ended(_kept(begun.entries, filed, chains, report)))
    return outcomes(plan.rows, report)


def execute(chains: Iterable[Chain], means: Means) -> Report:
    """Run the chains in the pool; the writers that are gone leave no claim behind."""
    writer = ChainWriter(means.claims)
    size, deadline = means.workers, means.deadline
    with Pool[Chain, bytes](writer, size=size, deadline=deadline, crew=means.crew) as pool:
        report = Executor(pool, stop=means.stop, progress=means.progress).run(chains)
    claims.clear(means.claims)
    return report


def outcomes(rows: Iterable[Row], report: Report) -> tuple[Row, ...]:
    """Return the rows with what came of each; a row that was right already is ``kept``."""
    done: list[Row] = []
    for row in rows:
        if row.state is State.OK:
            done.append(msgspec.structs.replace(row, outcome=Outcome.KEPT))
        elif row.state is State.DRIFT:
            done.append(_done(row, report.results[row.id, row.setting]))
        else:
            done.append(row)
    return tuple(done)


def _covered(chain: Chain, known: Collection[Key]) -> bool:
    """Whether what was there before is known of every setting that the chain writes."""
    return all((chain.id, step.setting) in known for step in chain.steps)


def _left_alone(chain: Chain) -> dict[Key, Result]:
    """Return the results of a chain that was not begun, since nobody could put it back."""
    outcome = Outcome.REFUSED if os.path.isdir(chain.sysfs) else Outcome.VANISHED
    return {
        (chain.id, step.setting): Result(step.setting, outcome, errno.ENODATA)
        for step in chain.steps
    }


def _done(row: Row, result: Result) -> Row:
    """Return a row with what came of it; one that turned out to be nobody's to set is fixed."""
    if result.outcome is Outcome.REFUSED and result.errno in setting(row.setting).locked:
        limit = "the kernel or the driver placed it and refuses to have it moved"
        return msgspec.structs.replace(row, state=State.FIXED, value=None, limit=limit)
    return msgspec.structs.replace(
        row,
        limit=result.said or row.limit,
        outcome=result.outcome,
        errno=result.errno,
        found=None if result.found == row.value else result.found,
    )


def _chains(drift: Iterable[Row], known: Mapping[str, Target]) -> list[Chain]:
    steps: dict[str, list[Step]] = {}
    for row in drift:
        assert row.value is not None
        steps.setdefault(row.id, []).append(Step(row.setting, row.value, row.current))
    return [chain_of(known[id], found) for id, found in steps.items()]


def chain_of(target: Target, steps: Iterable[Step]) -> Chain:
    """Return the chain that does these steps, in their order, on the target."""
    ordered = sorted(steps, key=lambda step: setting(step.setting).order)
    return Chain(
        target=target.name,
        id=target.id,
        adapter=target.adapter,
        map=target.map,
        sysfs=target.directory,
        steps=tuple(ordered),
    )


def baselines(
    chains: Iterable[Chain], wanted: Mapping[Key, Value | None], means: Means
) -> list[Entry]:
    """Return what is there now of all that the chains may change, by a write or by its effects.

    What cannot be read or set is not there: it could not be put back either.
    """
    entries: list[Entry] = []
    names = {chain: disturbed(step.setting for step in chain.steps) for chain in chains}
    found = read_now({chain.sysfs: names[chain] for chain in names}, means.deadline, means.crew)
    for chain in names:
        for name, value in found[chain.sysfs].items():
            goal = wanted.get((chain.id, name))
            entries.append(Entry(chain.id, chain.target, chain.adapter, name, value, goal))
    return entries


def read_now(
    wanted: Mapping[str, Iterable[str]], deadline: float, crew: Crew | None = None
) -> dict[str, dict[str, Value]]:
    """Return, by sysfs directory, the typed values of these settings that are there to be set."""
    paths = {directory: tuple(map(_path, names)) for directory, names in wanted.items()}
    found = survey_each(paths, deadline=deadline, crew=crew)
    return {directory: _typed(found[directory], wanted[directory]) for directory in wanted}


def _path(name: str) -> str:
    return f"{SCHEDULER_TUNABLES}*" if name == SCHEDULER_TUNABLES else setting(name).path


def _typed(attributes: Mapping[str, Attribute | Missing], names: Iterable[str]) -> dict[str, Value]:
    by_path = {setting(name).path: name for name in names if name != SCHEDULER_TUNABLES}
    values: dict[str, Value] = {}
    for path, attribute in attributes.items():
        if isinstance(attribute, Missing) or not attribute.writable:
            continue
        name = by_path.get(path, path)
        try:
            values[name] = setting(name).parse(attribute.text)
        except ValueError:
            continue
    return values


def _kept(
    entries: Iterable[Entry], filed: Journal, chains: Iterable[Chain], report: Report
) -> list[Entry]:
    """Return the entries worth keeping: those of before, and those of targets that changed."""
    known = {entry.key for entry in filed.entries}
    changed = {
        chain.id
        for chain in chains
        if any(_may_differ(step, report.results[chain.id, step.setting]) for step in chain.steps)
    }
    return [
        msgspec.structs.replace(_settled(entry), doubt=report.stuck[entry.key])
        if entry.key in report.stuck
        else _settled(entry)
        for entry in entries
        if entry.key in known or entry.id in changed
    ]


def _may_differ(step: Step, result: Result) -> bool:
    """Whether the device may have another value than before.

    A refused write may have changed it, too: a scheduler that cannot be set leaves `none`
    (block/elevator.c: elevator_switch), and what cannot be read back may be anything.
    """
    if result.outcome in CHANGED:
        return True
    tried = result.outcome is Outcome.REFUSED and result.errno != errno.ECANCELED
    return tried and result.found != step.expected


def _settled(entry: Entry) -> Entry:
    """Return the entry without the doubt that a writer now gone had left."""
    if entry.doubt is None or entry.doubt.alive():
        return entry
    return msgspec.structs.replace(entry, doubt=None)
