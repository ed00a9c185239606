"""Restore the values in the journal in the order of writing: scheduler first.

A restore is planned like an apply. A value that would shrink an adapter's tag set or fail the I/O
of a live map is not written, and its row gives the reason.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import journal
from hbatune.act.chain import Chain, Step
from hbatune.act.executor import WORKER_UNSTARTED, Means, Report
from hbatune.act.journal import Entry, Journal, JournalError, Run
from hbatune.act.lock import Claim
from hbatune.act.marks import mark_restored, with_udev_baselines
from hbatune.act.writer import build_chain, execute_chains, parse_values, read_raw
from hbatune.facts.ids import WORLD_WIDE, build_former_id, extract_route, extract_stable_part
from hbatune.facts.model import Endpoint, Machine, Missing, Reason, TargetKind
from hbatune.facts.survey import NoWorkerError
from hbatune.facts.targets import Target, list_targets, make_target
from hbatune.plan.rows import DONE_OUTCOMES, Outcome, Restored
from hbatune.settings.setting import Attributes, Device, FixedSetting
from hbatune.settings.table import (
    SCHEDULER_TUNABLES,
    Value,
    find_setting,
    find_target_kind,
    is_among,
)
from hbatune.text.limit_text import describe_limit
from hbatune.workers import find_this_process

UNKNOWN_SETTING = (
    "this version of hbatune does not have the setting; roll back with the one that set it"
)
WITH_SCHEDULER = "went with the scheduler that it belongs to, which was changed since"
MANAGED_REASON = "the adapter got a new interrupt, which only the kernel may move"
REPLACED_DRIVE = "another drive is in its place"
UNNAMED_DRIVE = "the drive in its place does not report its name: what was there before is kept"
UNREAD_REASON = "it cannot be read at present; `hbatune rollback` tries again"


class RestorePlan(Struct, frozen=True):
    """The writes that restore the target ``id``. ``chain`` is None if no write is needed.

    ``refused`` has, by setting, the reason why it is not restored, or not completely. ``gone`` are
    settings that were removed with their scheduler.
    """

    id: str
    chain: Chain | None = None
    refused: Mapping[str, str] = {}
    gone: frozenset[str] = frozenset()


def restore_values(
    machine: Machine,
    recorded: Journal,
    means: Means,
    *,
    ids: Collection[str] | None = None,
    stuck: Iterable[Claim] = (),
    disrupt: bool = False,
) -> tuple[Restored, ...]:
    """Restore every entry of the journal, or the entries of ``ids``, and remove them from it.

    Values that udev's rules saved before they wrote are entries like any other.

    An entry that could not be restored stays in the journal, unless its holder was removed: a disk
    that returns has the kernel's defaults. ``stuck`` are writers of an earlier run that are still
    in the kernel; their targets are skipped. A value that disrupts the I/O of an entire adapter is
    restored only with ``disrupt``.

    The baselines are durable already, so a journal that cannot be written does not stop the
    rollback. RollbackUnsavedError reports it afterwards, with the rows.
    """
    plan = _plan_rollback(machine, recorded, means, ids, stuck, disrupt)
    chains = plan.chains
    run = Run("rollback", None, find_this_process(), time.time())
    # No new baselines: the current values are hbatune's.
    begun = plan.recorded.begun(run, ())
    unsaved: JournalError | None = None
    try:
        if chains:
            journal.save(means.journal, begun)
    except JournalError as error:
        unsaved = error
    # Even with an unsaved journal: restoring is more important than its record, and the entries
    # stay on disk.
    report = execute_chains(chains, means)
    rows = plan.rows(report)
    done = {(row.id, row.setting) for row in rows if row.done}
    try:
        journal.save(means.journal, begun.ended(e for e in begun.entries if e.key not in done))
    except JournalError as error:
        unsaved = error
    # udev's database still has its saved values, which must not count as baselines again.
    try:
        mark_restored(plan.concerned, means.spent)
    except OSError as error:
        unsaved = JournalError(
            f"{means.spent}, the list of restored values, cannot be written: {error.strerror}"
        )
    if unsaved is not None:
        raise RollbackUnsavedError(rows, unsaved) from unsaved
    return rows


def preview_values(
    machine: Machine,
    recorded: Journal,
    means: Means,
    *,
    ids: Collection[str] | None = None,
    stuck: Iterable[Claim] = (),
    disrupt: bool = False,
) -> tuple[Restored, ...]:
    """Return the rows that ``restore_values`` would restore. Write nothing."""
    return _plan_rollback(machine, recorded, means, ids, stuck, disrupt).rows(None)


def list_unread(
    recorded: Journal, ids: Collection[str] | None, error: NoWorkerError
) -> tuple[Restored, ...]:
    """Return the rows of a rollback that could not read the devices, so it restored nothing."""
    return tuple(
        Restored(
            target=entry.target,
            id=entry.id,
            adapter=entry.adapter,
            setting=entry.setting,
            current=None,
            before=entry.before,
            outcome=Outcome.REFUSED,
            errno=error.errno,
            limit=WORKER_UNSTARTED,
        )
        for entry in recorded.entries
        if ids is None or entry.id in ids
    )


class _RollbackPlan(Struct, frozen=True):
    """The entries to restore, the current values, and the restore plan of each target."""

    machine: Machine
    recorded: Journal
    concerned: Sequence[Endpoint]
    entries: Sequence[Entry]
    known: Mapping[str, Target]
    waiting: Collection[str]
    managed: Collection[str]
    ways: Mapping[str, RestorePlan]
    now: Mapping[str, Mapping[str, Value]]

    @property
    def chains(self) -> list[Chain]:
        """The writes of all targets."""
        return [plan.chain for plan in self.ways.values() if plan.chain is not None]

    def rows(self, report: Report | None) -> tuple[Restored, ...]:
        """Return the result of each entry; without a report nothing was written."""
        places = _Places(self.machine)
        return tuple(places.judged(entry, self._make_row(entry, report)) for entry in self.entries)

    def _make_row(self, entry: Entry, report: Report | None) -> Restored:
        result = report.results.get(entry.key) if report else None
        if result is not None and result.effect:
            result = None  # no step of the chain, so its outcome is determined below
        plan = self.ways.get(entry.id, RestorePlan(entry.id))
        current = self.now.get(entry.id, {}).get(entry.setting)
        errno, read_back, limit, is_gone = None, None, plan.refused.get(entry.setting), False
        outcome: Outcome | None
        if result is not None:
            outcome, errno, read_back = result.outcome, result.errno, result.found
            limit = limit or result.said
            if outcome is Outcome.WRITTEN and current == entry.before:
                outcome = Outcome.KEPT  # rewritten only because another write might have reset it
            if outcome in DONE_OUTCOMES and entry.setting in plan.refused:
                outcome = Outcome.REFUSED  # the nearest legal value, not the original one
        elif entry.id not in self.known:
            outcome = Outcome.VANISHED
        elif entry.id in self.waiting:
            outcome = Outcome.STUCK
        elif entry.id in self.managed:
            outcome, limit, is_gone = Outcome.VANISHED, MANAGED_REASON, True
        elif not entry.known:
            outcome, limit = Outcome.REFUSED, UNKNOWN_SETTING
        elif entry.setting in plan.gone:
            outcome, limit, is_gone = Outcome.VANISHED, WITH_SCHEDULER, True
        elif limit is not None:
            outcome = Outcome.REFUSED
        elif current != entry.before and (disrupts := find_setting(entry.setting).disrupts):
            outcome, limit = Outcome.REFUSED, f"{disrupts}: only with --allow-reset"
        elif current is None:
            outcome, limit = (
                Outcome.REFUSED,
                "it cannot be read, or is not there to be set any more",
            )
        elif current != entry.before:
            outcome = None  # a step of the chain that no run has done yet
        else:
            outcome = Outcome.KEPT
        return Restored(
            target=self.known[entry.id].name if entry.id in self.known else entry.target,
            id=entry.id,
            adapter=entry.adapter,
            setting=entry.setting,
            current=current,
            before=entry.before,
            outcome=outcome,
            errno=errno,
            found=read_back,
            limit=limit,
            gone=is_gone,
        )


def _plan_rollback(
    machine: Machine,
    recorded: Journal,
    means: Means,
    ids: Collection[str] | None,
    stuck: Iterable[Claim],
    disrupt: bool,
) -> _RollbackPlan:
    concerned = [endpoint for endpoint in machine.endpoints if ids is None or endpoint.id in ids]
    recorded = with_udev_baselines(recorded, concerned, means.spent)
    holders = _find_holders(machine)
    waiting = {claim.id for claim in stuck}
    # An interrupt that is only inferred to be managed may be free: a write shows it.
    managed = {vector.id for vector in machine.vectors if vector.managed and not vector.inferred}
    untouchable = waiting | managed
    entries = [entry for entry in recorded.entries if ids is None or entry.id in ids]
    reachable: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.id in holders and entry.id not in untouchable and entry.known:
            reachable.setdefault(entry.id, []).append(entry)
    raw = read_raw(
        {
            holders[id].directory: [entry.setting for entry in group]
            for id, group in reachable.items()
        },
        means.deadline,
        means.worker_pool,
    )
    current = {id: parse_values(raw[holders[id].directory]) for id in reachable}
    plans = {
        id: _plan_restore(
            holders[id],
            _exclude_disruptive(group, disrupt),
            current[id],
            raw[holders[id].directory],
        )
        for id, group in reachable.items()
    }
    return _RollbackPlan(
        machine, recorded, concerned, entries, holders, waiting, managed, plans, current
    )


def _find_holders(machine: Machine) -> dict[str, Target]:
    """Return, by id, all targets and all interrupts.

    An interrupt that hbatune has moved may carry no data now. It is then no longer a target.
    """
    return {vector.id: make_target(vector) for vector in machine.vectors} | list_targets(machine)


class RollbackUnsavedError(JournalError):
    """The values are restored according to the ``rows``, but a record does not show it."""

    def __init__(self, rows: tuple[Restored, ...], cause: JournalError) -> None:
        super().__init__(cause.message, hint="make room or make it writable, and roll back again")
        self.rows = rows


def _exclude_disruptive(entries: Iterable[Entry], disrupt: bool) -> list[Entry]:
    """Return the entries without those whose write would disrupt I/O, unless ``disrupt``."""
    return [entry for entry in entries if disrupt or not find_setting(entry.setting).disrupts]


class _Places:
    """The disks by their address, to distinguish a removed disk from one that reports no name."""

    def __init__(self, machine: Machine) -> None:
        self._ids = {endpoint.id for endpoint in machine.endpoints}
        self._ids |= {control.id for control in machine.controls}
        self._ids |= {vector.id for vector in machine.vectors}
        self._diskseqs = {endpoint.diskseq for endpoint in machine.endpoints}
        self._names: dict[str, str] = {}
        # Addresses of disks whose number could not be read; a map's is empty.
        self._unread: set[str] = set()
        for endpoint in machine.endpoints:
            for id in (endpoint.id, build_former_id(endpoint)):
                self._names[extract_route(id)] = extract_stable_part(id)
                if (
                    isinstance(endpoint.diskseq, Missing)
                    and endpoint.diskseq.reason is Reason.UNREADABLE
                ):
                    self._unread.add(extract_route(id))
        self._names.pop("", None)  # a map has no address
        # An adapter has interrupts; if none is found, they could not be read.
        served = {vector.adapter for vector in machine.vectors}
        self._silent = {adapter.target for adapter in machine.adapters} - served

    def judged(self, entry: Entry, row: Restored) -> Restored:
        """Return the row, marked if its target was removed together with its values.

        A disk whose ``diskseq`` is no longer on the machine was removed, regardless of the disk at
        its address. If the present disk cannot be read, that is unknown, and the journal keeps the
        entry. If no ``diskseq`` was recorded, the disk was removed if its address is empty or has a
        disk with a world-wide name. A disk that reports no name may be the same one, and the
        journal keeps the entry.
        """
        if row.outcome is not Outcome.VANISHED or entry.id in self._ids:
            return row  # the next rollback evaluates a disk that vanished during its write
        kind = find_target_kind(entry.setting)
        if kind is TargetKind.VECTOR and extract_route(entry.id) in self._silent:
            return replace(row, limit=UNREAD_REASON)
        if kind is not TargetKind.ENDPOINT:
            return replace(row, gone=True)
        present_name = self._names.get(extract_route(entry.id))
        if extract_route(entry.id) in self._unread:
            return replace(row, limit=UNREAD_REASON)
        if entry.diskseq is not None:
            is_gone = entry.diskseq not in self._diskseqs
        else:
            is_gone = present_name is None or present_name.startswith(WORLD_WIDE)
        if not is_gone:
            return replace(row, limit=UNNAMED_DRIVE)
        return replace(row, gone=True, limit=REPLACED_DRIVE if present_name is not None else None)


def _plan_restore(
    target: Target, entries: Iterable[Entry], current: Mapping[str, Value], attributes: Attributes
) -> RestorePlan:
    """Plan the writes that restore one target to these entries."""
    listed = list(entries)
    goal = {entry.setting: entry.before for entry in listed}
    scheduler = goal.get("scheduler", current.get("scheduler"))
    # A tunable or nr_requests is meaningless if its scheduler does not exist and will not be
    # restored, unless hbatune set the current value.
    obsolete = {
        entry.setting
        for entry in listed
        if entry.setting == "nr_requests" or entry.setting.startswith(SCHEDULER_TUNABLES)
        if scheduler is not None and entry.under not in (None, scheduler)
        if not entry.ours(current.get(entry.setting))
    }
    restorable = {name: value for name, value in goal.items() if name not in obsolete}
    plan = plan_writes(target, restorable, current, attributes)
    return replace(plan, gone=frozenset(obsolete))


def plan_writes(
    target: Target, goal: Mapping[str, Value], current: Mapping[str, Value], attributes: Attributes
) -> RestorePlan:
    """Return the legal writes that change one target from ``current`` to ``goal``, or near to it.

    Values that those writes may reset are written again after them, by the worker only if they then
    differ. ``attributes`` are the target's.
    """
    steps: list[Step] = []
    refused: dict[str, str] = {}
    reset: set[str] = set()
    scheduler = goal.get("scheduler", current.get("scheduler"))
    for name in sorted(goal, key=lambda name: find_setting(name).order):
        # Its current value is meaningless: an earlier write in the chain may reset it.
        follows = is_among(name, reset)
        present, value = current.get(name), goal[name]
        if not follows and present == value:
            continue
        if find_target_kind(name) is TargetKind.ENDPOINT and present is not None:
            verdict = find_setting(name).limit(value, present, Device(attributes, scheduler))
            if isinstance(verdict, FixedSetting):
                refused[name] = describe_limit(verdict.limit)
                continue
            if verdict.value != value:
                refused[name] = describe_limit(verdict.limit) or f"{verdict.value} at most"
                value = verdict.value
                if value == present:
                    continue
        under = scheduler if "scheduler" in find_setting(name).hangs_on else None
        steps.append(Step(name, value, present, under))
        reset.update(find_setting(name).resets)
    return RestorePlan(target.id, build_chain(target, steps) if steps else None, refused)
