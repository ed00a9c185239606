"""Settings switched for a measurement, and back: between two states, or through several values.

A ``Trial`` switches what an apply has set, for probes to compare with what was there before; an
``Experiment`` takes settings of one target through several values. Both go through the same
chains, claims and journal as an apply: the baselines are on disk before the first write, the run
stands in the journal until everything is back, and the targets are held meanwhile so that the
daemon does not repair them. Killed at any instant, a rollback restores. A trial ends with
everything as applied, but for what it reverted; an experiment with the values that were there.
"""

import errno
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from hbatune.act import journal
from hbatune.act.apply import baselines, chain_of
from hbatune.act.batches import execute
from hbatune.act.chain import Step, WriteResult
from hbatune.act.executor import Key, Report
from hbatune.act.journal import Entry, Journal, Run
from hbatune.act.lock import Held
from hbatune.act.means import Means
from hbatune.act.rollback import WayBack, leading_to
from hbatune.facts.model import Attribute, Machine
from hbatune.facts.targets import targets
from hbatune.plan.rows import DONE, Outcome, Reverted, Row
from hbatune.settings.table import Value, among, disturbed, selected, setting
from hbatune.workers import Process, this_process

Values = Mapping[Key, Value]


class Side(StrEnum):
    """One of the two states that a trial switches between."""

    BEFORE = "before"
    AFTER = "after"


def now(machine: Machine, rows: Iterable[Row], means: Means) -> dict[Key, Value]:
    """Return by id and setting the current values of all that writing these rows may change."""
    known, steps = targets(machine), dict[str, list[Step]]()
    for row in rows:
        steps.setdefault(row.id, []).append(Step(row.setting, row.wanted, None))
    chains = [chain_of(known[id], found) for id, found in steps.items()]
    return {entry.key: entry.before for entry in baselines(chains, {}, means)}


def switchable(machine: Machine, rows: Iterable[Row], before: Values) -> bool:
    """Whether these rows can be switched back and forth on a live system.

    An nr_requests that was below the tag set without a scheduler cannot: lowering it again shrinks
    the tag set of the whole adapter for good (block/blk-mq.c: blk_mq_update_nr_requests). Neither
    can a setting that disrupts the I/O of a whole adapter.
    """
    return not any(
        setting(row.setting).disrupts
        or (row.setting == "nr_requests" and _below_tags(machine, row, before))
        for row in rows
    )


def _below_tags(machine: Machine, row: Row, before: Values) -> bool:
    endpoint = next((each for each in machine.endpoints if each.id == row.id), None)
    scheduler = before.get((row.id, "scheduler"))
    if endpoint is None:
        return True
    if scheduler is None:
        found = endpoint.attributes.get(setting("scheduler").path)
        scheduler = selected(found.text) if isinstance(found, Attribute) else "none"
    requests = before.get((row.id, "nr_requests"))
    return scheduler == "none" and requests != endpoint.tags


