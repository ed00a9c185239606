"""Plans the options of kernel modules, writes them for the next load, and removes them."""

import os
from collections.abc import Collection, Iterable

from hbatune.act import modprobe
from hbatune.boot import install
from hbatune.facts.adapters import rebuild_initramfs
from hbatune.facts.model import Machine
from hbatune.facts.targets import adapters_of
from hbatune.operations.context import Context
from hbatune.operations.notes import (
    FileEdited,
    InitramfsStale,
    OptionsNotRemoved,
    OptionsRemoved,
    OptionsWritten,
    Task,
    TaskFailed,
)
from hbatune.operations.situation import Situation
from hbatune.plan.module_options import Planned, option_lines, plan_options, roots_modules, written
from hbatune.plan.rows import Outcome, Row
from hbatune.render import render

_FOLDER, _TEMPLATE = "templates", "modprobe.conf.j2"


def option_rows(situation: Situation, names: Collection[str]) -> tuple[Row, ...]:
    """Return the rows of the module options; ``names`` are the targets that were asked for."""
    return _rows(_planned(situation, names))


def write_options(
    context: Context, situation: Situation, names: Collection[str]
) -> tuple[Row, ...]:
    """Write the options for the next load, and return their rows with their outcomes."""
    file = context.paths.modprobe
    planned = _planned(situation, names)
    wanted = option_lines(planned, situation.rendered)
    if wanted:
        text = render(_FOLDER, _TEMPLATE, profile=situation.profile.name, lines=wanted)
        errno = modprobe.write(file, text)
    else:
        errno = modprobe.remove(file)
    # Recorded, so that an edit by an administrator is noticed and an uninstallation finds it.
    install.record(install.ROOT, context.paths.manifest, file)
    # Read back, as every write is.
    rows = written(_rows(planned), modprobe.read(file), errno)
    changed = {row.target for row in rows if row.outcome is Outcome.WRITTEN}
    if changed:
        context.reporter.note(OptionsWritten(file))
        _note_initramfs(context, changed, situation.machine)
    return rows


def remove_options(context: Context, machine: Machine | None) -> bool:
    """Remove the options for the next load; return whether none are left. A failure is a note.

    Without a ``machine`` no note is made about the initramfs.
    """
    try:
        return _removed(context, machine)
    except (install.ManifestError, install.InstallError) as error:
        context.reporter.note(TaskFailed(Task.REMOVE_OPTIONS, error))
        return False


def _removed(context: Context, machine: Machine | None) -> bool:
    file, manifest = context.paths.modprobe, context.paths.manifest
    # Edited by an administrator: no longer hbatune's to remove.
    if install.changed(install.ROOT, manifest, file):
        context.reporter.note(FileEdited(file))
        return False
    modules = {module for module, _ in modprobe.read(file)}
    there = os.path.exists(file)
    errno = modprobe.remove(file)
    if errno is not None:
        context.reporter.note(OptionsNotRemoved(file, errno))
        return False
    install.record(install.ROOT, manifest, file)
    if there:
        context.reporter.note(OptionsRemoved(file))
        if machine is not None:
            _note_initramfs(context, modules, machine)
    return True


def _planned(situation: Situation, names: Collection[str]) -> tuple[Planned, ...]:
    return plan_options(
        situation.machine,
        situation.profile,
        situation.rendered,
        only=None if situation.ids is None else _adapters(situation, situation.ids),
        named=names,
        excluded=situation.site.exclude,
    )


def _rows(planned: Iterable[Planned]) -> tuple[Row, ...]:
    return tuple(each.row for each in planned if each.asked)


def _adapters(situation: Situation, ids: Collection[str]) -> frozenset[str]:
    """Return the adapters that were asked for, and those of all targets that were."""
    return frozenset(each.target for each in adapters_of(situation.machine, ids))


def _note_initramfs(context: Context, modules: Iterable[str], machine: Machine) -> None:
    """Note that the initramfs must be rebuilt, where it loads one of these modules."""
    command = rebuild_initramfs()
    changed = set(modules)
    if roots := changed & roots_modules(machine):
        context.reporter.note(InitramfsStale(tuple(sorted(roots)), command, of_root=True))
    elif changed:
        context.reporter.note(InitramfsStale(tuple(sorted(changed)), command))
