"""Settings switched between what was there and what an apply has set, for probes to compare.

Every switch goes through the same chains, claims and journal as an apply: the baselines are on
disk before the first of them, the run stands in the journal until the trial has ended, and what
is being switched is held against everybody who would put it right. Killed at any instant, a
rollback restores. A trial ends with everything as applied, but for what it reverted.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from hbatune.act import carried_over, journal
from hbatune.act.apply import Means, baselines, chain_of, execute
from hbatune.act.chain import Step, WriteResult
from hbatune.act.executor import Key
from hbatune.act.hold import Held
from hbatune.act.journal import Entry, Journal, Run
from hbatune.act.rollback import RESTORED, WayBack, leading_to
from hbatune.facts.model import Attribute, Machine
from hbatune.facts.targets import targets
from hbatune.plan.rows import Outcome, Reverted, Row
from hbatune.settings.table import Value, among, disturbed, selected, setting
from hbatune.workers import Process, this_process

Values = Mapping[Key, Value]


class Side(StrEnum):
    """One of the two states that a trial switches between."""

    BEFORE = "before"
    AFTER = "after"


def now(machine: Machine, rows: Iterable[Row], means: Means) -> dict[Key, Value]:
    """Return what is there now of all that writing these rows may change, by id and setting."""
    known, steps = targets(machine), dict[str, list[Step]]()
    for row in rows:
        steps.setdefault(row.id, []).append(Step(row.setting, row.wanted, None))
    chains = [chain_of(known[id], found) for id, found in steps.items()]
    return {entry.key: entry.before for entry in baselines(chains, {}, means)}


def switchable(machine: Machine, rows: Iterable[Row], before: Values) -> bool:
    """Whether these rows can be switched back and forth on a live system.

    nr_requests that was below the tag set with no scheduler cannot: lowering it again shrinks the
    tag set of the whole adapter, and that sticks (block/blk-mq.c: blk_mq_update_nr_requests).
    Nor can what disrupts the I/O of a whole adapter.
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
    """The rows that an apply has written, and what was there ``before`` it (``now``).

    JournalError where the journal cannot be written, HoldError where the targets cannot be held:
    then nothing has been switched.
    """

    def __init__(
        self,
        machine: Machine,
        rows: Sequence[Row],
        before: Values,
        means: Means,
        *,
        holds: Path,
    ) -> None:
        self.rows = tuple(row for row in rows if row.outcome is Outcome.WRITTEN)
        self._machine = machine
        self._known = targets(machine)
        # A trial that is stopped still puts back what it has switched.
        self._means = msgspec.structs.replace(
            means, stop=lambda: False, progress=lambda chain: None
        )
        self._held = Held(holds, (row.id for row in self.rows))
        self._sides = {Side.BEFORE: _by_target(before)}
        self._now: dict[str, dict[str, Value]] = {}
        self._stuck: dict[Key, Process] = {}
        self._reverted: set[Key] = set()
        self._filed = Journal(machine.boot_id)

    def __enter__(self) -> Self:
        after = _by_target(now(self._machine, self.rows, self._means))
        self._sides[Side.AFTER] = after
        self._now = {id: dict(values) for id, values in after.items()}
        filed, _ = carried_over.load(self._means.journal, self._machine)
        self._filed = filed.begun(Run("apply --verify", None, this_process(), time.time()), ())
        self._held.take()
        try:
            journal.save(self._means.journal, self._filed)
        except journal.JournalError:
            self._held.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.switch(self._applied, Side.AFTER)
            entries = [entry for each in self._filed.entries if (entry := self._kept(each))]
            journal.save(self._means.journal, self._remembered().ended(entries))
        finally:
            self._held.release()

    def switch(self, keys: Collection[Key], side: Side) -> dict[Key, WriteResult]:
        """Bring these settings, and what they reset, to one side.

        Return the results of those that would not go; a target that is stuck is left alone.
        """
        ways = self._ways(keys, side)
        report = execute([way.chain for way in ways if way.chain is not None], self._means)
        for way in ways:
            for name, why in way.refused.items():
                report.results[way.id, name] = WriteResult(name, Outcome.REFUSED, said=why)
        self._stuck |= report.stuck
        for (id, name), result in report.results.items():
            if result.outcome in RESTORED and result.found is not None:
                self._now.setdefault(id, {})[name] = result.found
        return {key: each for key, each in report.results.items() if each.outcome not in RESTORED}

    def revert(self, keys: Collection[Key]) -> dict[Key, WriteResult]:
        """Put these settings back for good; return the results of those that would not go."""
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
            goal = _those(self._sides[side].get(id, {}), disturbed(found))
            target = self._known[id]
            ways.append(leading_to(target, goal, self._now.get(id, {}), target.attributes))
        return ways

    def _remembered(self) -> Journal:
        """Return the journal that knows what was reverted, so that nobody sets it once more."""
        tried = {
            Reverted(row.id, row.setting, row.value): None
            for row in self.rows
            if (row.id, row.setting) in self._reverted and row.value is not None
        }
        known = dict.fromkeys(self._filed.reverted)
        return msgspec.structs.replace(self._filed, reverted=tuple(known | tried))

    @property
    def _applied(self) -> set[Key]:
        """The settings that stay as they were applied."""
        return {(row.id, row.setting) for row in self.rows} - self._reverted

    def _kept(self, entry: Entry) -> Entry | None:
        """Return the journal's entry as it stays, None for what is back at its baseline."""
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
    """Return the values of these settings, all of a scheduler's tunables among them."""
    return {name: value for name, value in values.items() if among(name, names)}
