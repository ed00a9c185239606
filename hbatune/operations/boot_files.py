"""Keep the files for the next boot up to date: udev rules, module options, placed interrupts.

The udev rules follow the active profile for future disks. The module options take effect at the
next load. The list for irqbalance contains the interrupts that hbatune has placed. An interrupt is
placed if a row specifies its CPUs and it has them. Exceptions are interrupts that are excluded,
rolled back or skipped, whose write failed, that are restored to their baseline, or that the kernel
or the driver places (state ``fixed``).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hbatune.act import files, interrupts, lock, system
from hbatune.act.paths import Paths
from hbatune.boot import placement
from hbatune.errors import HbatuneError, suggest_remedy
from hbatune.facts import devices
from hbatune.facts.adapters import find_initramfs_command
from hbatune.facts.model import Machine, Role
from hbatune.facts.targets import find_adapters
from hbatune.operations.context import Context, Event, FollowsElsewhere, InitramfsStale, Task
from hbatune.operations.situation import ScanMeans, Situation, SituationRequest, read_situation
from hbatune.plan import module_options
from hbatune.plan.rows import BASELINE_RULE, DONE_OUTCOMES, Outcome, Plan, Restored, Row, State
from hbatune.policy.config import Config
from hbatune.policy.library import installed_library, read_rules
from hbatune.policy.match import expand_site_for_udev
from hbatune.policy.toml_files import PolicyError
from hbatune.render import UnsafeNameError, render_template
from hbatune.settings.table import FIRMWARE_COALESCING

if TYPE_CHECKING:
    from hbatune.boot.compile import CompiledRules


def compile_plan(situation: Situation, plan: Plan) -> CompiledRules:
    """Compile the udev rules for a situation with this plan."""
    from hbatune.boot.compile import compile_rules  # only needed if hbatune is installed

    return compile_rules(
        situation.profile,
        # udev cannot follow the links in [site], so it gets the disks that they lead to now.
        expand_site_for_udev(situation.machine, situation.config.site, devices.resolve_name),
        excluded=situation.rollbacks.ids,
        reverted=situation.journal.reverted,
        # The maximum is enough for twice as many disks.
        room=2 * plan.memory.total <= plan.memory.allowed,
    )


def make_pieces(rules: CompiledRules, paths: Paths) -> list[placement.Piece]:
    """Return the files to place for these rules. HbatuneError for an unsafe name."""
    from hbatune.boot.compile import format_rules, format_writer

    try:
        # The program first: the rules start it.
        writer = placement.Piece(paths.udev_writer, format_writer())
        return [writer, placement.Piece(paths.udev_rules, format_rules(rules))]
    except UnsafeNameError as error:
        raise HbatuneError(f"{error.name!r} is not allowed in a udev rule") from error


def check_pieces(pieces: Iterable[placement.Piece]) -> None:
    """Let systemd and udev check the files before they are placed. HbatuneError if one is wrong."""
    # Under their own names in a separate directory, since the tools use a file's suffix too.
    import tempfile  # here, to save memory in the daemon

    with tempfile.TemporaryDirectory(prefix="hbatune-") as folder:
        for piece in pieces:
            if piece.path.suffix == ".sh":  # is the same everywhere
                continue
            file = Path(folder) / piece.path.name
            file.write_text(piece.text)
            is_rules = file.suffix == ".rules"
            ran = system.check_rules(file) if is_rules else system.check_unit(file)
            if ran is not None and ran.code:
                message = ran.said.replace(f"{folder}/", "")
                raise HbatuneError(f"`{ran.command[0]}` rejects {piece.path.name}: {message}")


def has_rules(context: Context) -> bool:
    """Return whether hbatune, with its rules, is installed."""
    return placement.load_installed(placement.ROOT, context.paths.manifest) is not None


def refresh_rules(context: Context, rules: CompiledRules) -> bool:
    """Place the rules; return whether udev has them now. A failure is a note: the old ones stay."""
    pieces = make_pieces(rules, context.paths)
    try:
        check_pieces(pieces)
        changed = placement.place_pieces(placement.ROOT, context.paths.manifest, pieces)
    except HbatuneError as error:
        context.note_failure(Task.PLACE_RULES, error)
        return False
    return not changed or context.check_program(system.reload_rules(), reloading=True)


def refresh_active_rules(context: Context, config: Config, stuck: Iterable[lock.Claim]) -> bool:
    """Compile the active profile's rules again, if there is one and hbatune is installed."""
    if config.profile is None or not has_rules(context):
        return True
    means = ScanMeans(context.paths, tuple(stuck))
    try:
        situation = read_situation(SituationRequest(config=config, means=means))
    except PolicyError as error:
        context.note_failure(Task.PLACE_RULES, error)
        return False
    return refresh_rules(context, compile_plan(situation, situation.plan()))


