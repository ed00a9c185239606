"""Keeps what the next boot finds as the profile wants it: compiled udev rules and module options.

The udev rules follow the active profile. Module options take effect with the next load of a module:
they are planned, written to a file, and removed.
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from hbatune.act import modprobe, system
from hbatune.act.claims import Claim
from hbatune.act.journal import Journal
from hbatune.act.system import Ran
from hbatune.boot import install
from hbatune.boot.compile import Compiled, compiled, text
from hbatune.boot.install import ForeignError, Piece
from hbatune.errors import HbatuneError
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
    RulesNotLoaded,
    Task,
    TaskFailed,
)
from hbatune.operations.situation import Situation, look
from hbatune.plan.module_options import Planned, option_lines, plan_options, roots_modules, written
from hbatune.plan.rows import Outcome, Row
from hbatune.policy.chosen import chosen_profile
from hbatune.policy.config import Config, Site
from hbatune.policy.model import Profile
from hbatune.render import UnsafeNameError, render

_FOLDER, _TEMPLATE = "templates", "modprobe.conf.j2"


class RejectedError(HbatuneError):
    """systemd or udev rejects a generated file, which was therefore not placed."""


def compiled_for(
    profile: Profile,
    site: Site,
    filed: Journal,
    *,
    rolled_back: Collection[str] = (),
    room: bool = True,
) -> Compiled:
    """Compile the profile without targets rolled back by name and without reverted values.

    ``room`` is whether there is memory for the requests of disks to come.
    """
    return compiled(profile, site, excluded=rolled_back, reverted=filed.reverted, room=room)


def rules_piece(rules: Compiled, path: Path) -> Piece:
    """Return the rules as a file to place at ``path``; RejectedError for an unsafe name."""
    try:
        return Piece(path, text(rules))
    except UnsafeNameError as error:
        raise RejectedError(f"{error.name!r} cannot stand in a udev rule") from error


def check(pieces: Iterable[Piece]) -> None:
    """Have systemd and udev check the files before they are placed; RejectedError."""
    # Under their own names in a folder of their own: the tools judge a file by its suffix too.
    import tempfile  # not for a daemon that starts, whose memory counts

    with tempfile.TemporaryDirectory(prefix="hbatune-") as folder:
        for piece in pieces:
            file = Path(folder) / piece.path.name
            file.write_text(piece.text)
            ran = _judge(file)
            if ran is not None and ran.code:
                said = ran.said.replace(f"{folder}/", "")
                raise RejectedError(f"`{ran.command[0]}` rejects {piece.path.name}: {said}")


def is_installed(context: Context) -> bool:
    """Whether hbatune is installed, and so has rules of its own."""
    return install.installed(install.ROOT, context.paths.manifest) is not None


def refresh(
    context: Context,
    profile: Profile,
    site: Site,
    filed: Journal,
    *,
    rolled_back: Collection[str] = (),
    room: bool = True,
) -> bool:
    """Compile the rules again where hbatune is installed; return whether udev has them now.

    The arguments are those of ``compiled_for``. Rules that cannot be placed stay as they are, which
    is a note.
    """
    if not is_installed(context):
        return True
    rules = compiled_for(profile, site, filed, rolled_back=rolled_back, room=room)
    piece = rules_piece(rules, context.paths.udev_rules)
    try:
        check([piece])
        changed = install.place(install.ROOT, context.paths.manifest, [piece])
    except (ForeignError, RejectedError, install.InstallError) as error:
        context.reporter.note(TaskFailed(Task.PLACE_RULES, error))
        return False
    return not changed or _reloaded(context)


def refresh_active(
    context: Context, config: Config, filed: Journal, stuck: Iterable[Claim]
) -> bool:
    """Compile the active profile's rules again, where there is one and hbatune is installed."""
    if config.profile is None:
        return True
    if not is_installed(context):
        return True
    here = look(config, chosen_profile(None, config), stuck=stuck, paths=context.paths)
    out, room = here.hands_off.ids, here.plan().memory.roomy
    return refresh(context, here.profile, here.boot_site, filed, rolled_back=out, room=room)


def withdraw(context: Context) -> bool:
    """Remove the rules, so that no further disk is tuned; return whether they are gone."""
    rules = context.paths.udev_rules
    try:
        taken = install.take_away(install.ROOT, context.paths.manifest, only={rules})
    except install.InstallError as error:
        context.reporter.note(TaskFailed(Task.REMOVE_RULES, error))
        return False
    # Edited since it was placed: an administrator's work is reported, not removed.
    if taken.left:
        context.reporter.note(FileEdited(taken.left[0], tunes=True))
        return False
    return not taken.gone or _reloaded(context)


def _judge(file: Path) -> Ran | None:
    return system.check_rules(file) if file.suffix == ".rules" else system.check_unit(file)


def _reloaded(context: Context) -> bool:
    # udev keeps the rules that it has read in memory.
    ran = system.reload_rules()
    if ran is not None and ran.code:
        context.reporter.note(RulesNotLoaded(ran))
        return False
    return True


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
    """Remove the options for the next load; return whether none are left.

    Without a ``machine`` no note is made about the initramfs.
    """
    file, manifest = context.paths.modprobe, context.paths.manifest
    # Edited by an administrator: no longer hbatune's to remove.
    if install.changed(install.ROOT, manifest, file):
        context.reporter.note(FileEdited(file))
        return False
    modules = {module for module, _ in modprobe.read(file)}
    there = file.exists()
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
