"""Settings switched for a measurement, and back: between two states, or through several values.

A ``Trial`` switches what an apply has set, for probes to compare with what was there before; an
``Experiment`` takes settings of one target through several values. Both go through the same
chains, claims and journal as an apply: the baselines are on disk before the first write, the run
stands in the journal until everything is back, and the targets are held meanwhile so that the
daemon does not repair them. Killed at any instant, a rollback restores. A trial ends with
everything as applied, but for what it reverted; an experiment with the values that were there.
A value that an administrator or another tool changes during the run is not overwritten.
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
from hbatune.act.chain import Step, WriteResult, above, changed
from hbatune.act.executor import Key, Means, Report
from hbatune.act.journal import NOT_OURS, Entry, Journal, Run
from hbatune.act.lock import HeldTargets
from hbatune.act.restore import RestorePlan, plan_writes
from hbatune.act.writer import baselines, chain_of, execute, read_raw, require_writable, typed
from hbatune.facts.attributes import errors
from hbatune.facts.families import family_named
from hbatune.facts.model import Attribute, Machine
from hbatune.facts.targets import targets
from hbatune.plan.make import QUEUE_FULL_THRESHOLD
from hbatune.plan.rows import DONE, Outcome, Reverted, Row
from hbatune.settings.table import (
    SCHEDULER,
    SCHEDULER_TUNABLES,
    Value,
    among,
    disturbed,
    selected,
    setting,
)
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

    ``command`` is the name of the run in the journal. Once the trial has ended, ``failed`` has the
    settings that are not as applied, with the reasons.

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
        self._held = HeldTargets(holds, (row.id for row in self.rows))
        self._sides = {Side.BEFORE: _by_target(before)}
        self._now: dict[str, dict[str, Value]] = {}
        self._stuck: dict[Key, Process] = {}
        self._conflicts: dict[Key, WriteResult] = {}
        self._reverted: set[Key] = set()
        self._command = command
        self.failed: dict[Key, WriteResult] = {}
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
            conflicts = len(self._conflicts)
            self.failed = self.switch(self._applied, Side.AFTER)
            if len(self._conflicts) > conflicts:
                # A chain that meets a conflict also holds back the steps that would reset it.
                self.failed = self.switch(self._applied, Side.AFTER)
            stuck = {key: WriteResult(key[1], Outcome.STUCK) for key in self._stuck}
            self.failed |= stuck | self._conflicts
            entries = [entry for each in self._journal.entries if (entry := self._kept(each))]
            journal.save(self._means.journal, self._remembered().ended(entries))
        finally:
            self._held.release()

    def switch(self, keys: Collection[Key], side: Side) -> dict[Key, WriteResult]:
        """Bring these settings, and those that they reset, to one side.

        Return the results of those that failed. A target that is stuck is skipped, and a setting
        that was changed by others fails until the end of the trial.
        """
        ways = self._ways(keys, side)
        report = execute([way.chain for way in ways if way.chain is not None], self._means)
        self._stuck |= report.stuck
        for (id, name), result in report.results.items():
            if result.outcome is Outcome.CONFLICT and result.found is not None:
                self._note_conflict(id, result)
            elif result.outcome in DONE and result.found is not None:
                self._now.setdefault(id, {})[name] = result.found
        # Afterwards: a setting that must not be written may still have been reset by the others.
        for way in ways:
            for name, why in way.refused.items():
                report.results[way.id, name] = WriteResult(name, Outcome.REFUSED, said=why)
        failed = {key: each for key, each in report.results.items() if each.outcome not in DONE}
        return failed | {key: self._conflicts[key] for key in keys if key in self._conflicts}

    def _note_conflict(self, id: str, result: WriteResult) -> None:
        """Have both sides leave a value that others have set, and what their write has reset."""
        now, found = self._now.setdefault(id, {}), result.found
        last = now.get(result.setting)
        if found is None or found == last:
            return  # another assumption does not hold
        now[result.setting] = found
        if last is not None and self._by_kernel(id, result.setting, last, found):
            return
        self._conflicts[id, result.setting] = result
        for side in self._sides.values():
            side[id] = _without_resets(side.get(id, {}), result.setting) | {result.setting: found}

    def revert(self, keys: Collection[Key]) -> dict[Key, WriteResult]:
        """Put these settings back for good; return the results of those that failed."""
        lost = self.switch(keys, Side.BEFORE)
        self._reverted |= {key for key in keys if key not in lost}
        return lost

    def _by_kernel(self, id: str, name: str, last: Value, found: Value) -> bool:
        target = self._known[id]
        raw = read_raw({target.directory: (name,)}, self._means.deadline, self._means.worker_pool)
        full = _may_have_been_full(errors(target.attributes), errors(raw[target.directory]))
        baseline = next((e.before for e in self._journal.entries if e.key == (id, name)), None)
        return _by_kernel(self._machine, id, name, (last, found), baseline, full=full)

    def _ways(self, keys: Collection[Key], side: Side) -> list[RestorePlan]:
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
            ways.append(plan_writes(target, goal, self._now.get(id, {}), target.attributes))
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
        if entry.key in self._conflicts:
            return msgspec.structs.replace(entry, **NOT_OURS)
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


def _without_resets(values: Mapping[str, Value], name: str) -> dict[str, Value]:
    """Return the values without the settings that a write to this one resets."""
    return {each: value for each, value in values.items() if not among(each, setting(name).resets)}


def _may_have_been_full(before: int | None, now: int | None) -> bool:
    """Whether a disk has counted enough errors for the kernel to lower its depth."""
    return before is not None and now is not None and now - before >= QUEUE_FULL_THRESHOLD


def _by_kernel(
    machine: Machine,
    id: str,
    name: str,
    values: tuple[Value, Value],
    baseline: Value | None,
    *,
    full: bool,
) -> bool:
    """Whether the kernel or the driver has changed a value, from the first of two to the second.

    The kernel lowers a depth after a ``full`` queue (drivers/scsi/scsi.c: scsi_track_queue_full),
    and some drivers set their own value again (``Family.resets``), which is the baseline.
    """
    if full and setting(name).ramps and above(*values):
        return True
    family = next((endpoint.family for endpoint in machine.endpoints if endpoint.id == id), "")
    return values[1] == baseline and name in family_named(family).resets


class Experiment:
    """Some ``settings`` of the target ``id`` while a ``command`` tries several values of them.

    If one of them is changed by others, nothing is tried after that. Once the experiment has ended,
    ``failed`` has the settings that do not have their values from before it, with the reasons.

    Raises UsageError if its settings are on a read-only file system, JournalError if the journal
    cannot be written or has lost values, and HoldError if the target cannot be held: then nothing
    has been changed.
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
        self._held = HeldTargets(holds, (id,))
        self._journal = Journal(machine.boot_id)
        self._before: dict[str, Value] = {}
        self._now: dict[str, Value] = {}
        self._baselines: dict[str, Value] = {}
        self._errors: int | None = None
        self._conflicts: dict[str, WriteResult] = {}
        self._written: set[str] = set()  # and what those writes may have reset
        self._stuck: dict[Key, Process] = {}
        self._known: frozenset[Key] = frozenset()
        self.failed: dict[str, WriteResult] = {}

    @property
    def has_conflict(self) -> bool:
        """Whether others have changed one of the settings."""
        return bool(self._conflicts)

    def __enter__(self) -> Self:
        require_writable(self._machine, (self._target.id,))
        chain = chain_of(self._target, [Step(name, 0, None) for name in self._settings])
        found = baselines([chain], {}, self._means)
        self._before = {entry.setting: entry.before for entry in found}
        self._now = dict(self._before)
        recorded, _ = journal.load_for(self._means.journal, self._machine)
        journal.require_complete(recorded)
        self._known = frozenset(entry.key for entry in recorded.entries)
        run = Run(self._command, None, this_process(), time.time())
        self._journal = recorded.begun(run, found)
        own = (entry for entry in self._journal.entries if entry.id == self._target.id)
        self._baselines = {entry.setting: entry.before for entry in own}
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
            if not self._stuck:
                self._look()
            report = self._lead(self._before)
            results = {name: each for (_, name), each in report.results.items()}
            self.failed = {
                name: each
                for name, each in results.items()
                # Behind a stuck write nothing is tried, but most settings were never changed.
                if each.outcome not in DONE
                and (each.outcome is not Outcome.STUCK or among(name, self._written))
            } | self._conflicts
            kept = [entry for each in self._journal.entries if (entry := self._kept(each, report))]
            journal.save(self._means.journal, self._journal.ended(kept))
        finally:
            self._held.release()

    def take(self, values: Mapping[str, Value]) -> dict[str, WriteResult]:
        """Set these values, with the other settings as they were found, and return the results.

        What the values reset, and is not among them, is left as the kernel makes it. If others have
        changed one of the settings, nothing is written: all results are conflicts.
        """
        lacking = [name for name in values if name not in self._before]
        if lacking:  # without a baseline it could not be put back
            return {name: WriteResult(name, Outcome.REFUSED, errno.ENODATA) for name in lacking}
        if not self._stuck and not self._conflicts:
            self._look()
        if self._conflicts:
            return {name: WriteResult(name, Outcome.CONFLICT) for name in values} | self._conflicts
        reset = disturbed(name for name, value in values.items() if value != self._before[name])
        kept = {name: each for name, each in self._before.items() if not among(name, reset)}
        report = self._lead({**kept, **values})
        return {name: report.results[self._target.id, name] for name in values}

    def _look(self) -> None:
        """Read the settings, and note the changes that others have made since the last write."""
        names, directory = disturbed(self._settings), self._target.directory
        raw = read_raw({directory: names}, self._means.deadline, self._means.worker_pool)[directory]
        found = {name: each for name, each in typed(raw).items() if among(name, names)}
        if found.get(SCHEDULER) != self._before.get(SCHEDULER):
            # Tunables of a scheduler that only the experiment has set go with it.
            tunables = {name for name in found if name.startswith(SCHEDULER_TUNABLES)}
            self._now = {name: each for name, each in self._now.items() if name not in tunables}
        before, self._errors = self._errors, errors(raw)
        full = _may_have_been_full(before, self._errors)
        for name in sorted(found.keys() & self._now.keys(), key=lambda name: setting(name).order):
            values = self._now[name], found[name]
            if (
                # A value that the change of another setting has reset is not a decision.
                not among(name, disturbed(self._conflicts))
                and changed(setting(name), Step(name, values[0], values[0]), values[1])
                and not self._by_kernel(name, values, full=full)
            ):
                self._note_conflict(WriteResult(name, Outcome.CONFLICT, found=values[1]))
        self._now = found

    def _by_kernel(self, name: str, values: tuple[Value, Value], *, full: bool) -> bool:
        baseline = self._baselines.get(name)
        return _by_kernel(self._machine, self._target.id, name, values, baseline, full=full)

    def _note_conflict(self, result: WriteResult) -> None:
        """Have the end of the experiment leave a value that others have set, and its effects."""
        assert result.found is not None
        self._conflicts[result.setting] = result
        kept = _without_resets(self._before, result.setting)
        self._before = kept | {result.setting: result.found}

    def _lead(self, goal: Mapping[str, Value]) -> Report:
        """Write what differs from the goal, unless a write is still waiting in the kernel."""
        id = self._target.id
        if self._stuck:
            # Another write to that disk would wait behind the stuck one, and a read as well.
            waiting = {(id, name): WriteResult(name, Outcome.STUCK) for name in goal}
            return Report(waiting, stuck=self._stuck)
        now = self._now
        way = plan_writes(self._target, goal, now, self._target.attributes)
        report = execute([way.chain], self._means) if way.chain else Report()
        self._note_written(report)
        for name, why in way.refused.items():
            report.results[id, name] = WriteResult(name, Outcome.REFUSED, said=why)
        for name in goal:
            kept = WriteResult(name, Outcome.KEPT, found=now.get(name))
            report.results.setdefault((id, name), kept)
        self._stuck |= report.stuck
        return report

    def _note_written(self, report: Report) -> None:
        """Note the values that the writes have left; a reset value that was not read is unknown."""
        results = {name: each for (_, name), each in report.results.items()}
        for name, each in results.items():
            if each.outcome is Outcome.CONFLICT and each.found not in (None, self._now.get(name)):
                self._note_conflict(each)
        reset = disturbed(name for name, each in results.items() if each.outcome not in _UNWRITTEN)
        self._written.update(reset)
        unread = {name: each for name, each in self._now.items() if not among(name, reset)}
        read = {name: each.found for name, each in results.items() if each.found is not None}
        self._now = unread | read

    def _kept(self, entry: Entry, report: Report) -> Entry | None:
        """Return the entry as it stays, None for a setting that is back as it was found."""
        if entry.key in report.stuck:
            return msgspec.structs.replace(entry, doubt=report.stuck[entry.key])
        # Entries that the journal had before are an earlier run's and stay.
        earlier = entry.key in self._known
        if entry.id == self._target.id and among(entry.setting, disturbed(self._conflicts)):
            written = earlier or among(entry.setting, self._written)
            return msgspec.structs.replace(entry, **NOT_OURS) if written else None
        result = report.results.get(entry.key)
        back = not report.stuck and (result is None or result.outcome in DONE)
        return None if back and not earlier else entry


_UNWRITTEN = frozenset({Outcome.KEPT, Outcome.CONFLICT, Outcome.CANCELLED})
"""Outcomes of steps that were not written."""


def _hold_and_save(held: HeldTargets, means: Means, recorded: Journal) -> None:
    """Hold the targets and save the journal; JournalError with the hold released."""
    held.take()
    try:
        journal.save(means.journal, recorded)
    except journal.JournalError:
        held.release()
        raise