def store_shipped_rules(context: Context, root: Path = placement.ROOT) -> bool:
    """Copy the shipped rules, to use them until the next apply; return whether that succeeded."""
    library = installed_library()
    library = replace(library, stored=placement.join_root(root, library.stored))
    if library.stored.exists() and library.is_last_applied():
        return True
    write = partial(files.replace_folder, library.stored, read_rules(library.shipped))
    return context.attempt(Task.STORE_RULES, write)


def withdraw_rules(context: Context) -> bool:
    """Remove the rules, so udev tunes no further disk; return whether they are removed."""
    rules = context.paths.udev_rules
    try:
        removal = placement.remove_files(placement.ROOT, context.paths.manifest, only={rules})
    except (placement.ManifestError, placement.InstallError) as error:
        context.note_failure(Task.REMOVE_RULES, error)
        return False
    # Edited since it was placed: an administrator's changes are reported, not removed.
    if removal.left:
        context.note_event(Event.RULES_KEPT, removal.left[0])
        return False
    return not removal.gone or context.check_program(system.reload_rules(), reloading=True)


class IrqbalanceError(HbatuneError):
    """A list of interrupts cannot be written, such as the list for irqbalance."""

    def __init__(self, problem: str, error: OSError) -> None:
        super().__init__(f"{problem}: {error.strerror}", hint=suggest_remedy(error, error.filename))
        self.__cause__ = error


def reserve_interrupts(
    context: Context, machine: Machine, rows: Iterable[Row], ids: Collection[str] | None = None
) -> None:
    """Exclude from irqbalance the interrupts that these rows have placed or will place.

    It runs before the writes, so irqbalance does not move an interrupt that has just been placed.
    The rows apply to the vectors with these ``ids``, or to all. Entries of other vectors do not
    change. A list that cannot be written, or that the running irqbalance does not read, is a note.
    """
    untried = (State.OK, State.DRIFT)
    # A command warns each time that irqbalance does not follow; the daemon only after changes.
    _update_list(context, machine, rows, ids, untried, always=context.warns)


def keep_placed_interrupts(
    context: Context, machine: Machine, rows: Iterable[Row], ids: Collection[str] | None = None
) -> bool:
    """Exclude from irqbalance the interrupts that these rows have placed by their writes.

    Interrupts that were reserved for a failed write are released. ``ids`` are as for
    ``reserve_interrupts``. Returns whether the list could be written.
    """
    return _update_list(context, machine, rows, ids, (State.OK,))


def release_interrupts(context: Context, machine: Machine, ids: Collection[str] | None) -> bool:
    """Release vectors by id, or all, to irqbalance; return whether the list could be written."""
    return _update_list(context, machine, (), ids, (), always=True)


def remember_pages(context: Context, rows: Iterable[Row | Restored]) -> None:
    """Remember the coalescing that a run has left in the firmware of adapters."""
    if written := [row for row in rows if row.setting == FIRMWARE_COALESCING and row.outcome]:
        from hbatune.act.firmware import note_rows  # few sites open a firmware

        note_rows(context.paths.pages, written)


def remember_immovable(context: Context, plan: Plan, rows: Iterable[Row]) -> bool:
    """Record the interrupts that proved to be immovable; return whether that succeeded."""
    try:
        interrupts.remember_immovable(context.paths.locked, plan, rows)
    except OSError as cause:
        error = IrqbalanceError(
            "interrupts that cannot be moved are not recorded, and will show as drift again", cause
        )
        context.note_failure(Task.TELL_IRQBALANCE, error)
        return False
    return True


