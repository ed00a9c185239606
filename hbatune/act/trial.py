"""Switch settings for a measurement: between two states, or through several values.

Both use the chains, claims and journal of an apply. The baselines are on disk before the first
write, and the run is in the journal until everything is restored: if the process is killed at any
instant, a rollback restores. Until then the targets are held, so the daemon does not repair them.
A value that an administrator or another tool changes during the run is not overwritten.
"""

import errno
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from hbatune.act import journal, lock, writer
from hbatune.act.chain import Chain, Step, WriteResult, has_changed
from hbatune.act.executor import Key, Means, Report
from hbatune.act.journal import DISOWNED_FIELDS, Entry, Journal, LostError, Run
from hbatune.act.restore import RestorePlan, plan_writes, select_originals
from hbatune.facts.attributes import parse_error_count
from hbatune.facts.families import family_named
from hbatune.facts.model import Machine
from hbatune.facts.names import group_items
from hbatune.facts.targets import list_targets
from hbatune.plan.joint_limits import QUEUE_FULL_THRESHOLD, is_lower
from hbatune.plan.rows import DONE_OUTCOMES, UNTRIED_OUTCOMES, Outcome, RevertedValue, Row
from hbatune.settings import limits, table
from hbatune.settings.table import Value, find_setting, is_among, is_tunable, list_affected_settings
from hbatune.text.limit_text import describe_limit
from hbatune.workers import Process, find_this_process

Values = Mapping[Key, Value]


class Side(StrEnum):
    """One of the two states that a trial switches between."""

    BEFORE = "before"
    AFTER = "after"


def read_affected_values(machine: Machine, rows: Iterable[Row], means: Means) -> dict[Key, Value]:
    """Return, by id and setting, the current values that writing these rows may change."""
    targets_by_id, steps = list_targets(machine), dict[str, list[Step]]()
    for row in rows:
        steps.setdefault(row.id, []).append(Step(row.setting, row.wanted, None))
    chains = [writer.build_chain(targets_by_id[id], group) for id, group in steps.items()]
    return {entry.key: entry.before for entry in writer.read_baselines(chains, {}, means)}


def list_originals(machine: Machine, recorded: Journal, ids: Collection[str]) -> Values:
    """Return, by id and setting, the original values of these targets."""
    targets, originals = list_targets(machine), dict[Key, Value]()
    for id, entries in group_items(recorded.concerning(ids), attrgetter("id")).items():
        goal = select_originals(entries, writer.parse_values(targets[id].attributes))
        originals |= {(id, name): value for name, value in goal.items()}
    return originals


def can_switch(machine: Machine, rows: Iterable[Row], before: Values) -> bool:
    """Return whether these rows can be switched on a live system, without disrupting an adapter."""
    for row in rows:
        if find_setting(row.setting).disrupts:
            return False
        if row.setting != "nr_requests":
            continue
        endpoint = next((disk for disk in machine.endpoints if disk.id == row.id), None)
        if endpoint is None:
            return False
        scheduler = before.get((row.id, "scheduler"), limits.find_scheduler(endpoint.attributes))
        # Lowering it to less than the tag set again permanently shrinks the tag set of the entire
        # adapter (block/blk-mq.c: blk_mq_update_nr_requests).
        if scheduler in ("none", None) and before.get(row.key) != endpoint.tags:
            return False
    return True


class _Switching:
    """A run that switches settings of held targets until it has restored them."""

    _hold: ExitStack

    def __init__(self, machine: Machine, command: str, means: Means, holds: Path) -> None:
        self._machine, self._command, self._holds = machine, command, holds
        self._targets = list_targets(machine)
        # A stopped run must still restore everything, so it ignores the stop.
        self._means = replace(means, stop=lambda: False, progress=lambda chain: None)
        self._journal = Journal(machine.boot_id)
        self._stuck: dict[Key, Process] = {}

    def _begin(self, recorded: Journal, entries: Iterable[Entry], ids: Iterable[str]) -> None:
        """Hold the targets, so the daemon does not repair them as drift, and save the run."""
        run = Run(self._command, None, find_this_process(), time.time())
        self._journal = recorded.begun(run, entries)
        with ExitStack() as stack:
            stack.enter_context(lock.hold_targets(self._holds, ids))
            journal.save(self._means.journal, self._journal)
            self._hold = stack.pop_all()

    def _is_kernel_change(
        self, key: Key, change: tuple[Value, Value], errors: tuple[int | None, int | None]
    ) -> bool:
        """Return whether the kernel or the driver changed a value from the first to the second.

        The kernel lowers a depth after full queues, which count as ``errors`` of the disk
        (drivers/scsi/scsi.c: scsi_track_queue_full). Some drivers set their own value again
        (``Family.resets``), which is the baseline.
        """
        (id, name), (last, value), (before, current) = key, change, errors
        new_errors = 0 if before is None or current is None else current - before
        is_lowered = find_setting(name).ramps and is_lower(value, last)
        if is_lowered and new_errors >= QUEUE_FULL_THRESHOLD:
            return True
        disk = next((disk for disk in self._machine.endpoints if disk.id == id), None)
        entry = self._journal.by_key.get(key)
        is_baseline = entry is not None and value == entry.before
        return is_baseline and name in family_named(disk.family if disk else "").resets


