"""Restore the values in the journal in the order of writing: scheduler first.

A restore is planned like an apply. A value that would shrink an adapter's tag set or be too small
for a live stack is not written, and its row gives the reason.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import executor, journal, lock, writer
from hbatune.act.chain import Chain, Step
from hbatune.act.journal import Entry, Journal, JournalError, Run
from hbatune.act.marks import mark_restored, with_udev_baselines
from hbatune.facts.ids import WORLD_WIDE, extract_route, extract_stable_part
from hbatune.facts.model import Endpoint, Machine, Missing, Reason, TargetKind
from hbatune.facts.survey import NoWorkerError
from hbatune.facts.targets import Target, list_targets, make_target
from hbatune.plan.rows import DONE_OUTCOMES, Outcome, Restored
from hbatune.settings.setting import Attributes, Device, FixedSetting
from hbatune.settings.table import Value, find_setting, find_target_kind, is_among, is_tunable
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from hbatune.workers import find_this_process


class RestorePlan(Struct, frozen=True):
    """The writes that restore the target ``id``."""

    id: str
    chain: Chain | None = None  # None if no write is needed
    refused: Mapping[str, LimitReason | str] = {}  # settings that are not restored completely
    gone: frozenset[str] = frozenset()  # settings that were removed with their scheduler


def restore_values(plan: "RollbackPlan", means: executor.Means) -> tuple[Restored, ...]:
    """Restore the entries of the plan, and remove them from the journal.

    An entry that could not be restored stays in the journal, unless its holder was removed: a
    disk that returns has the kernel's defaults. The baselines are durable already, so a journal
    that cannot be written does not stop the rollback: RollbackUnsavedError has the rows.
    """
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
    report = writer.execute_chains(chains, means)
    rows = plan.add_results(report)
    remaining = begun.by_key
    for row in rows:
        if row.done:
            remaining.pop(row.key, None)
    try:
        journal.save(means.journal, begun.ended(remaining.values()))
    except JournalError as error:
        unsaved = error
    # udev's database still has its saved values, which must not count as baselines again.
    try:
        mark_restored(plan.concerned, means.spent)
    except OSError as error:
        subject = f"{means.spent}, the list of restored values,"
        unsaved = JournalError(f"{subject} cannot be written: {error.strerror}")
    if unsaved is not None:
        raise RollbackUnsavedError(rows, unsaved) from unsaved
    return rows


def list_unread(
    recorded: Journal, ids: Collection[str] | None, error: NoWorkerError
) -> tuple[Restored, ...]:
    """Return the rows of a rollback that could not read the devices, so it restored nothing."""
    errno, limit = error.errno, describe_limit(LimitReason(Limit.WORKER_UNSTARTED))
    rows = (_begin_row(entry, None) for entry in recorded.concerning(ids))
    return tuple(replace(row, outcome=Outcome.REFUSED, errno=errno, limit=limit) for row in rows)


def _begin_row(entry: Entry, current: Value | None) -> Restored:
    id, adapter = entry.id, entry.adapter
    return Restored(entry.target, id, adapter, entry.setting, current, entry.before, None)


class RollbackPlan(Struct, frozen=True):
    """The restore plan of each target by id, and the ``rows`` of the entries before any write."""

    recorded: Journal
    concerned: Sequence[Endpoint]
    plans: Mapping[str, RestorePlan]
    rows: tuple[Restored, ...]

    @property
    def chains(self) -> list[Chain]:
        """The writes of all targets."""
        return [plan.chain for plan in self.plans.values() if plan.chain is not None]

    def add_results(self, report: executor.Report) -> tuple[Restored, ...]:
        """Return the rows with the results of the writes."""
        rows: list[Restored] = []
        for row in self.rows:
            result = report.results.get(row.key)
            if result is not None and not result.effect:  # an effect is of no step of the chain
                refusal = self.plans[row.id].refused.get(row.setting)
                outcome, limit = result.outcome, describe_limit(refusal or result.said) or None
                if outcome is Outcome.WRITTEN and row.current == row.before:
                    outcome = Outcome.KEPT  # rewritten only because another write might reset it
                if outcome in DONE_OUTCOMES and refusal is not None:
                    outcome = Outcome.REFUSED  # the nearest legal value, not the original one
                errno, value = result.errno, result.found
                row = replace(row, outcome=outcome, errno=errno, found=value, limit=limit)
            rows.append(row)
        return tuple(rows)


def plan_rollback(
    machine: Machine,
    recorded: Journal,
    means: executor.Means,
    *,
    ids: Collection[str] | None = None,
    stuck: Iterable[lock.Claim] = (),
    disrupt: bool = False,
) -> RollbackPlan:
    """Plan to restore every entry of the journal, or the entries of ``ids``. Write nothing.

    Values that udev's rules saved are entries like any other. ``stuck`` are writers of an earlier
    run; their targets are skipped. A value that disrupts the I/O of an entire adapter is restored
    only with ``disrupt``.
    """
    concerned = [endpoint for endpoint in machine.endpoints if ids is None or endpoint.id in ids]
    recorded = with_udev_baselines(recorded, concerned, means.spent)
    # All targets, and all interrupts: a moved one may carry no data now, and is then no target.
    holders = {vector.id: make_target(vector) for vector in machine.vectors} | list_targets(machine)
    waiting = {claim.id for claim in stuck}
    # An interrupt that is only inferred to be managed may be free: a write shows it.
    managed = {vector.id for vector in machine.vectors if vector.managed and not vector.inferred}
    untouchable = waiting | managed
    entries = recorded.concerning(ids)
    reachable: dict[str, list[Entry]] = {}
    names: dict[str, list[str]] = {}
    for entry in entries:
        if entry.id in holders and entry.id not in untouchable and entry.known:
            names.setdefault(holders[entry.id].directory, []).append(entry.setting)
            group = reachable.setdefault(entry.id, [])
            if disrupt or not find_setting(entry.setting).disrupts:
                group.append(entry)
    raw = writer.read_raw(names, means.deadline, means.worker_pool)
    current, plans = dict[str, dict[str, Value]](), dict[str, RestorePlan]()
    for id, group in reachable.items():
        attributes = raw[holders[id].directory]
        current[id] = writer.parse_values(attributes)
        goal = select_originals(group, current[id])
        obsolete = frozenset(entry.setting for entry in group).difference(goal)
        plan = plan_writes(holders[id], goal, current[id], attributes)
        plans[id] = replace(plan, gone=obsolete)
    places, rows = _Places(machine), list[Restored]()
    for entry in entries:
        row = _begin_row(entry, current.get(entry.id, {}).get(entry.setting))
        if entry.id not in holders:
            row = places.explain_missing(entry, row)
        elif entry.id in waiting:
            row = replace(row, target=holders[entry.id].name, outcome=Outcome.STUCK)
        else:
            row = replace(row, target=holders[entry.id].name)
            row = _plan_row(entry, row, plans.get(entry.id), is_managed=entry.id in managed)
        rows.append(row)
    return RollbackPlan(recorded, concerned, plans, tuple(rows))


def _plan_row(
    entry: Entry, row: Restored, plan: RestorePlan | None, *, is_managed: bool
) -> Restored:
    """Return the row of an entry before any write; a step of a chain has no outcome yet."""
    outcome: Outcome | None = Outcome.REFUSED
    reason, gone = plan.refused.get(entry.setting) if plan else None, False
    if is_managed:
        outcome, reason, gone = Outcome.VANISHED, LimitReason(Limit.NEW_INTERRUPT), True
    elif plan and entry.setting in plan.gone:
        outcome, reason, gone = Outcome.VANISHED, LimitReason(Limit.WITH_SCHEDULER), True
    elif not entry.known:
        reason = LimitReason(Limit.SETTING_UNKNOWN)
    elif reason is None:
        if row.current == entry.before:
            outcome = Outcome.KEPT
        elif disrupts := find_setting(entry.setting).disrupts:
            reason = LimitReason(Limit.DISRUPTS, (disrupts,))
        elif row.current is None:
            reason = LimitReason(Limit.NOT_SETTABLE)
        else:
            outcome = None
    return replace(row, outcome=outcome, limit=describe_limit(reason) or None, gone=gone)


class RollbackUnsavedError(JournalError):
    """The values are restored according to the ``rows``, but a record does not show it."""

    def __init__(self, rows: tuple[Restored, ...], cause: JournalError) -> None:
        hint = "free disk space or make it writable, and roll back again"
        super().__init__(cause.message, hint=hint)
        self.rows = rows


class _Places:
    """The disks by their address, to distinguish a removed disk from one that reports no name."""

    def __init__(self, machine: Machine) -> None:
        self._diskseqs = {endpoint.diskseq for endpoint in machine.endpoints}
        self._names: dict[str, str] = {}
        # An adapter has interrupts; if none is found, they could not be read.
        served = {vector.adapter for vector in machine.vectors}
        silent = {adapter.target for adapter in machine.adapters} - served
        self._unread = {TargetKind.VECTOR: silent, TargetKind.ENDPOINT: set[str]()}
        for endpoint in machine.endpoints:
            route, diskseq = extract_route(endpoint.id), endpoint.diskseq
            self._names[route] = extract_stable_part(endpoint.id)
            if isinstance(diskseq, Missing) and diskseq.reason is Reason.UNREADABLE:
                self._unread[TargetKind.ENDPOINT].add(route)  # empty for a map
        self._names.pop("", None)  # a map has no address

    def explain_missing(self, entry: Entry, row: Restored) -> Restored:
        """Return the row of a missing target, marked if it was removed together with its values.

        A disk whose ``diskseq`` is no longer on the machine was removed. If none was
        recorded, it was removed if its address is empty or has a disk with a world-wide
        name. If the present disk cannot be read, or reports no name, it may be the same
        one, and the journal keeps the entry.
        """
        row = replace(row, outcome=Outcome.VANISHED)
        route, kind = extract_route(entry.id), find_target_kind(entry.setting)
        if route in self._unread.get(kind, ()):
            return replace(row, limit=describe_limit(LimitReason(Limit.UNREAD_NOW)))
        if kind is not TargetKind.ENDPOINT:
            return replace(row, gone=True)
        present_name = self._names.get(route)
        if entry.diskseq is not None:
            is_gone = entry.diskseq not in self._diskseqs
        else:
            is_gone = present_name is None or present_name.startswith(WORLD_WIDE)
        if not is_gone:
            return replace(row, limit=describe_limit(LimitReason(Limit.DRIVE_UNNAMED)))
        replaced = describe_limit(LimitReason(Limit.DRIVE_REPLACED))
        return replace(row, gone=True, limit=None if present_name is None else replaced)


def select_originals(entries: Sequence[Entry], current: Mapping[str, Value]) -> dict[str, Value]:
    """Return the original values of one target that fit the scheduler which it will have."""
    goal = {entry.setting: entry.before for entry in entries}
    scheduler = goal.get("scheduler", current.get("scheduler"))
    for entry in entries:
        name = entry.setting
        # A tunable is meaningless if its scheduler does not exist and will not be restored, as is
        # nr_requests, unless hbatune set the current value. With `none` there are no tunables.
        is_replaced = scheduler is not None and entry.under not in (None, scheduler)
        is_other = name == "nr_requests" and is_replaced and not entry.ours(current.get(name))
        if is_other or (is_tunable(name) and (is_replaced or scheduler == "none")):
            del goal[name]
    return goal


def plan_writes(
    target: Target, goal: Mapping[str, Value], current: Mapping[str, Value], attributes: Attributes
) -> RestorePlan:
    """Return the legal writes that change a target from ``current`` to ``goal``, or near to it."""
    steps: list[Step] = []
    refused: dict[str, LimitReason | str] = {}
    reset: set[str] = set()
    scheduler = goal.get("scheduler", current.get("scheduler"))
    # A switch of the scheduler resets nr_requests, so the current number limits nothing.
    is_switched = scheduler != current.get("scheduler")
    requests = goal.get("nr_requests", None if is_switched else current.get("nr_requests"))
    # A trial switches often, so its attributes may show an earlier scheduler.
    device = Device(attributes, scheduler, requests=requests, switched=is_switched)
    for name in sorted(goal, key=lambda name: find_setting(name).order):
        # Its current value is meaningless: an earlier write in the chain may reset it.
        follows = is_among(name, reset)
        present, value = current.get(name), goal[name]
        if not follows and present == value:
            continue
        if find_target_kind(name) is TargetKind.ENDPOINT and present is not None:
            verdict = find_setting(name).limit(value, present, device)
            if isinstance(verdict, FixedSetting):
                refused[name] = verdict.limit
                continue
            if verdict.value != value:
                refused[name] = verdict.limit or LimitReason(Limit.AT_MOST, (verdict.value,))
                value = verdict.value
                if value == present:
                    continue
        under = scheduler if "scheduler" in find_setting(name).hangs_on else None
        steps.append(Step(name, value, present, under))
        reset.update(find_setting(name).resets)
    return RestorePlan(target.id, writer.build_chain(target, steps) if steps else None, refused)
