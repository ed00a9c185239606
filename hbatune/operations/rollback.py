"""Restore the values in the journal, and ensure that no part of hbatune sets them again."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from hbatune.act import executor, journal, rollback_record, system
from hbatune.act.journal import Journal, LostError
from hbatune.act.lock import Lock
from hbatune.act.restore import RollbackUnsavedError, list_unread, plan_rollback, restore_values
from hbatune.act.rollback_record import UNGUARDED
from hbatune.errors import LockedError
from hbatune.facts import assembly, model
from hbatune.facts.survey import NoWorkerError
from hbatune.facts.targets import find_named_targets
from hbatune.operations import boot_files, situation
from hbatune.operations.context import Context, Event, Phase, RollbackResult, Task
from hbatune.plan.rows import Restored
from hbatune.policy.config import Config, find_configuration_file, load_configuration
from hbatune.policy.toml_files import PolicyError
from hbatune.workers import WorkerPool


def roll_back_targets(
    context: Context, targets: Sequence[str] = (), *, disrupt: bool = False
) -> RollbackResult:
    """Record the rollback, take the lock, and restore the targets' values, or everything.

    ``disrupt`` allows writes that reset an adapter. Raises UnknownTargetError, and PolicyError if
    targets are named and the configuration is invalid, both before anything is recorded. Raises
    LockedError if another process holds the lock: the rollback is recorded then.
    """
    config = read_configuration(context, targets)
    recorded = record_rollback(context, config, targets)
    with hold_lock("rollback", context.lock(), recorded=recorded):
        return restore_targets(context, config, targets, recorded=recorded, disrupt=disrupt)


def record_rollback(context: Context, config: Config, targets: Sequence[str] = ()) -> bool:
    """Record a rollback of these targets, or of everything; return whether it is durable.

    It needs no lock: no other hbatune writes to the targets after it. A failure is a note, and the
    values are restored anyway. Raises UnknownTargetError.
    """
    paths = context.paths
    ids: tuple[str, ...] | None = None
    if targets:
        with WorkerPool() as worker_pool:
            scan = situation.unlocked_means(paths, worker_pool)
            machine, filed = scan.gather_journal((), (), config.act)
        ids = tuple(sorted(_find_ids(targets, machine, filed) or ()))
    record = partial(rollback_record.record_rollback, paths, ids)
    return context.attempt(Task.RECORD_ROLLBACK, record)


@contextmanager
def hold_lock(
    command: str, lock: AbstractContextManager[Lock], *, recorded: bool
) -> Iterator[Lock]:
    """Hold a lock for a ``command`` after a recorded rollback; LockedError gives the next step."""
    with ExitStack() as stack:
        try:
            acquired = stack.enter_context(lock)
        except LockedError as error:
            raise LockedError(
                error.pid,
                error.role,
                holder=error.holder,
                consequence=f"; the rollback is {'' if recorded else 'not '}recorded, "
                "nothing is restored yet",
                hint=f"run `hbatune {command}` again when that process has ended"
                + (": until then it writes nothing more" if recorded else ""),
            ) from error
        yield acquired


def restore_targets(
    context: Context,
    config: Config,
    targets: Sequence[str] = (),
    *,
    recorded: bool,
    disrupt: bool = False,
) -> RollbackResult:
    """Restore the targets' values, or everything, under the lock that the caller holds.

    ``recorded`` is whether the rollback is durable. Raises UnknownTargetError.
    """
    paths = context.paths
    with WorkerPool() as worker_pool:
        scan = situation.locked_means(paths, context.patience, worker_pool)
        stuck = scan.stuck
        try:
            # Without its settings: each setting is read when it is restored.
            machine = scan.gather((), config.act)
        except NoWorkerError as error:
            if targets:  # their names cannot be resolved
                raise
            return _roll_back_unread(context, error, recorded=recorded)
        filed, earlier = journal.load_with_current_ids(paths.journal, machine)
        if earlier is not None and earlier.entries:
            context.note_event(Event.JOURNAL_OUTDATED)
        context.note(situation.Traces(filed, rollback_record.load(paths), machine, stuck))
        ids = _find_ids(targets, machine, filed)
        filed = filed.trying(ids)
        finished = recorded
        if ids is None:
            # Before the values are restored: a disk that appears during this must not be tuned.
            finished = _stop_tuning(context) and finished
        with _make_means(context, filed, config, worker_pool) as means:
            try:
                plan = plan_rollback(machine, filed, means, ids=ids, stuck=stuck, disrupt=disrupt)
                rows = restore_values(plan, means)
            except RollbackUnsavedError as error:
                context.note_failure(Task.SAVE_JOURNAL, error)
                rows, finished = error.rows, False
            except NoWorkerError as error:
                context.note_failure(Task.READ_DEVICES, error)
                rows, finished = list_unread(filed, ids, error), False
        boot_files.remember_pages(context, rows)
        # After the writes: until then irqbalance would move interrupts that are being restored.
        finished = boot_files.release_interrupts(context, machine, ids) and finished
        if ids is None:
            if filed.losses:  # reported, so they are dropped
                settle = partial(journal.settle, paths.journal, machine.boot_id)
                finished = context.attempt(Task.SAVE_JOURNAL, settle) and finished
            finished = boot_files.remove_options(context, machine) and finished
        else:
            finished = boot_files.refresh_active_rules(context, config, stuck) and finished
    context.nudge()
    return RollbackResult(rows, machine, finished, losses=filed.losses)


def preview_rollback(
    context: Context, targets: Sequence[str] = (), *, disrupt: bool = False
) -> RollbackResult:
    """Return the planned result of ``roll_back_targets``, without a write. Raises as it does."""
    paths = context.paths
    config = read_configuration(context, targets)
    with WorkerPool() as worker_pool:
        scan = situation.unlocked_means(paths, worker_pool)
        machine, filed = scan.gather_journal((), (), config.act)
        _note_losses(context, filed)
        ids = _find_ids(targets, machine, filed)
        with _make_means(context, Journal(""), config, worker_pool) as means:
            plan = plan_rollback(machine, filed, means, ids=ids, stuck=scan.stuck, disrupt=disrupt)
    return RollbackResult(plan.rows, machine, finished=False, losses=filed.losses)


def restore_all(context: Context, config: Config) -> tuple[Restored, ...]:
    """Restore everything in the journal when the daemon stops; the profile stays active.

    It makes no rollback record: the next start of the daemon applies again. Raises LockedError, and
    JournalError and RollbackUnsavedError as ``act.restore.restore_values`` does.
    """
    with context.lock(), WorkerPool() as worker_pool:
        scan = situation.locked_means(context.paths, context.patience, worker_pool)
        machine, filed = scan.gather_journal((), (), config.act)
        _note_losses(context, filed)
        with _make_means(context, filed, config, worker_pool) as means:
            rows = restore_values(plan_rollback(machine, filed, means, stuck=scan.stuck), means)
        boot_files.remember_pages(context, rows)
        boot_files.release_interrupts(context, machine, None)
    return rows


def _make_means(
    context: Context, filed: Journal, config: Config, worker_pool: WorkerPool
) -> AbstractContextManager[executor.Means]:
    """Return the means to restore the disks in a journal, regardless of rollback records."""
    disks = len({entry.id for entry in filed.entries})
    return context.writing(Phase.RESTORING, disks, config.act, worker_pool, UNGUARDED)


def _note_losses(context: Context, filed: Journal) -> None:
    if filed.losses:
        context.note_failure(Task.READ_JOURNAL, LostError(filed.losses))


def _roll_back_unread(context: Context, error: NoWorkerError, *, recorded: bool) -> RollbackResult:
    """Roll back everything without a process to read the devices, and return the result.

    It does the parts that need no such process: nothing sets values again until the next rollback.
    """
    context.note_failure(Task.READ_DEVICES, error)
    boot = assembly.read_boot_id()
    filed, _ = journal.load(context.paths.journal, boot)
    finished = _stop_tuning(context) and recorded
    machine = model.Machine("", "", boot, 0, 0, (), ())
    return RollbackResult(list_unread(filed, None, error), machine, finished, read=False)


def read_configuration(context: Context, targets: Sequence[str] = ()) -> Config:
    """Return the configuration; an error in it must not prevent a rollback of everything."""
    try:
        return load_configuration()
    except PolicyError as error:
        if targets:  # the udev rules are compiled again for the others, from this configuration
            raise
        context.note_failure(Task.READ_CONFIGURATION, error)
        return Config()


def _stop_tuning(context: Context) -> bool:
    """Deactivate the profile and remove the udev rules; return whether both succeeded."""
    deactivate = partial(system.activate_profile, find_configuration_file(), None)
    deactivated = context.attempt(Task.DEACTIVATE_PROFILE, deactivate)
    return boot_files.withdraw_rules(context) and deactivated


def _find_ids(targets: Sequence[str], machine: model.Machine, filed: Journal) -> set[str] | None:
    """Return the ids of the named targets; the journal has the id of a removed disk."""
    if not targets:
        return None
    past = [(entry.target, entry.id) for entry in filed.entries]
    return set(find_named_targets(machine, targets, past))
