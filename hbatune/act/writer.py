"""Write the rows of a plan: first the durable baselines, then the values, then the outcomes.

Chains are ordered if one target's write concerns another: maps and their paths, a target's LUNs.
The plan decides on the values. This module may omit a write, but never adds one.
"""

import errno
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import PurePath

from msgspec.structs import replace

from hbatune.act import lock, marks
from hbatune.act.chain import MAX_RAMP_STEPS, Chain, ChainWriter, Step, WriteResult
from hbatune.act.executor import INITIAL_WORKERS, Executor, Key, Means, Report, compute_max_workers
from hbatune.act.journal import DISOWNED_FIELDS, Entry, Journal, JournalError, Run
from hbatune.errors import UsageError
from hbatune.facts.model import Machine, Missing, TargetKind
from hbatune.facts.names import group_items
from hbatune.facts.survey import survey_requests
from hbatune.facts.targets import Target, list_targets
from hbatune.plan import rows as plan_rows
from hbatune.plan.joint_limits import is_lower, require_affordable
from hbatune.plan.rows import DONE_OUTCOMES, UNTRIED_OUTCOMES, Outcome, Plan, Row, State
from hbatune.settings import setting, table
from hbatune.settings.limits import ASYNC_DEPTH_FILE, SCHEDULER_FILE, find_scheduler
from hbatune.settings.table import Value, find_setting, is_among, is_tunable, list_affected_settings
from hbatune.text.limit_text import Limit, LimitReason, describe_limit
from hbatune.workers import Pool, WorkerPool, find_this_process


def execute_chains(chains: Iterable[Chain], means: Means) -> Report:
    """Run the chains in the pool, and check depths of several LUNs of one target again."""
    chains = list(chains)
    writer = ChainWriter(means.deadline, means.guard)
    size = compute_max_workers(means.workers)
    report = Report()
    claims = lock.ClaimTable(means.claims, size)
    pool = Pool[Chain, bytes](
        writer, size=size, deadline=means.deadline, worker_pool=means.worker_pool, tracker=claims
    )
    make_executor = partial(Executor, pool, workers=means.workers, stop=means.stop)
    with claims, pool:
        for batch in _order_batches(chains):
            done = make_executor(progress=means.progress).run(batch)
            report.results.update(done.results)
            report.stuck.update(done.stuck)
        if second_writes := _plan_second_writes(chains, report):
            done = make_executor().run(second_writes)
            for key, result in done.results.items():
                # If no write was needed, or tried, the first one's result stays.
                if result.outcome is not Outcome.KEPT and result.outcome not in UNTRIED_OUTCOMES:
                    report.results[key] = result
            report.stuck.update(done.stuck)
    if means.worker_pool is not None:
        # Later tasks have less to write concurrently, and need not wait for the end of so large a
        # pool.
        means.worker_pool.shrink(INITIAL_WORKERS)
    return report


def _plan_second_writes(chains: Iterable[Chain], report: Report) -> list[Chain]:
    """Return chains that set the depths of a target again if they differ by now.

    A command that ends while one LUN's depth is lowered may raise the depths of all LUNs of its
    target by one, including LUNs that were read back already (drivers/scsi/scsi_error.c:
    scsi_handle_queue_ramp_up).
    """
    targets: dict[PurePath, list[tuple[Chain, Step]]] = {}
    for chain in chains:
        for step in chain.steps:
            done = report.results[chain.id, step.setting].outcome in DONE_OUTCOMES
            if done and find_setting(step.setting).ramps:
                # The target's directory in …/target0:0:0/0:0:0:1/block/sda.
                targets.setdefault(PurePath(chain.sysfs).parents[2], []).append((chain, step))
    second_writes: list[Chain] = []
    for luns in targets.values():
        # Each LUN may have raised it by one. A larger difference is an administrator's.
        ramped = max(MAX_RAMP_STEPS, len(luns))
        for chain, step in luns if len(luns) > 1 else ():
            second = replace(step, expected=step.value, ramped=ramped)
            second_writes.append(replace(chain, steps=(second,)))
    return second_writes


