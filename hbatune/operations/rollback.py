"""Puts back the values in the journal, and sees to it that no part of hbatune sets them again."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import journal, lock, rollback_record, system
from hbatune.act.executor import Means
from hbatune.act.journal import Journal, JournalError, Loss, LostError
from hbatune.act.lock import Claim, Lock
from hbatune.act.restore import RollbackUnsavedError, not_read
from hbatune.act.restore import preview as preview_values
from hbatune.act.restore import rollback as restore_values
from hbatune.act.rollback_record import UNGUARDED
from hbatune.errors import LockedError
from hbatune.facts.assembly import boot_id
from hbatune.facts.machine import gather
from hbatune.facts.model import Machine
from hbatune.facts.survey import NoWorkerError
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.operations import boot_files
from hbatune.operations.boot_files import release_interrupts, remove_options
from hbatune.operations.context import (
    Context,
    EarlierBoot,
    InterruptedRuns,
    Phase,
    Task,
    TaskFailed,
)
from hbatune.operations.situation import resolved, waiting_for
from hbatune.plan.rows import Restored
from hbatune.policy.chosen import configuration, configuration_file
from hbatune.policy.config import Config
from hbatune.policy.toml_files import PolicyError
from hbatune.workers import WorkerPool


class RollbackPreview(Struct, frozen=True):
    """A preview of a rollback; ``losses`` are as for ``RollbackResult``."""

    rows: tuple[Restored, ...]
    machine: Machine
    losses: tuple[Loss, ...] = ()


class RollbackResult(Struct, frozen=True):
    """The result of a rollback.

    ``recorded`` and ``saved`` are whether its record and the journal could be written; ``removed``
    is whether the active profile, the udev rules and the module options, which would set values
    again, and the list for irqbalance were removed or brought up to date. ``read`` is whether the
    devices could be read. If not, udev may have saved values that no row names. ``losses`` are the
    original values that the journal has lost.
    """

    rows: tuple[Restored, ...]
    machine: Machine
    recorded: bool
    saved: bool
    removed: bool
    read: bool = True
    losses: tuple[Loss, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything is back and every file could be written."""
        kept = self.recorded and self.saved and self.removed and self.read and not self.losses
        return kept and all(row.done for row in self.rows)


def rollback(
    context: Context, targets: Sequence[str] = (), *, disrupt: bool = False
) -> RollbackResult:
    """Record the rollback, take the lock, and restore the targets' values, or everything.

    ``disrupt`` allows writes that reset an adapter. Raises UnknownTargetError, and PolicyError if
    targets are named and the configuration is invalid, both before anything is recorded. Raises
    LockedError if another process holds the lock: the rollback is recorded then.
    """
    config = read_configuration(context, targets)
    recorded = record(context, config, targets)
    with hold_for("rollback", context.lock(), recorded=recorded):
        return restore(context, config, targets, recorded=recorded, disrupt=disrupt)


def record(context: Context, config: Config, targets: Sequence[str] = ()) -> bool:
    """Record a rollback of these targets, or of everything; return whether that is durable.

    It needs no lock: from now on no other hbatune writes to the targets. A failure is a note, and
    the values are restored anyway. Raises UnknownTargetError.
    """
    return _recorded(context, _ids_of(context, config, targets) if targets else None)


@contextmanager
def hold_for(command: str, lock: AbstractContextManager[Lock], *, recorded: bool) -> Iterator[Lock]:
    """Hold a lock for a ``command`` that has recorded a rollback.

    Raises LockedError with the state of the rollback and the next step.
    """
    with ExitStack() as stack:
        try:
            held = stack.enter_context(lock)
        except LockedError as error:
            state = "the rollback is recorded" if recorded else "the rollback is not recorded"
            raise LockedError(
                error.pid,
                error.does,
                holder=error.holder,
                consequence=f"; {state}, nothing is restored yet",
                hint=f"run `hbatune {command}` again when that process has ended"
                + (": until then it writes nothing more" if recorded else ""),
            ) from error
        yield held


