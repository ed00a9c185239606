"""Removes hbatune from a machine or an image: values back first, then files, then state."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hbatune.act import active, files, journal, system
from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.boot import install
from hbatune.boot.install import below
from hbatune.errors import UsageError
from hbatune.facts.devices import has_sysfs
from hbatune.facts.machine import boot_id
from hbatune.facts.udev import marked_disks
from hbatune.operations.context import Context
from hbatune.operations.module_options import remove_options
from hbatune.operations.notes import (
    CommandFailed,
    FileEdited,
    FileGone,
    RolledBack,
    Task,
    TaskFailed,
    ValuesLeft,
)
from hbatune.operations.rollback import hold_for, read_configuration, record, restore
from hbatune.policy.chosen import configuration, configuration_file
from hbatune.policy.files import ROOT, PolicyError

_UDEV_RUNS = Path("/run/udev/control")


class Removal(Struct, frozen=True):
    """The files and folders that an uninstallation would remove.

    Files that were ``edited`` since they were placed would stay.
    """

    files: tuple[Path, ...]
    edited: frozenset[Path]
    folders: tuple[Path, ...]


def uninstall(context: Context, root: Path, *, keep_values: bool = False) -> bool:
    """Remove everything below the root; return whether nothing was left and no command hangs.

    On the running system the values are restored first, unless ``keep_values`` or in an image
    without /sys in which none was changed. If they cannot be restored, the state that records them
    stays. One lock is held from the restore to the removal of the last file, which is the lock's
    own. Raises UsageError if the values would not be kept, and LockedError: a rollback of
    everything is recorded then, unless ``keep_values``.
    """
    paths = context.paths
    if root != ROOT:
        return _remove(context, root)
    if keep_values:
        _require_kept()
    finished = True
    placed = install.installed(root, paths.manifest)
    if placed is not None and placed.of(paths.units / system.UNIT):
        # Before the lock, which a pass of the daemon takes.
        timer = placed.of(paths.units / system.AUDIT_TIMER)
        finished = _done(context, system.disable(*([system.AUDIT_TIMER] if timer else [])))
    if keep_values or _is_untouched(paths):
        with _daemon_lock(paths), context.lock() as lock:
            finished = remove_options(context, None) and finished
            return _remove(context, root, lock) and finished
    config = read_configuration(context)
    recorded = record(context, config)
    with (
        hold_for("uninstall", _daemon_lock(paths), recorded=recorded),
        hold_for("uninstall", context.lock(), recorded=recorded) as lock,
    ):
        # Without the journal, values that are not restored yet could never be restored.
        done = restore(context, config, recorded=recorded)
        context.reporter.note(RolledBack(done.rows, done.machine, bool(done.losses)))
        # A loss is reported once: the next uninstallation finds nothing lost, and goes on.
        remains = bool(done.losses) or not done.read or paths.journal.exists()
        if not done.complete and remains:
            context.reporter.note(ValuesLeft())
            return False
        return _remove(context, root, lock) and finished


def _daemon_lock(paths: Paths) -> Lock:
    """Return the lock of the daemon, which an administrator may have started without systemd.

    Such a daemon would set values again, and their original values would be lost.
    """
    hint = "end that process, then run `hbatune uninstall` again"
    spare = paths.daemon_lock_spare
    return Lock(paths.daemon_lock, "is a daemon that still runs", spare=spare, hint=hint)


def _remove(context: Context, root: Path, lock: Lock | None = None) -> bool:
    """Remove files and state below the root; return whether nothing was left and no command hangs.

    On the running system the caller holds the ``lock``.
    """
    paths = context.paths
    taken = install.take_away(root, paths.manifest)
    for path in taken.gone:
        context.reporter.note(FileGone(below(root, path)))
    finished = True
    if lock is not None:
        finished = _done(context, system.reload_units())
        finished = _done(context, system.reload_rules()) and finished
        # After the rules are gone: the saved values then leave udev's database.
        finished = _done(context, system.announce(marked_disks())) and finished
    for path in taken.left:
        context.reporter.note(FileEdited(below(root, path)))
    if not _forgotten(context, below(root, configuration_file()), root) or taken.left:
        return False
    # The state last: as long as any step before fails, an uninstallation can be repeated.
    files.remove_folder(below(root, paths.state))
    if lock is not None:
        files.empty_folder(paths.run, keep=lock.name)
        lock.remove()
    install.sweep(root, taken.folders)
    return finished


def removal(context: Context, root: Path) -> Removal:
    """Return the files and folders that ``uninstall`` would remove below the root."""
    manifest = context.paths.manifest
    known = install.installed(root, manifest)
    placed = [Path(each.path) for each in known.placed] if known else []
    edited = (path for path in placed if install.changed(root, manifest, path))
    folders = [below(root, each) for each in _folders(context.paths, live=root == ROOT)]
    return Removal(
        files=tuple(below(root, path) for path in placed),
        edited=frozenset(below(root, path) for path in edited),
        folders=tuple(folder for folder in folders if folder.exists()),
    )


def _folders(paths: Paths, *, live: bool) -> Iterator[Path]:
    """Yield the folders of hbatune's own state; an image has none in /run."""
    yield paths.state
    if live:
        yield paths.run


def _is_untouched(paths: Paths) -> bool:
    """Whether /sys is missing and nothing shows that hbatune has changed a setting in this boot.

    A journal of this boot does, and so does one whose boot is unknown, since /proc is missing too.
    Every run that writes leaves its file of claims in /run, and udev may have written the values of
    the installed rules.
    """
    if has_sysfs() or paths.claims.exists():
        return False
    if paths.udev_rules.exists() and _UDEV_RUNS.exists():
        return False
    if not paths.journal.exists():
        return True
    try:
        recorded, _ = journal.load(paths.journal, boot_id())
    except (OSError, journal.JournalError):
        return False
    return not (recorded.entries or recorded.losses or recorded.run)


def _require_kept() -> None:
    """UsageError where the daemon would put the values back when it is stopped."""
    with suppress(PolicyError):  # a mistake in the file must not prevent an uninstallation
        if configuration().daemon.rollback_on_stop:
            raise UsageError(
                "the values would not be kept: rollback_on_stop is set, and the daemon is stopped",
                hint=f"set it to false in {configuration_file()}, or leave out --keep-values",
            )


def _forgotten(context: Context, file: Path, root: Path) -> bool:
    """Remove the active profile from the configuration; return whether that succeeded."""
    try:
        active.forget(file, root=root)
    except active.ActiveProfileError as error:
        context.reporter.note(TaskFailed(Task.FORGET_PROFILE, error))
        return False
    return True


def _done(context: Context, ran: system.Ran | None) -> bool:
    """Report a command that failed; return False if it did not end by its deadline."""
    if ran is not None and ran.code:
        context.reporter.note(CommandFailed(ran))
    return ran is None or ran.finished