def _order_batches(chains: Iterable[Chain]) -> Iterator[list[Chain]]:
    lowered, neutral, raised = list[Chain](), list[Chain](), list[Chain]()
    for chain in chains:
        batch = neutral
        for step in chain.steps:
            # A multipath map must never send larger requests than its paths accept. Only maps have
            # no adapter. The paths are written between them. If the direction is unknown, early is
            # safe, since a map may always send less than its paths accept.
            if step.setting == "max_sectors_kb" and chain.adapter is None:
                batch = raised if is_lower(step.expected, step.value) else lowered
        batch.append(chain)
    return filter(None, (lowered, neutral, raised))


class UnfinishedError(JournalError):
    """Everything was written (``rows``), but the journal still has the run in progress."""

    def __init__(self, rows: tuple[Row, ...], cause: JournalError) -> None:
        super().__init__(cause.message, hint="free disk space or make it writable; then roll back")
        self.rows = rows


def write_plan(
    machine: Machine, plan: Plan, recorded: Journal, means: Means, *, named: Collection[str] = ()
) -> tuple[Row, ...]:
    """Write the rows that drift, and return all rows of the plan with their outcomes.

    ``recorded`` is this boot's journal on disk. Values that were reverted earlier are tried again
    on the ids in ``named``. Raises UsageError if the plan takes too much memory or the kernel's
    files are read-only, and JournalError if the baselines cannot be made durable. Both happen
    before the first write to a device. Raises UnfinishedError, with the rows, if the journal cannot
    be written later.
    """
    require_affordable(plan)
    drifting = {row.id for row in plan.drift}
    require_writable(machine, drifting)
    # A value that others changed after hbatune had set it is theirs now.
    recorded = recorded.trying(named).disowning(row.key for row in plan.rows if row.taken_over)
    touched = (endpoint for endpoint in machine.endpoints if endpoint.id in drifting)
    recorded = marks.with_udev_baselines(recorded, touched, means.spent, unmarked=means.unmarked)
    chains = _build_chains(plan.rows, list_targets(machine), recorded)
    if not chains:
        # Nothing to write, but udev's baselines and the end of old doubts are recorded.
        means.save_journal(recorded.ended(map(_clear_doubt, recorded.entries)))
        return add_outcomes(plan.rows, Report())
    # A value that is restored to its baseline is not one that hbatune sets.
    wanted = {row.key: row.value for row in plan.rows if row.rule != plan_rows.BASELINE_RULE}
    before = read_baselines(chains, wanted, means)
    run = Run("apply", plan.profile, find_this_process(), time.time())
    begun = recorded.begun(run, before)
    # Durable before the first write, with space reserved for the last save. From now on a rollback
    # finds every baseline, even if this process is killed or the disk is full.
    means.save_journal(begun, keep_room=True)
    # A setting that cannot be read has no baseline. A chain that may change it could not be
    # restored, and is not started.
    recorded_keys = begun.by_key.keys()
    restorable, skipped = list[Chain](), list[Chain]()
    for chain in chains:
        (restorable if recorded_keys >= set(chain.keys) else skipped).append(chain)
    report = execute_chains(restorable, means)
    reason = describe_limit(LimitReason(Limit.ORIGINAL_LOST)) if begun.losses else None
    for chain in skipped:
        outcome = Outcome.REFUSED if os.path.isdir(chain.sysfs) else Outcome.VANISHED
        for key in chain.keys:
            report.results[key] = WriteResult(key[1], outcome, errno.ENODATA, said=reason)
    rows = (*add_outcomes(plan.rows, report), *_report_followers(plan, chains, before, report))
    try:
        entries = _select_entries(begun.entries, recorded, chains, report, wanted)
        means.save_journal(begun.ended(entries))
    except JournalError as error:
        raise UnfinishedError(rows, error) from error
    return rows


def require_writable(machine: Machine, ids: Collection[str]) -> None:
    """Raise UsageError if the settings of these targets are on a read-only file system."""
    directories: dict[TargetKind, str] = {}  # in the machine's order: ids may be a set
    for id, target in list_targets(machine).items():
        if id in ids:
            directories.setdefault(target.kind, target.directory)
    for directory in directories.values():  # one for each type: all disks are in one file system
        with suppress(OSError):  # a target that vanished is an outcome
            if os.statvfs(directory).f_flag & os.ST_RDONLY:
                raise UsageError(
                    f"/{directory.split('/')[1]} is mounted read-only, so no setting can be "
                    "written; nothing was changed",
                    hint="many containers mount it so: run a privileged one with the host's /sys",
                )


