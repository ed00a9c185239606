"""Puts back the values in the journal, and sees to it that no part of hbatune sets them again."""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import active, claims, hands_off, journal
from hbatune.act.claims import Claim
from hbatune.act.journal import Journal, JournalError, LostError
from hbatune.act.means import Means
from hbatune.act.rollback import RollbackUnsavedError
from hbatune.act.rollback import preview as preview_values
from hbatune.act.rollback import rollback as restore_values
from hbatune.facts.machine import gather
from hbatune.facts.model import Machine
from hbatune.facts.targets import UnknownTargetError, named
from hbatune.operations import boot_rules
from hbatune.operations.context import Context, Phase
from hbatune.operations.irqbalance import release
from hbatune.operations.module_options import remove_options
from hbatune.operations.notes import EarlierBoot, Leftovers, Task, TaskFailed
from hbatune.operations.situation import resolved, waiting_for
from hbatune.plan.rows import Restored
from hbatune.policy.chosen import configuration, configuration_file
from hbatune.policy.config import Config
from hbatune.policy.files import PolicyError
from hbatune.workers import WorkerPool


class RollbackPreview(Struct, frozen=True):
    """A preview of a rollback; ``lost`` is as for ``RollbackResult``."""

    rows: tuple[Restored, ...]
    machine: Machine
    lost: bool = False


class RollbackResult(Struct, frozen=True):
    """The result of a rollback.

    ``recorded`` and ``saved`` are whether its record and the journal could be written; ``removed``
    is whether the active profile, the udev rules and the module options, which would set values
    again, were removed or brought up to date. ``lost`` is whether the journal has lost original
    values.
    """

    rows: tuple[Restored, ...]
    machine: Machine
    recorded: bool
    saved: bool
    removed: bool
    lost: bool = False

    @property
    def complete(self) -> bool:
        """Whether everything is back and every file could be written."""
        kept = self.recorded and self.saved and self.removed and not self.lost
        return kept and all(row.done for row in self.rows)


def rollback(
    context: Context, targets: Sequence[str] = (), *, disrupt: bool = False
) -> RollbackResult:
    """Put the targets' values back, or everything, under the lock.

    ``disrupt`` allows writes that reset an adapter. Raises LockedError, UnknownTargetError, and
    PolicyError where the configuration has a mistake and targets are named.
    """
    paths = context.paths
    config = _configuration(context, targets)
    with context.lock(), WorkerPool() as worker_pool:
        recorded = True
        if not targets:
            # First of all: from now on no daemon, rule or apply sets again a value restored below.
            recorded = _recorded(context, lambda: hands_off.roll_back_everything(paths))
        stuck = claims.settle(paths.claims, patience=context.patience)
        machine = _gathered(config, stuck, worker_pool)
        filed, earlier = journal.load_for(paths.journal, machine)
        if earlier is not None and earlier.entries:
            context.reporter.note(EarlierBoot(dropped=False))
        context.reporter.note(Leftovers(filed, hands_off.load(paths), machine, tuple(stuck)))
        ids = _ids(targets, machine, filed)
        if ids is not None or filed.excluded:
            # Before the values are restored, and after the machine was read: names need it to
            # become ids.
            known = journal.rollback_record(filed, hands_off.load(paths), machine)
            record = known.with_targets(ids or ())
            recorded = _recorded(context, lambda: hands_off.save(record, paths))
        filed = replace(filed, excluded=()).trying(ids)
        removed = True
        if ids is None:
            removed = _deactivated(context)
            # Before the values go back: a disk that appears meanwhile must not be tuned, either.
            removed = boot_rules.withdraw(context) and removed
        disks = len({entry.id for entry in filed.entries})
        with context.writing(Phase.RESTORING, disks, config.act, worker_pool) as means:
            rows, saved = _restored(context, machine, filed, means, ids, stuck, disrupt)
        # After the writes: until then irqbalance would move interrupts that are being put back.
        release(context, machine, ids)
        if ids is None:
            if filed.losses:
                saved = _settled(context, machine) and saved
            removed = remove_options(context, machine) and removed
        else:
            # Read again: the rollback has taken entries out of it.
            left = journal.load_for(paths.journal, machine)[0]
            removed = boot_rules.refresh_active(context, config, left, stuck)
    context.nudge()
    return RollbackResult(rows, machine, recorded, saved, removed, bool(filed.losses))


def preview(
    context: Context, targets: Sequence[str] = (), *, disrupt: bool = False
) -> RollbackPreview:
    """Return what ``rollback`` would put back; nothing is written, and no lock is taken.

    Raises UnknownTargetError and PolicyError as ``rollback`` does.
    """
    paths = context.paths
    config = _configuration(context, targets)
    stuck = claims.outstanding(paths.claims)
    with WorkerPool() as worker_pool:
        machine = _gathered(config, stuck, worker_pool)
        filed, _ = journal.load_for(paths.journal, machine)
        _note_losses(context, filed)
        ids = _ids(targets, machine, filed)
        with context.writing(Phase.RESTORING, 0, config.act, worker_pool) as means:
            rows = preview_values(machine, filed, means, ids=ids, stuck=stuck, disrupt=disrupt)
    return RollbackPreview(rows, machine, bool(filed.losses))


def put_back(context: Context, config: Config) -> tuple[Restored, ...]:
    """Put back everything in the journal as the daemon stops; the profile stays active.

    There is no record of it: the next start of the daemon applies again. Raises LockedError, and
    JournalError and RollbackUnsavedError as ``act.rollback.rollback`` does.
    """
    with context.lock(), WorkerPool() as worker_pool:
        stuck = claims.settle(context.paths.claims, patience=context.patience)
        machine = _gathered(config, stuck, worker_pool)
        filed, _ = journal.load_for(context.paths.journal, machine)
        _note_losses(context, filed)
        disks = len({entry.id for entry in filed.entries})
        with context.writing(Phase.RESTORING, disks, config.act, worker_pool) as means:
            rows = restore_values(machine, filed, means, stuck=stuck)
        release(context, machine, None)
    return rows


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


def _recorded(context: Context, record: Callable[[], None]) -> bool:
    """Record the rollback; a failure is a note, and the values are restored all the same."""
    try:
        record()
    except hands_off.RecordError as error:
        context.reporter.note(TaskFailed(Task.RECORD_ROLLBACK, error))
        return False
    return True


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


def _configuration(context: Context, targets: Sequence[str]) -> Config:
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
        active.activate(configuration_file(), None)
    except active.ActiveProfileError as error:
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