class Trial(_Switching):
    """Rows that are applied, and the values before: ``read_affected_values``, ``list_originals``.

    It ends with everything as applied, except the settings that it reverted. ``command`` is the
    name of the run in the journal. After the trial ``failed`` has the settings that are not as
    applied. Raises JournalError or HoldError before anything is switched.
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
        super().__init__(machine, command, means, holds)
        self.rows = tuple(rows)
        self._sides = {Side.BEFORE: _group_by_target(before)}
        self._now: dict[str, dict[str, Value]] = {}
        self._conflicts: dict[Key, WriteResult] = {}
        self._reverted: set[Key] = set()
        self.failed: dict[Key, WriteResult] = {}

    def __enter__(self) -> Self:
        after = read_affected_values(self._machine, self.rows, self._means)
        self._sides[Side.AFTER], self._now = _group_by_target(after), _group_by_target(after)
        recorded, _ = journal.load_with_current_ids(self._means.journal, self._machine)
        self._begin(recorded, (), (row.id for row in self.rows))
        return self

    def __exit__(self, *_: object) -> None:
        with self._hold:
            # Also after an exception: a trial ends with everything as applied.
            conflicts = len(self._conflicts)
            self.failed = self.switch(self._applied, Side.AFTER)
            if len(self._conflicts) > conflicts:
                # A chain with a conflict also skips the steps that would reset the setting.
                self.failed = self.switch(self._applied, Side.AFTER)
            for key in self._stuck:
                self.failed[key] = WriteResult(key[1], Outcome.STUCK)
            self.failed |= self._conflicts
            entries = filter(None, map(self._update_entry, self._journal.entries))
            # No later run sets the reverted values again.
            reverted = dict.fromkeys(self._journal.reverted)
            for row in self.rows:
                if row.key in self._reverted and row.value is not None:
                    reverted[RevertedValue(row.id, row.setting, row.value)] = None
            recorded = replace(self._journal, reverted=tuple(reverted))
            journal.save(self._means.journal, recorded.ended(entries))

    def switch(self, keys: Collection[Key], side: Side) -> dict[Key, WriteResult]:
        """Change these settings, and the settings that they reset, to one side.

        Return the results of failed settings. A stuck target is skipped, and a setting that was
        changed by others fails until the end of the trial.
        """
        names: dict[str, list[str]] = {}
        for id, name in keys:
            names.setdefault(id, []).append(name)
        for id, _ in self._stuck:
            names.pop(id, None)
        plans, chains = list[RestorePlan](), list[Chain]()
        for id, group in names.items():
            # Settings that these reset also take their values of that side.
            values = self._sides[side].get(id, {})
            goal = writer.select_values(values, list_affected_settings(group))
            target = self._targets[id]
            plan = plan_writes(target, goal, self._now.get(id, {}), target.attributes)
            plans.append(plan)
            if plan.chain is not None:
                chains.append(plan.chain)
        report = writer.execute_chains(chains, self._means)
        self._stuck |= report.stuck
        for (id, name), result in report.results.items():
            if result.outcome is Outcome.CONFLICT and result.found is not None:
                self._note_conflict(id, result)
            elif result.outcome in DONE_OUTCOMES and result.found is not None:
                # A setting that it reset has the kernel's value, unless a later result shows it.
                resets = find_setting(name).resets if result.outcome is Outcome.WRITTEN else ()
                current = _exclude_values(self._now.get(id, {}), resets)
                self._now[id] = current | {name: result.found}
        # Afterwards: a setting that must not be written may still have been reset by the others.
        for plan in plans:
            for name, reason in plan.refused.items():
                text = describe_limit(reason)
                report.results[plan.id, name] = WriteResult(name, Outcome.REFUSED, said=text)
        results = report.results.items()
        failed = {key: result for key, result in results if result.outcome not in DONE_OUTCOMES}
        return failed | {key: self._conflicts[key] for key in keys if key in self._conflicts}

    def _note_conflict(self, id: str, result: WriteResult) -> None:
        """Set both sides to a value that others have set; drop the settings that it reset."""
        current, value = self._now.setdefault(id, {}), result.found
        last = current.get(result.setting)
        if value is None or value == last:
            return  # another assumption does not hold
        current[result.setting] = value
        key = (id, result.setting)
        if last is not None and self._is_kernel_change(key, (last, value), self._read_errors(key)):
            return
        self._conflicts[id, result.setting] = result
        for side in self._sides.values():
            unaffected = _exclude_values(side.get(id, {}), find_setting(result.setting).resets)
            side[id] = unaffected | {result.setting: value}

    def revert(self, keys: Collection[Key]) -> dict[Key, WriteResult]:
        """Restore these settings permanently; return the results of failed ones."""
        failed = self.switch(keys, Side.BEFORE)
        self._reverted |= set(keys) - failed.keys()
        return failed

    def _read_errors(self, key: Key) -> tuple[int | None, int | None]:
        """Return the error count of a disk before the trial, and the present one."""
        target, means = self._targets[key[0]], self._means
        raw = writer.read_raw({target.directory: key[1:]}, means.deadline, means.worker_pool)
        return parse_error_count(target.attributes), parse_error_count(raw[target.directory])

    @property
    def _applied(self) -> set[Key]:
        """The settings that stay applied."""
        return {row.key for row in self.rows} - self._reverted

    def _update_entry(self, entry: Entry) -> Entry | None:
        """Return the entry after the trial, or None for a setting that has its baseline again."""
        if entry.key in self._stuck:
            return replace(entry, doubt=self._stuck[entry.key])
        if entry.key in self._conflicts:
            return replace(entry, **DISOWNED_FIELDS)
        if entry.key in self._applied:
            return entry
        restored = (name for id, name in self._reverted if id == entry.id)
        if is_among(entry.setting, list_affected_settings(restored)):
            before = self._sides[Side.BEFORE].get(entry.id, {}).get(entry.setting)
            return None if before == entry.before else entry
        return entry


def _group_by_target(values: Values) -> dict[str, dict[str, Value]]:
    by_target: dict[str, dict[str, Value]] = {}
    for (id, name), value in values.items():
        by_target.setdefault(id, {})[name] = value
    return by_target


def _exclude_values(values: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if not is_among(name, names)}


class Experiment(_Switching):
    """Some ``settings`` of the target ``id`` while a ``command`` tries several values of them.

    If others change one of them, it is in ``conflicts``, and nothing is tried after that. After the
    experiment ``failed`` has the settings that do not have their earlier values. Raises UsageError
    if the settings are on a read-only file system, JournalError or HoldError, before anything is
    changed.
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
        super().__init__(machine, command, means, holds)
        self._target = self._targets[id]
        self._settings = tuple(settings)
        self._before: dict[str, Value] = {}
        self._now: dict[str, Value] = {}
        self._errors: int | None = None
        self.conflicts: dict[str, WriteResult] = {}
        self._written: set[str] = set()  # including settings that those writes may have reset
        self._recorded: frozenset[Key] = frozenset()
        self.failed: dict[str, WriteResult] = {}

    def __enter__(self) -> Self:
        writer.require_writable(self._machine, (self._target.id,))
        chain = writer.build_chain(self._target, [Step(name, 0, None) for name in self._settings])
        entries = writer.read_baselines([chain], {}, self._means)
        self._before = {entry.setting: entry.before for entry in entries}
        self._now = dict(self._before)
        recorded, _ = journal.load_with_current_ids(self._means.journal, self._machine)
        if recorded.losses:  # a current value may be hbatune's
            raise LostError(recorded.losses)
        self._recorded = frozenset(recorded.by_key)
        self._begin(recorded, entries, (self._target.id,))
        return self

    def __exit__(self, *_: object) -> None:
        with self._hold:
            # Also after an exception: the original values are restored before the hold ends.
            if not self._stuck:
                self._read_settings()
            report = self._apply_goal(self._before)
            self.failed = {}
            for result in report.results.values():
                name = result.setting
                # Behind a stuck write nothing is tried, but most settings were never changed.
                is_unchanged = result.outcome is Outcome.STUCK and not is_among(name, self._written)
                if result.outcome not in DONE_OUTCOMES and not is_unchanged:
                    self.failed[name] = result
            self.failed |= self.conflicts
            updated = (self._update_entry(entry, report) for entry in self._journal.entries)
            journal.save(self._means.journal, self._journal.ended(filter(None, updated)))

    def take(self, values: Mapping[str, Value]) -> dict[str, WriteResult]:
        """Set these values, and the other settings to their original values; return the results.

        Settings that the values reset, and that are not among them, keep the kernel's value. If
        others have changed one of the settings, nothing is written: all results are conflicts.
        """
        lacking = values.keys() - self._before
        if lacking:  # without a baseline it could not be restored
            return {name: WriteResult(name, Outcome.REFUSED, errno.ENODATA) for name in lacking}
        if not self._stuck and not self.conflicts:
            self._read_settings()
        if self.conflicts:
            return {name: WriteResult(name, Outcome.CONFLICT) for name in values} | self.conflicts
        changed = values.items() - self._before.items()
        unaffected = _exclude_values(self._before, list_affected_settings(dict(changed)))
        report = self._apply_goal({**unaffected, **values})
        return {name: report.results[self._target.id, name] for name in values}

    def _read_settings(self) -> None:
        """Read the settings, and note the changes that others have made since the last write."""
        names, directory = list_affected_settings(self._settings), self._target.directory
        means = self._means
        raw = writer.read_raw({directory: names}, means.deadline, means.worker_pool)[directory]
        current = writer.select_values(writer.parse_values(raw), names)
        if current.get(table.SCHEDULER) != self._before.get(table.SCHEDULER):
            # Tunables of a scheduler that only the experiment has set are removed with it.
            for name in current:
                if is_tunable(name):
                    self._now.pop(name, None)
        before, self._errors = self._errors, parse_error_count(raw)
        comparable = current.keys() & self._now.keys()
        for name in sorted(comparable, key=lambda name: find_setting(name).order):
            last, value = self._now[name], current[name]
            # A value that the change of another setting has reset is not a decision.
            if is_among(name, list_affected_settings(self.conflicts)):
                continue
            if not has_changed(find_setting(name), Step(name, last, last), value):
                continue
            key, errors = (self._target.id, name), (before, self._errors)
            if not self._is_kernel_change(key, (last, value), errors):
                self._note_conflict(WriteResult(name, Outcome.CONFLICT, found=value))
        self._now = current

    def _note_conflict(self, result: WriteResult) -> None:
        """Exclude a value that others have set, and its effects, from the end of the experiment."""
        assert result.found is not None
        self.conflicts[result.setting] = result
        unaffected = _exclude_values(self._before, find_setting(result.setting).resets)
        self._before = unaffected | {result.setting: result.found}

    def _apply_goal(self, goal: Mapping[str, Value]) -> Report:
        """Write the values that differ from the goal, unless a write is stuck in the kernel."""
        id = self._target.id
        if self._stuck:
            # Another write to that disk, or a read, would wait behind the stuck one.
            waiting = {(id, name): WriteResult(name, Outcome.STUCK) for name in goal}
            return Report(waiting, stuck=self._stuck)
        current = self._now
        plan = plan_writes(self._target, goal, current, self._target.attributes)
        report = writer.execute_chains([plan.chain], self._means) if plan.chain else Report()
        self._note_written(report)
        for name, reason in plan.refused.items():
            text = describe_limit(reason)
            report.results[id, name] = WriteResult(name, Outcome.REFUSED, said=text)
        for name in goal:
            unchanged = WriteResult(name, Outcome.KEPT, found=current.get(name))
            report.results.setdefault((id, name), unchanged)
        self._stuck |= report.stuck
        return report

    def _note_written(self, report: Report) -> None:
        """Note the values that the writes have left; a reset value that was not read is unknown."""
        written, read = list[str](), dict[str, Value]()
        for (_, name), result in report.results.items():
            last = self._now.get(name)
            if result.outcome is Outcome.CONFLICT and result.found not in (None, last):
                self._note_conflict(result)
            if result.outcome not in UNTRIED_OUTCOMES | {Outcome.KEPT, Outcome.CONFLICT}:
                written.append(name)
            if result.found is not None:
                read[name] = result.found
        reset = list_affected_settings(written)
        self._written.update(reset)
        self._now = _exclude_values(self._now, reset) | read

    def _update_entry(self, entry: Entry, report: Report) -> Entry | None:
        """Return the entry after the experiment, or None for a setting with its earlier value."""
        if entry.key in report.stuck:
            return replace(entry, doubt=report.stuck[entry.key])
        # Entries that were in the journal before are an earlier run's and stay.
        was_recorded = entry.key in self._recorded
        affected = list_affected_settings(self.conflicts)
        if entry.id == self._target.id and is_among(entry.setting, affected):
            is_changed = was_recorded or is_among(entry.setting, self._written)
            return replace(entry, **DISOWNED_FIELDS) if is_changed else None
        result = report.results.get(entry.key)
        is_restored = not report.stuck and (result is None or result.outcome in DONE_OUTCOMES)
        return None if is_restored and not was_recorded else entry