def add_outcomes(rows: Iterable[Row], report: Report) -> tuple[Row, ...]:
    """Return the rows with their outcomes; a row that was right already is ``kept``."""
    done: list[Row] = []
    for row in rows:
        # A write to another setting may reset one that was right, so it can also be a step.
        is_step = row.key in report.results
        if row.state is State.DRIFT or (row.state is State.OK and is_step):
            row = _add_outcome(row, report.results[row.key])
        elif row.state is State.OK:
            row = replace(row, outcome=Outcome.KEPT)
        elif row.taken_over:
            row = replace(row, outcome=Outcome.CONFLICT)
        done.append(row)
    return tuple(done)


def _report_followers(
    plan: Plan, chains: Iterable[Chain], before: Iterable[Entry], report: Report
) -> Iterator[Row]:
    """Yield a row for each write without a row in the plan: a restored baseline resets it."""
    planned = {row.key for row in plan.rows}
    current = {entry.key: entry.before for entry in before}
    for chain in chains:
        for step in chain.steps:
            key = (chain.id, step.setting)
            result = report.results[key]
            if key in planned or result.outcome is Outcome.KEPT:
                continue
            row = Row(
                target=chain.target,
                id=chain.id,
                adapter=chain.adapter,
                setting=step.setting,
                current=current.get(key),
                wanted=step.value,
                value=step.value,
                state=State.DRIFT,
                limit=None,
                why=LimitReason(Limit.RESTORED_ALONG),
                source="journal",
                rule=plan_rows.BASELINE_RULE,
            )
            yield _add_outcome(row, result)


def _add_outcome(row: Row, result: WriteResult) -> Row:
    """Return the row with its outcome; ``fixed`` if the kernel or the driver owns the setting."""
    if result.outcome is Outcome.REFUSED and result.errno in find_setting(row.setting).locked:
        return replace(row, state=State.FIXED, value=None, limit=LimitReason(Limit.IMMOVABLE))
    found = None if result.found == row.value else result.found
    reason = result.said or row.limit
    return replace(row, limit=reason, outcome=result.outcome, errno=result.errno, found=found)


def _build_chains(
    rows: Iterable[Row], targets_by_id: Mapping[str, Target], recorded: Journal
) -> list[Chain]:
    """Return a chain for each target that drifts; it also rewrites settings that it resets."""
    legal = (row for row in rows if row.state in (State.DRIFT, State.OK))
    chains: list[Chain] = []
    for id, group in group_items(legal, attrgetter("id")).items():
        if any(row.state is State.DRIFT for row in group):
            target, planned = targets_by_id[id], {row.setting: row.value for row in group}
            scheduler = planned.get("scheduler", find_scheduler(target.attributes))
            follow_ups = _plan_follow_ups(target, group, recorded, scheduler)
            chains.append(build_chain(target, [*_plan_steps(group, scheduler), *follow_ups]))
    return chains


def _plan_steps(rows: Collection[Row], scheduler: Value | None) -> Iterator[Step]:
    """Yield the writes of the rows of one target, also of right ones that other writes reset."""
    reset = list_affected_settings(row.setting for row in rows if row.state is State.DRIFT)
    for row in rows:
        if row.state is State.DRIFT or is_among(row.setting, reset):
            assert row.value is not None
            under = scheduler if "scheduler" in find_setting(row.setting).hangs_on else None
            yield Step(row.setting, row.value, row.current, under)


def _plan_follow_ups(
    target: Target, rows: Collection[Row], recorded: Journal, scheduler: Value | None
) -> Iterator[Step]:
    """Yield the writes that restore settings without a row that a restored baseline resets."""
    drift = (row for row in rows if row.state is State.DRIFT)
    restored = (row.setting for row in drift if row.rule == plan_rows.BASELINE_RULE)
    reset = list_affected_settings(restored)
    if not reset:
        return
    planned = {row.setting for row in rows}
    current = parse_values(target.attributes)
    for entry in recorded.entries:
        # With a ``value`` it would be hbatune's and have a row.
        if entry.id != target.id or entry.value is not None or entry.setting in planned:
            continue
        exists = not is_tunable(entry.setting) or entry.under == scheduler
        if exists and is_among(entry.setting, reset):
            expected = current.get(entry.setting)
            yield Step(entry.setting, entry.before, expected, entry.under, follows=True)