class Trial:
    """The rows that an apply has written, and the values ``before`` it (``now``).

    ``command`` is the name of the run in the journal.

    Raises JournalError where the journal cannot be written, and HoldError where the targets cannot
    be held: then nothing has been switched.
    """

    def __init__(
        self,
        machine: Machine,
        rows: Sequence[Row],
        before: Values,
        means: Means,
        *,
        holds: Path,
        command: str = "apply",
    ) -> None:
        self.rows = tuple(row for row in rows if row.outcome is Outcome.WRITTEN)
        self._machine = machine
        self._known = targets(machine)
        # A trial that is stopped must still put everything back: it does not listen to the stop.
        self._means = msgspec.structs.replace(
            means, stop=lambda: False, progress=lambda chain: None
        )
        self._held = Held(holds, (row.id for row in self.rows))
        self._sides = {Side.BEFORE: _by_target(before)}
        self._now: dict[str, dict[str, Value]] = {}
        self._stuck: dict[Key, Process] = {}
        self._reverted: set[Key] = set()
        self._command = command
        self._journal = Journal(machine.boot_id)

    def __enter__(self) -> Self:
        after = _by_target(now(self._machine, self.rows, self._means))
        self._sides[Side.AFTER] = after
        self._now = {id: dict(values) for id, values in after.items()}
        recorded, _ = journal.load_for(self._means.journal, self._machine)
        # Held before the first switch, or the daemon would repair the values of one side as drift.
        self._journal = recorded.begun(Run(self._command, None, this_process(), time.time()), ())
        _hold_and_save(self._held, self._means, self._journal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # After an exception, too: a trial ends with everything as applied.
            self.switch(self._applied, Side.AFTER)
            entries = [entry for each in self._journal.entries if (entry := self._kept(each))]
            journal.save(self._means.journal, self._remembered().ended(entries))
        finally:
            self._held.release()

    def switch(self, keys: Collection[Key], side: Side) -> dict[Key, WriteResult]:
        """Bring these settings, and those that they reset, to one side.

        Return the results of those that failed; a target that is stuck is left alone.
        """
        ways = self._ways(keys, side)
        report = execute([way.chain for way in ways if way.chain is not None], self._means)
        for way in ways:
            for name, why in way.refused.items():
                report.results[way.id, name] = WriteResult(name, Outcome.REFUSED, said=why)
        self._stuck |= report.stuck
        for (id, name), result in report.results.items():
            if result.outcome in DONE and result.found is not None:
                self._now.setdefault(id, {})[name] = result.found
        return {key: each for key, each in report.results.items() if each.outcome not in DONE}

    def revert(self, keys: Collection[Key]) -> dict[Key, WriteResult]:
        """Put these settings back for good; return the results of those that failed."""
        lost = self.switch(keys, Side.BEFORE)
        self._reverted |= {key for key in keys if key not in lost}
        return lost

    def _ways(self, keys: Collection[Key], side: Side) -> list[WayBack]:
        names: dict[str, list[str]] = {}
        stuck = {id for id, _ in self._stuck}
        for id, name in keys:
            if id not in stuck:
                names.setdefault(id, []).append(name)
        ways = []
        for id, found in names.items():
            # Settings that these reset take their values of that side as well.
            goal = _those(self._sides[side].get(id, {}), disturbed(found))
            target = self._known[id]
            ways.append(leading_to(target, goal, self._now.get(id, {}), target.attributes))
        return ways

    def _remembered(self) -> Journal:
        """Return the journal with the reverted values, so that no later run sets them again."""
        tried = {
            Reverted(row.id, row.setting, row.value): None
            for row in self.rows
            if (row.id, row.setting) in self._reverted and row.value is not None
        }
        known = dict.fromkeys(self._journal.reverted)
        return msgspec.structs.replace(self._journal, reverted=tuple(known | tried))

    @property
    def _applied(self) -> set[Key]:
        """The settings that stay as they were applied."""
        return {(row.id, row.setting) for row in self.rows} - self._reverted

    def _kept(self, entry: Entry) -> Entry | None:
        """Return the entry as it stays, None for a setting that is back at its baseline."""
        if entry.key in self._stuck:
            return msgspec.structs.replace(entry, doubt=self._stuck[entry.key])
        if entry.key in self._applied:
            return entry
        back = {name for id, name in self._reverted if id == entry.id}
        if entry.setting in _those({entry.setting: 0}, disturbed(back)):
            before = self._sides[Side.BEFORE].get(entry.id, {}).get(entry.setting)
            return None if before == entry.before else entry
        return entry


def _by_target(values: Values) -> dict[str, dict[str, Value]]:
    found: dict[str, dict[str, Value]] = {}
    for (id, name), value in values.items():
        found.setdefault(id, {})[name] = value
    return found


def _those(values: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    """Return the values of these settings, including all tunables of a scheduler among them."""
    return {name: value for name, value in values.items() if among(name, names)}


class Experiment:
    """Some ``settings`` of the target ``id`` while a ``command`` tries several values of them.

    Raises JournalError where the journal cannot be written or has lost values, and HoldError where
    the target cannot be held: then nothing has been changed.
    """

    def __init__(
        self,
        machine: Machine,
        id: str,
        settings: Collection[str],
        command: str,
        means: Means,
        *,
        holds: Path,
    ) -> None:
        self._machine = machine
        self._target = targets(machine)[id]
        self._settings = tuple(settings)
        self._command = command
        # One that is stopped must still put its settings back: it does not listen to the stop.
        self._means = msgspec.structs.replace(
            means, stop=lambda: False, progress=lambda chain: None
        )
        self._held = Held(holds, (id,))
        self._journal = Journal(machine.boot_id)
        self._before: dict[str, Value] = {}
        self._stuck: dict[Key, Process] = {}
        self._known: frozenset[Key] = frozenset()

    def __enter__(self) -> Self:
        found = self._entries()
        self._before = {entry.setting: entry.before for entry in found}
        recorded, _ = journal.load_for(self._means.journal, self._machine)
        journal.require_complete(recorded)
        self._known = frozenset(entry.key for entry in recorded.entries)
        run = Run(self._command, None, this_process(), time.time())
        self._journal = recorded.begun(run, found)
        _hold_and_save(self._held, self._means, self._journal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # Also after an exception: the values that were there come back before the hold ends.
            report = self._lead(self._before)
            kept = [entry for each in self._journal.entries if (entry := self._kept(each, report))]
            journal.save(self._means.journal, self._journal.ended(kept))
        finally:
            self._held.release()

    def take(self, values: Mapping[str, Value]) -> dict[str, WriteResult]:
        """Set these values, with the other settings as they were found, and return the results.

        What the values reset, and is not among them, is left as the kernel makes it.
        """
        lacking = [name for name in values if name not in self._before]
        if lacking:  # without a baseline it could not be put back
            return {name: WriteResult(name, Outcome.REFUSED, errno.ENODATA) for name in lacking}
        changed = [name for name, value in values.items() if value != self._before[name]]
        reset = disturbed(changed)
        kept = {name: each for name, each in self._before.items() if not among(name, reset)}
        report = self._lead({**kept, **values})
        return {name: report.results[self._target.id, name] for name in values}

    def _entries(self) -> list[Entry]:
        chain = chain_of(self._target, [Step(name, 0, None) for name in self._settings])
        return baselines([chain], {}, self._means)

    def _lead(self, goal: Mapping[str, Value]) -> Report:
        """Write what differs from the goal, unless a write is still waiting in the kernel."""
        id = self._target.id
        if self._stuck:
            # Another write to that disk would wait behind the stuck one, and a read as well.
            waiting = {(id, name): WriteResult(name, Outcome.STUCK) for name in goal}
            return Report(waiting, stuck=self._stuck)
        now = {entry.setting: entry.before for entry in self._entries()}
        way = leading_to(self._target, goal, now, self._target.attributes)
        report = execute([way.chain], self._means) if way.chain else Report()
        for name, why in way.refused.items():
            report.results[id, name] = WriteResult(name, Outcome.REFUSED, said=why)
        for name in goal:
            kept = WriteResult(name, Outcome.KEPT, found=now.get(name))
            report.results.setdefault((id, name), kept)
        self._stuck |= report.stuck
        return report

    def _kept(self, entry: Entry, report: Report) -> Entry | None:
        """Return the entry as it stays, None for a setting that is back as it was found."""
        if entry.key in report.stuck:
            return msgspec.structs.replace(entry, doubt=report.stuck[entry.key])
        result = report.results.get(entry.key)
        # Entries that the journal had before are an earlier run's and stay.
        back = not report.stuck and (result is None or result.outcome in DONE)
        return None if back and entry.key not in self._known else entry


def _hold_and_save(held: Held, means: Means, recorded: Journal) -> None:
    """Hold the targets and save the journal; JournalError with the hold released."""
    held.take()
    try:
        journal.save(means.journal, recorded)
    except journal.JournalError:
        held.release()
        raise
