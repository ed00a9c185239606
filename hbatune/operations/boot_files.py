"""Keep the files for the next boot up to date: udev rules, module options, placed interrupts.

Keeps udev's rules for disks to come as the active profile wants them.

Keeps the list of interrupts that irqbalance leaves alone: those that hbatune has placed.

One rule for commands and daemon. An interrupt counts as placed where a row wants it somewhere and
it is there. Excluded or rolled-back interrupts do not count, nor do those that the kernel or the
driver places (state ``fixed``), those that go back to their baseline, those whose write failed, and
those that were left alone.

Plans the options of kernel modules, writes them for the next load, and removes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hbatune.act import interrupts, system
from hbatune.act.journal import Journal
from hbatune.act.lock import Claim
from hbatune.act.system import Ran
from hbatune.boot import placement
from hbatune.boot.placement import ForeignError, Piece
from hbatune.errors import HbatuneError, remedy
from hbatune.facts.adapters import rebuild_initramfs
from hbatune.facts.model import Machine, Role
from hbatune.facts.targets import adapters_of
from hbatune.operations.context import (
    Context,
    FileEdited,
    FollowsElsewhere,
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
from hbatune.plan.rows import BASELINE, DONE, Outcome, Plan, Row, State
from hbatune.policy.chosen import chosen_profile
from hbatune.policy.config import Config, Site
from hbatune.policy.profile import Profile
from hbatune.render import UnsafeNameError, render

if TYPE_CHECKING:
    from hbatune.boot.compile import CompiledRules


class RejectedError(HbatuneError):
    """systemd or udev rejects a generated file, which was therefore not placed."""


def compile_for(
    profile: Profile,
    site: Site,
    filed: Journal,
    *,
    rolled_back: Collection[str] = (),
    room: bool = True,
) -> CompiledRules:
    """Compile the profile without targets rolled back by name and without reverted values.

    ``room`` is whether there is memory for the requests of disks to come.
    """
    from hbatune.boot.compile import compiled  # not where hbatune is not installed

    return compiled(profile, site, excluded=rolled_back, reverted=filed.reverted, room=room)


def rules_piece(rules: CompiledRules, path: Path) -> Piece:
    """Return the rules as a file to place at ``path``; RejectedError for an unsafe name."""
    from hbatune.boot.compile import text

    try:
        return Piece(path, text(rules))
    except UnsafeNameError as error:
        raise RejectedError(f"{error.name!r} cannot stand in a udev rule") from error


def check_pieces(pieces: Iterable[Piece]) -> None:
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


def has_rules(context: Context) -> bool:
    """Whether hbatune is installed, and so has rules of its own."""
    return placement.installed(placement.ROOT, context.paths.manifest) is not None


def refresh_rules(
    context: Context,
    profile: Profile,
    site: Site,
    filed: Journal,
    *,
    rolled_back: Collection[str] = (),
    room: bool = True,
) -> bool:
    """Compile the rules again where hbatune is installed; return whether udev has them now.

    The arguments are those of ``compile_for``. Rules that cannot be placed stay as they are, which
    is a note.
    """
    if not has_rules(context):
        return True
    rules = compile_for(profile, site, filed, rolled_back=rolled_back, room=room)
    piece = rules_piece(rules, context.paths.udev_rules)
    try:
        check_pieces([piece])
        changed = placement.place(placement.ROOT, context.paths.manifest, [piece])
    except (ForeignError, RejectedError, placement.InstallError) as error:
        context.reporter.note(TaskFailed(Task.PLACE_RULES, error))
        return False
    return not changed or _reloaded(context)


def refresh_active_rules(
    context: Context, config: Config, filed: Journal, stuck: Iterable[Claim]
) -> bool:
    """Compile the active profile's rules again, where there is one and hbatune is installed."""
    if config.profile is None:
        return True
    if not has_rules(context):
        return True
    here = look(config, chosen_profile(None, config), stuck=stuck, paths=context.paths)
    out, room = here.rollbacks.ids, here.plan().memory.roomy
    return refresh_rules(context, here.profile, here.boot_site, filed, rolled_back=out, room=room)


def withdraw_rules(context: Context) -> bool:
    """Remove the rules, so that no further disk is tuned; return whether they are gone."""
    rules = context.paths.udev_rules
    try:
        taken = placement.take_away(placement.ROOT, context.paths.manifest, only={rules})
    except (placement.ManifestError, placement.InstallError) as error:
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


_SETTING = "irq_affinity"


class IrqbalanceError(HbatuneError):
    """A list of interrupts cannot be written, such as the one that irqbalance reads."""

    def __init__(
        self,
        error: OSError,
        problem: str = "irqbalance could not be told which interrupts to leave",
    ) -> None:
        super().__init__(f"{problem}: {error.strerror}", hint=remedy(error, error.filename))
        self.__cause__ = error