def build_chain(target: Target, steps: Iterable[Step]) -> Chain:
    """Return the chain that executes these steps, in their order, on the target."""
    steps = tuple(sorted(steps, key=lambda step: find_setting(step.setting).order))
    chain = Chain(target.name, target.id, target.adapter, target.map, target.directory, steps)
    return replace(chain, identity=target.identity, diskseq=target.diskseq)


def read_baselines(
    chains: Iterable[Chain], wanted: Mapping[Key, Value | None], means: Means
) -> list[Entry]:
    """Return the current values of all settings that the chains may change and that can be set."""
    entries: list[Entry] = []
    affected: dict[Chain, tuple[str, ...]] = {}
    raw, unread = dict[str, setting.Attributes](), dict[str, Collection[str]]()
    for chain in chains:
        names = affected[chain] = list_affected_settings(step.setting for step in chain.steps)
        if chain.sysfs in means.read and _has_all(means.read[chain.sysfs], _list_files(names)):
            raw[chain.sysfs] = means.read[chain.sysfs]
        else:
            unread[chain.sysfs] = names
    if unread:
        raw |= read_raw(unread, means.deadline, means.worker_pool)
    for chain, names in affected.items():
        values = parse_values(raw[chain.sysfs])
        scheduler = values.get("scheduler")
        # A scheduler that is read only because others depend on it is not changed by this chain.
        for name, value in select_values(values, names).items():
            goal = wanted.get((chain.id, name))
            # With `none` async_depth is the kernel's own value, which cannot be written back.
            if is_tunable(name) and scheduler == "none" and goal is None:
                continue
            entry = Entry(chain.id, chain.target, chain.adapter, name, value)
            under = scheduler if "scheduler" in find_setting(name).hangs_on else None
            entries.append(replace(entry, value=goal, under=under, diskseq=chain.diskseq))
    return entries


@lru_cache(maxsize=8)
def list_baseline_files(names: frozenset[str]) -> tuple[str, ...]:
    """Return the files, below a disk's directory, of the baselines that these writes need."""
    of_disks = (name for name in names if table.find_target_kind(name) is TargetKind.ENDPOINT)
    return _list_files(list_affected_settings(of_disks))


def select_values(values: Mapping[str, Value], names: Collection[str]) -> dict[str, Value]:
    """Return the values of these settings, including all tunables of a scheduler among them."""
    return {name: value for name, value in values.items() if is_among(name, names)}


def read_raw(
    wanted: Mapping[str, Iterable[str]], deadline: float, worker_pool: WorkerPool | None = None
) -> dict[str, setting.Attributes]:
    """Read, by sysfs directory, the files of these settings and of their limits."""
    paths = {directory: _list_files(names) for directory, names in wanted.items()}
    return dict(survey_requests(paths, deadline=deadline, worker_pool=worker_pool))


def _has_all(attributes: setting.Attributes, paths: Iterable[str]) -> bool:
    """Return whether these files were read, tunables together: each scheduler has others."""
    missing = set(paths).difference(attributes)
    has_tunables = find_scheduler(attributes) == "none" or any(map(_is_tunable_file, attributes))
    return not missing or (has_tunables and all(map(_is_tunable_file, missing)))


def _is_tunable_file(path: str) -> bool:
    return is_tunable(_BY_PATH.get(path, path))


def _list_files(names: Iterable[str]) -> tuple[str, ...]:
    """Return the files of these settings, and of settings that they need or depend on."""
    files: dict[str, None] = {}
    for name in names:
        if name == table.SCHEDULER_TUNABLES:
            tunables = (f"{table.SCHEDULER_TUNABLES}*", ASYNC_DEPTH_FILE, SCHEDULER_FILE)
            files.update(dict.fromkeys(tunables))
            continue
        kind = find_setting(name)
        files.update(dict.fromkeys((*kind.paths, *kind.needs)))
        for dependency in kind.hangs_on:
            files[find_setting(dependency).path] = None
    return tuple(files)


