"""Removes hbatune from a machine or an image: values back first, then files, then state."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hbatune.act import active, files, system
from hbatune.act.paths import Paths
from hbatune.boot import install
from hbatune.boot.install import below
from hbatune.errors import UsageError
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
from hbatune.operations.rollback import rollback
from hbatune.policy.chosen import configuration, configuration_file
from hbatune.policy.files import ROOT, PolicyError


class Removal(Struct, frozen=True):
    """The files and folders that an uninstallation would remove.

    Files that were ``edited`` since they were placed would stay.
    """

    files: tuple[Path, ...]
    edited: frozenset[Path]
    folders: tuple[Path, ...]


def uninstall(context: Context, root: Path, *, keep_values: bool = False) -> bool:
    """Remove everything below the root; return whether nothing was left and no command hangs.

    On the running system the values go back first, unless ``keep_values``; where they cannot, the
    state that records them stays. Raises UsageError where the values would not be kept.
    """
    live = root == ROOT
    paths = context.paths
    finished = True
    if live:
        if keep_values:
            _require_kept()
        known = install.installed(root, paths.manifest)
        if known is not None and known.of(paths.units / system.UNIT):
            # First of all: a daemon that goes on running would set the restored values again.
            timer = known.of(paths.units / system.AUDIT_TIMER)
            finished = _done(context, system.disable(*([system.AUDIT_TIMER] if timer else [])))
        if keep_values:
            remove_options(context, None)
        # Without the journal, values that are not back yet could never be restored.
        elif not _rolled_back(context):
            return False
    taken = install.take_away(root, paths.manifest)
    for path in taken.gone:
        context.reporter.note(FileGone(below(root, path)))
    if live:
        finished = _done(context, system.reload_units()) and finished
        finished = _done(context, system.reload_rules()) and finished
        # After the rules are gone: the saved values then leave udev's database.
        finished = _done(context, system.announce(marked_disks())) and finished
    for path in taken.left:
        context.reporter.note(FileEdited(below(root, path)))
    if not _forgotten(context, below(root, configuration_file()), root) or taken.left:
        return False
    # The state last: as long as any step before fails, an uninstallation can be repeated.
    for folder in _folders(paths, live=live):
        files.remove_folder(below(root, folder))
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


def _require_kept() -> None:
    """UsageError where the daemon would put the values back when it is stopped."""
    with suppress(PolicyError):  # a mistake in the file must not prevent an uninstallation
        if configuration().daemon.rollback_on_stop:
            raise UsageError(
                "the values would not be kept: rollback_on_stop is set, and the daemon is stopped",
                hint=f"set it to false in {configuration_file()}, or leave out --keep-values",
            )


def _rolled_back(context: Context) -> bool:
    """Put the values back; return whether all are, even if other steps failed."""
    done = rollback(context)
    context.reporter.note(RolledBack(done.rows, done.machine))
    if done.complete or not context.paths.journal.exists():
        return True
    context.reporter.note(ValuesLeft())
    return False


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