def restore(
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
        stuck = lock.settle_claims(paths.claims, patience=context.patience)
        try:
            machine = _gathered(config, stuck, worker_pool)
        except NoWorkerError as error:
            if targets:  # their names cannot be resolved
                raise
            return _not_read(context, error, recorded=recorded)
        filed, earlier = journal.load_for(paths.journal, machine)
        if earlier is not None and earlier.entries:
            context.reporter.note(EarlierBoot(dropped=False))
        context.reporter.note(
            InterruptedRuns(filed, rollback_record.load(paths), machine, tuple(stuck))
        )
        ids = _ids(targets, machine, filed)
        if filed.excluded:
            # An earlier version recorded these in the journal, which may be removed below.
            recorded = _recorded(context, filed.excluded) and recorded
        filed = replace(filed, excluded=()).trying(ids)
        removed = True
        if ids is None:
            removed = _deactivated(context)
            # Before the values go back: a disk that appears meanwhile must not be tuned, either.
            removed = boot_files.withdraw_rules(context) and removed
        disks = len({entry.id for entry in filed.entries})
        with _restoring(context, disks, config, worker_pool) as means:
            rows, saved = _restored(context, machine, filed, means, ids, stuck, disrupt)
        # After the writes: until then irqbalance would move interrupts that are being put back.
        released = release_interrupts(context, machine, ids)
        if ids is None:
            if filed.losses:
                saved = _settled(context, machine) and saved
            removed = remove_options(context, machine) and removed
        else:
            # Read again: the rollback has taken entries out of it.
            left = journal.load_for(paths.journal, machine)[0]
            removed = boot_files.refresh_active_rules(context, config, left, stuck)
    context.nudge()
    return RollbackResult(rows, machine, recorded, saved, removed and released, losses=filed.losses)


def preview(
    context: Context, targets: Sequence[str] = (), *, disrupt: bool = False
) -> RollbackPreview:
    """Return what ``rollback`` would put back; nothing is written, and no lock is taken.

    Raises UnknownTargetError and PolicyError as ``rollback`` does.
    """
    paths = context.paths
    config = read_configuration(context, targets)
    stuck = lock.outstanding_claims(paths.claims)
    with WorkerPool() as worker_pool:
        machine = _gathered(config, stuck, worker_pool)
        filed, _ = journal.load_for(paths.journal, machine)
        _note_losses(context, filed)
        ids = _ids(targets, machine, filed)
        with _restoring(context, 0, config, worker_pool) as means:
            rows = preview_values(machine, filed, means, ids=ids, stuck=stuck, disrupt=disrupt)
    return RollbackPreview(rows, machine, filed.losses)


def put_back(context: Context, config: Config) -> tuple[Restored, ...]:
    """Put back everything in the journal as the daemon stops; the profile stays active.

    There is no record of it: the next start of the daemon applies again. Raises LockedError, and
    JournalError and RollbackUnsavedError as ``act.restore.rollback`` does.
    """
    with context.lock(), WorkerPool() as worker_pool:
        stuck = lock.settle_claims(context.paths.claims, patience=context.patience)
        machine = _gathered(config, stuck, worker_pool)
        filed, _ = journal.load_for(context.paths.journal, machine)
        _note_losses(context, filed)
        disks = len({entry.id for entry in filed.entries})
        with _restoring(context, disks, config, worker_pool) as means:
            rows = restore_values(machine, filed, means, stuck=stuck)
        release_interrupts(context, machine, None)
    return rows


def _restoring(
    context: Context, disks: int, config: Config, worker_pool: WorkerPool
) -> AbstractContextManager[Means]:
    """Return the means to restore this number of disks, which no rollback record forbids."""
    return context.writing(Phase.RESTORING, disks, config.act, worker_pool, UNGUARDED)


def _note_losses(context: Context, filed: Journal) -> None:
    if filed.losses:
        context.reporter.note(TaskFailed(Task.READ_JOURNAL, LostError(filed.losses)))


def _settled(context: Context, machine: Machine) -> bool:
    """Forget the losses that were reported; return whether the journal could be written."""
    try:
        journal.settle(context.paths.journal, machine.boot_id)
    except JournalError as error:
        context.reporter.note(TaskFailed(Task.SAVE_JOURNAL, error))
        return False
    return True


def _gathered(config: Config, stuck: Sequence[Claim], worker_pool: WorkerPool) -> Machine:
    """Return the machine without its settings, which are read as each is put back."""
    return gather(
        (),
        deadline=config.act.deadline_seconds,
        avoid={claim.target: waiting_for(claim) for claim in stuck},
        worker_pool=worker_pool,
    )


def _not_read(context: Context, error: NoWorkerError, *, recorded: bool) -> RollbackResult:
    """Return the result of a rollback of everything without a process to read the devices.

    What needs no such process is done: nothing sets values again until the next rollback.
    """
    context.reporter.note(TaskFailed(Task.READ_DEVICES, error))
    boot = boot_id()
    filed, _ = journal.load(context.paths.journal, boot)
    removed = _deactivated(context)
    removed = boot_files.withdraw_rules(context) and removed
    machine = Machine("", "", boot, 0, 0, (), ())
    rows = not_read(filed, None, error)
    return RollbackResult(rows, machine, recorded, saved=True, removed=removed, read=False)


def _recorded(context: Context, ids: Collection[str] | None) -> bool:
    """Record a rollback of these ids, or of everything; return whether that is durable."""
    try:
        if ids is None:
            rollback_record.record_everything(context.paths)
        else:
            rollback_record.record_targets(ids, context.paths)
    except rollback_record.RecordError as error:
        context.reporter.note(TaskFailed(Task.RECORD_ROLLBACK, error))
        return False
    return True


def _ids_of(context: Context, config: Config, targets: Sequence[str]) -> Collection[str]:
    """Return the ids of these targets, before the lock is taken."""
    stuck = lock.outstanding_claims(context.paths.claims)
    with WorkerPool() as worker_pool:
        machine = _gathered(config, stuck, worker_pool)
    filed, _ = journal.load_for(context.paths.journal, machine)
    return sorted(_ids(targets, machine, filed) or ())


def _restored(
    context: Context,
    machine: Machine,
    filed: Journal,
    means: Means,
    ids: Collection[str] | None,
    stuck: Sequence[Claim],
    disrupt: bool,
) -> tuple[tuple[Restored, ...], bool]:
    """Put the values back; return the rows, and whether the journal could be written."""
    try:
        return restore_values(machine, filed, means, ids=ids, stuck=stuck, disrupt=disrupt), True
    except RollbackUnsavedError as error:
        context.reporter.note(TaskFailed(Task.SAVE_JOURNAL, error))
        return error.rows, False
    except NoWorkerError as error:
        context.reporter.note(TaskFailed(Task.READ_DEVICES, error))
        return not_read(filed, ids, error), False


def read_configuration(context: Context, targets: Sequence[str] = ()) -> Config:
    """Return the configuration; a mistake in it must not prevent a rollback of everything."""
    try:
        return configuration()
    except PolicyError as error:
        if targets:  # the udev rules are compiled again for the others, from this configuration
            raise
        context.reporter.note(TaskFailed(Task.READ_CONFIGURATION, error))
        return Config()


def _deactivated(context: Context) -> bool:
    """Make no profile active; a failure is a note, and the values are restored all the same."""
    try:
        system.activate_profile(configuration_file(), None)
    except system.ActiveProfileError as error:
        context.reporter.note(TaskFailed(Task.DEACTIVATE_PROFILE, error))
        return False
    return True


def _ids(targets: Sequence[str], machine: Machine, filed: Journal) -> set[str] | None:
    """Return the ids that the targets name; a disk that is gone is found in the journal."""
    if not targets:
        return None
    ids: set[str] = set()
    for name in map(resolved, targets):
        gone = {entry.id for entry in filed.entries if name in (entry.target, entry.id)}
        try:
            ids.update(named(machine, [name]))
        except UnknownTargetError:
            if not gone:
                raise
            ids.update(gone)
    return ids