def parse_values(attributes: setting.Attributes) -> dict[str, Value]:
    """Return the typed values, by setting, of attributes that are writable and can be parsed."""
    values: dict[str, Value] = {}
    for path, attribute in attributes.items():
        name = _BY_PATH.get(path, path if is_tunable(path) else None)
        if name is None or isinstance(attribute, Missing) or not attribute.writable:
            continue
        value = find_setting(name).read(attributes)
        if not isinstance(value, Missing):
            values[name] = value
    return values


_BY_PATH = {path: kind.name for kind in table.SETTINGS.values() for path in kind.paths}


def _select_entries(
    entries: Iterable[Entry],
    recorded: Journal,
    chains: Iterable[Chain],
    report: Report,
    ruled: Collection[Key],
) -> list[Entry]:
    """Return the entries to keep: earlier ones, and entries of targets that may have changed.

    A setting that has its baseline again, and that no rule requires (``ruled``), is dropped.
    """
    earlier = recorded.by_key
    changed: set[str] = set()
    for chain in chains:
        for step in chain.steps:
            if _may_differ(step, report.results[chain.id, step.setting]):
                changed.add(chain.id)
    updated, restored, reset = dict[Key, Entry](), set[Key](), dict[str, set[str]]()
    for entry in entries:
        key = entry.key
        if key not in earlier and entry.id not in changed:
            continue
        updated[key] = new = _update_entry(entry, earlier.get(key), report)
        result = report.results.get(key) if key not in ruled and new.doubt is None else None
        if result is not None and result.outcome in DONE_OUTCOMES and result.found == new.before:
            restored.add(key)
        elif new.known:
            reset.setdefault(new.id, set()).update(find_setting(new.setting).resets)
    # An entry at its baseline is kept if a later rollback resets it by another write.
    retained: list[Entry] = []
    for key, entry in updated.items():
        if key not in restored:
            retained.append(entry)
        elif is_among(entry.setting, reset.get(entry.id, ())):
            retained.append(replace(entry, **DISOWNED_FIELDS))
    return retained


def _update_entry(entry: Entry, recorded: Entry | None, report: Report) -> Entry:
    """Return the entry after the run, with the value that hbatune has set, if any."""
    if entry.key in report.stuck:
        return replace(entry, doubt=report.stuck[entry.key])
    entry = _clear_doubt(entry)
    result = report.results.get(entry.key)
    if result is None or (result.effect and result.found == entry.value):
        return entry
    former = None if recorded is None else recorded.value
    remaining = None if result.found == entry.before else result.found
    if result.effect:
        return replace(entry, value=None, former=None, effect=remaining)
    if result.outcome in DONE_OUTCOMES:
        return replace(entry, former=None, effect=None)
    # Not tried, or refused without effect: the device still has the value of an earlier run.
    if result.outcome in UNTRIED_OUTCOMES or (former is not None and result.found == former):
        return replace(entry, value=former, former=None)
    if result.found is None:
        return entry  # not read back: the device may have either value, and both stay hbatune's
    if result.outcome is Outcome.CONFLICT:
        # Changed by others since the plan: not hbatune's value, but the baseline stays.
        return replace(entry, **DISOWNED_FIELDS)
    return replace(entry, value=None, former=None, effect=remaining)


def _may_differ(step: Step, result: WriteResult) -> bool:
    """Return whether the device may have another value than before the write."""
    if result.outcome in (Outcome.WRITTEN, Outcome.IGNORED, Outcome.STUCK):
        return True
    if result.errno == errno.ECHILD:  # the worker died before it read back
        return True
    # A scheduler that cannot be set leaves `none` (block/elevator.c: elevator_switch).
    return result.outcome is Outcome.REFUSED and result.found != step.expected


def _clear_doubt(entry: Entry) -> Entry:
    """Return the entry without its doubt if the worker that was writing it has ended."""
    if entry.doubt is None or entry.doubt.alive():
        return entry
    return replace(entry, doubt=None)