def _update_list(
    context: Context,
    machine: Machine,
    rows: Iterable[Row],
    ids: Collection[str] | None,
    untried: Collection[State],
    *,
    always: bool = False,
) -> bool:
    """Write the interrupts placed by these rows to irqbalance's list, if changed or ``always``.

    A row without an outcome counts if its state is in ``untried``. Each change makes irqbalance
    classify every interrupt again. Returns whether the list could be written; a failure is a note.
    """
    wanted = {row.id for row in rows if row.setting == "irq_affinity" and _is_placed(row, untried)}
    try:
        before = interrupts.read_placed(context.paths)
        placed = set()
        for vector in machine.vectors:
            is_listed = vector.irq in before
            if ids is None or vector.id in ids:
                is_listed = vector.id in wanted
            # hbatune never places admin vectors and shared lines.
            if is_listed and vector.role is Role.DATA:
                placed.add(vector.irq)
        if not always and placed == before:
            return True
        irqbalance = interrupts.ban_interrupts(frozenset(placed), context.paths)
    except OSError as cause:
        error = IrqbalanceError("cannot set irqbalance's list of interrupts to skip", cause)
        context.note_failure(Task.TELL_IRQBALANCE, error)
        return False
    if irqbalance is not None:
        context.note(FollowsElsewhere(irqbalance, context.paths.irq_policy))
    return True


def _is_placed(row: Row, untried: Collection[State]) -> bool:
    # An interrupt that is restored to its baseline is irqbalance's again.
    if row.rule == BASELINE_RULE:
        return False
    if row.outcome is not None:
        return row.outcome in DONE_OUTCOMES
    return row.state in untried


def list_option_rows(situation: Situation, names: Collection[str]) -> tuple[Row, ...]:
    """Return the rows of the module options; ``names`` are the requested targets."""
    return tuple(option.row for option in _plan_options(situation, names) if option.asked)


def write_options(
    context: Context, situation: Situation, names: Collection[str]
) -> tuple[Row, ...]:
    """Write the options for the next load, and return their rows with their outcomes."""
    file = context.paths.modprobe
    planned = _plan_options(situation, names)
    text = None
    if lines := module_options.make_option_lines(planned, situation.rendered):
        profile = situation.profile.name
        text = render_template("templates", "modprobe.conf.j2", profile=profile, lines=lines)
    errno = system.write_module_options(file, text)
    # Recorded, so a later edit by an administrator is detected and an uninstallation finds it.
    placement.record_file(placement.ROOT, context.paths.manifest, file)
    rows = tuple(option.row for option in planned if option.asked)
    # Read back, like every write.
    rows = module_options.set_outcomes(rows, system.read_module_options(file), errno)
    changed = {row.target for row in rows if row.outcome is Outcome.WRITTEN}
    if changed:
        context.note_event(Event.OPTIONS_WRITTEN, file)
        _note_initramfs(context, changed, situation.machine)
    return rows


def remove_options(context: Context, machine: Machine | None) -> bool:
    """Remove the options for the next load; return whether that succeeded. A failure is a note.

    Without a ``machine``, there is no note about the initramfs.
    """
    file, manifest = context.paths.modprobe, context.paths.manifest
    try:
        # Edited by an administrator: hbatune must not remove it.
        if placement.is_changed(placement.ROOT, manifest, file):
            context.note_event(Event.FILE_KEPT, file)
            return False
        modules = {module for module, _ in system.read_module_options(file)}
        exists = os.path.exists(file)
        errno = system.write_module_options(file, None)
        if errno is not None:
            context.note_event(Event.OPTIONS_NOT_REMOVED, file, errno)
            return False
        placement.record_file(placement.ROOT, manifest, file)
    except (placement.ManifestError, placement.InstallError) as error:
        context.note_failure(Task.REMOVE_OPTIONS, error)
        return False
    if exists:
        context.note_event(Event.OPTIONS_REMOVED, file)
        if machine is not None:
            _note_initramfs(context, modules, machine)
    return True


def _plan_options(
    situation: Situation, names: Collection[str]
) -> tuple[module_options.PlannedOption, ...]:
    machine, ids = situation.machine, situation.chosen.ids
    adapters = None
    if ids is not None:  # also the adapters of all requested targets
        adapters = frozenset(adapter.target for adapter in find_adapters(machine, ids))
    return module_options.plan_options(
        machine,
        situation.profile,
        situation.rendered,
        only=adapters,
        named=names,
        excluded=situation.site.exclude,
    )


def _note_initramfs(context: Context, modules: set[str], machine: Machine) -> None:
    """Note that the initramfs must be rebuilt, if it loads one of these modules."""
    if modules:
        command = find_initramfs_command()
        roots = modules & module_options.find_root_modules(machine)
        context.note(InitramfsStale(tuple(sorted(roots or modules)), command, of_root=bool(roots)))