def reserve_interrupts(
    context: Context, machine: Machine, rows: Iterable[Row], ids: Collection[str] | None = None
) -> None:
    """Have irqbalance leave alone the interrupts that these rows have placed or are about to place.

    Before the writes, so that it does not move an interrupt that has just been placed. The rows
    decide for the vectors with these ``ids``, or for all; other vectors stay as they are on the
    list. A list that cannot be written, or that the running irqbalance does not read, is a note.
    """
    wanted = _placing(machine, rows, ids, (State.OK, State.DRIFT))
    # A command warns each time that irqbalance does not follow; the daemon only asks after changes.
    _tell(context, wanted, always=context.warns)


def keep_placed_interrupts(
    context: Context, machine: Machine, rows: Iterable[Row], ids: Collection[str] | None = None
) -> bool:
    """Have irqbalance leave alone the interrupts that these rows, after their writes, have placed.

    Interrupts that were reserved for a write that failed are released. ``ids`` as for
    ``reserve_interrupts``. Returns whether the list could be written.
    """
    return _tell(context, _placing(machine, rows, ids, (State.OK,)))


def release_interrupts(context: Context, machine: Machine, ids: Collection[str] | None) -> bool:
    """Release the vectors with these ids to irqbalance, or all of them.

    Returns whether the list could be written.
    """
    return _tell(context, _placing(machine, (), ids, ()), always=True)


def remember_immovable(context: Context, plan: Plan, rows: Iterable[Row]) -> bool:
    """Remember the interrupts that turned out to be immovable; return whether that succeeded."""
    try:
        interrupts.remember_immovable(context.paths.locked, plan, rows)
    except OSError as error:
        problem = "interrupts that cannot be moved are not recorded, and will show as drift again"
        context.reporter.note(TaskFailed(Task.TELL_IRQBALANCE, IrqbalanceError(error, problem)))
        return False
    return True


_Choice = Callable[[frozenset[int]], frozenset[int]]
"""Returns the interrupts to leave alone, given those on the list now."""


def _placing(
    machine: Machine,
    rows: Iterable[Row],
    ids: Collection[str] | None,
    untried: Collection[State],
) -> _Choice:
    """Return the choice that these rows make; those without an outcome count if ``untried``."""
    wanted = {row.id for row in rows if row.setting == _SETTING and _is_placed(row, untried)}

    def choose(placed: frozenset[int]) -> frozenset[int]:
        return frozenset(
            vector.irq
            for vector in machine.vectors
            # Admin vectors and shared lines are never hbatune's to place.
            if vector.role is Role.DATA
            and (vector.id in wanted if ids is None or vector.id in ids else vector.irq in placed)
        )

    return choose


def _is_placed(row: Row, untried: Collection[State]) -> bool:
    # Back at its baseline, an interrupt is irqbalance's again.
    if row.rule == BASELINE:
        return False
    if row.outcome is not None:
        return row.outcome in DONE
    return row.state in untried


def _tell(context: Context, choose: _Choice, *, always: bool = False) -> bool:
    """Have irqbalance leave the chosen interrupts alone, if they have changed or ``always``.

    Each change makes it classify every interrupt again. Returns whether the list could be written;
    a failure is a note.
    """
    try:
        before = interrupts.placed(context.paths)
        wanted = choose(before)
        other = interrupts.leave(wanted, context.paths) if always or wanted != before else None
    except OSError as error:
        context.reporter.note(TaskFailed(Task.TELL_IRQBALANCE, IrqbalanceError(error)))
        return False
    if other is not None:
        context.reporter.note(FollowsElsewhere(other, context.paths.irq_policy))
    return True


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
        errno = system.write_module_options(file, text)
    else:
        errno = system.remove_module_options(file)
    # Recorded, so that an edit by an administrator is noticed and an uninstallation finds it.
    placement.record(placement.ROOT, context.paths.manifest, file)
    # Read back, as every write is.
    rows = written(_rows(planned), system.read_module_options(file), errno)
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
    except (placement.ManifestError, placement.InstallError) as error:
        context.reporter.note(TaskFailed(Task.REMOVE_OPTIONS, error))
        return False


def _removed(context: Context, machine: Machine | None) -> bool:
    file, manifest = context.paths.modprobe, context.paths.manifest
    # Edited by an administrator: no longer hbatune's to remove.
    if placement.changed(placement.ROOT, manifest, file):
        context.reporter.note(FileEdited(file))
        return False
    modules = {module for module, _ in system.read_module_options(file)}
    there = os.path.exists(file)
    errno = system.remove_module_options(file)
    if errno is not None:
        context.reporter.note(OptionsNotRemoved(file, errno))
        return False
    placement.record(placement.ROOT, manifest, file)
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
