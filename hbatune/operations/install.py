"""Install hbatune's udev rules and units, here or in an image, and remove them.

`install` also starts the daemon. It first checks that only root can change the files that a root
unit starts or writes to. `uninstall` first restores the values, then removes files, then state.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from hbatune import loader
from hbatune.act import files, journal, rollback_record, system, writer
from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.boot import placement
from hbatune.boot.compile import CompiledRules, compile_rules
from hbatune.boot.placement import Piece, join_root
from hbatune.errors import HbatuneError, LockRole, UsageError
from hbatune.facts import assembly, devices
from hbatune.facts.udev import find_marked_disks
from hbatune.operations import boot_files, rollback
from hbatune.operations.context import Context, Event, Task
from hbatune.operations.situation import SituationRequest, read_situation, unlocked_means
from hbatune.plan.joint_limits import require_affordable
from hbatune.plan.rows import State
from hbatune.policy import toml_files, vendors
from hbatune.policy.config import Config, find_configuration_file, load_config, load_configuration
from hbatune.policy.library import Library, installed_library, load_profile
from hbatune.policy.profile import Profile
from hbatune.policy.toml_files import ROOT, PolicyError
from hbatune.render import UnsafeNameError, render_template

_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
_NESTED = 5
"""Nested scripts, whose interpreter is again a script (fs/exec.c: exec_binprm allows five)."""
_HEAD = 4096
"""Bytes at the start of a script that are searched for its interpreter."""
_SEARCHED = tuple(map(Path, ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")))
"""The directories in which systemd searches programs (systemd.exec(5): $PATH)."""
_LONG = "'''exec'"
"""The start of the second line in pip's scripts if the interpreter's path is long or has blanks."""


class PreparedFiles(Struct, frozen=True):
    """The files to place, and their profile."""

    profile: Profile
    rules: CompiledRules
    pieces: tuple[Piece, ...]


class InstallResult(Struct, frozen=True):
    """The result of an installation: the ``changed`` paths, and whether everything works."""

    prepared: PreparedFiles
    changed: Sequence[Path]
    complete: bool


def install_profile(
    context: Context, root: Path, profile: str | None, *, module_options: bool = False
) -> InstallResult:
    """Place the files below the root; on the running system, start the daemon as well.

    A named ``profile`` becomes the active one, and lifts a rollback of everything.
    ``module_options`` are written for the adapters of this system. Raises as ``prepare_files``
    does, LockedError, and InstallError if a file cannot be placed.
    """
    live = root == ROOT
    began = rollback_record.load(context.paths)
    # An installation would set values again that an administrator has rolled back.
    if live and began.everything and not profile:
        hint = "name the profile to tune again: `hbatune install --profile P`"
        raise UsageError("everything was rolled back here", hint=hint)
    prepared = prepare_files(context, root, profile)
    manifest = context.paths.manifest
    with context.lock() if live else nullcontext():
        if live and rollback_record.has_later(began, context.paths):
            problem = "a rollback was recorded after this installation began; nothing was installed"
            raise HbatuneError(problem, hint="to tune again, run the same command again")
        # The files before the profile: if one cannot be placed, no profile becomes active.
        changed = placement.place_pieces(root, manifest, prepared.pieces)
        old_unit = context.paths.units / system.OLD_LATENCY
        if live and old_unit.exists():
            context.check_program(system.disable(old_unit.name))
        placement.remove_files(root, manifest, only=[old_unit])
        if profile:
            configuration = join_root(root, find_configuration_file())
            system.activate_profile(configuration, prepared.profile.name, root=root)
            if live:
                rollback_record.lift(began, None, context.paths)
        placement.record_file(root, manifest, context.paths.modprobe)
        # Without a named profile, the rules of the last apply stay.
        complete = (live and not profile) or boot_files.store_shipped_rules(context, root)
        if module_options:  # written if all have the profile's values
            request = SituationRequest(profile=profile, means=unlocked_means(context.paths))
            rows = boot_files.write_options(context, read_situation(request), ())
            complete = all(row.state is not State.DRIFT for row in rows) and complete
    if not live:
        return InstallResult(prepared, changed, complete)
    restarted = context.paths.units / system.UNIT in changed
    reloaded, enabled = system.reload_rules(), system.enable(restart=restarted)
    for ran in (reloaded, enabled):
        complete = context.check_program(ran) and complete
    if enabled is None:
        context.note_event(Event.UNIT_NOT_STARTED, system.UNIT)
        complete = False
    if restarted:
        context.nudge()  # a daemon that was not restarted was reloaded, which has the same effect
    return InstallResult(prepared, changed, complete)


def prepare_files(context: Context, root: Path, profile: str | None) -> PreparedFiles:
    """Return the files to place below the root, after systemd and udev have checked them.

    In an image, the profile and the configuration are the image's. Raises UsageError if the policy
    is invalid, does not fit this machine, or depends on files that other users can change. Raises
    HbatuneError if systemd or udev would not accept a file.
    """
    paths = context.paths
    if root == ROOT:
        # Check the memory for the requests of current disks before any rule sets them.
        situation = read_situation(SituationRequest(profile=profile, means=unlocked_means(paths)))
        if unknown := situation.unmatched:  # the intended device would be tuned
            names = ", ".join(f"{entry.key}: {entry.name!r}" for entry in unknown)
            problem = f"[site] names unknown devices ({names}); nothing was installed"
            hint = f"correct the name in {find_configuration_file()}; `hbatune list` shows them all"
            raise UsageError(problem, hint=hint)
        plan = situation.plan()
        require_affordable(plan)
        writer.require_writable(situation.machine, {row.id for row in plan.drift})
        config, chosen = situation.config, situation.profile
        rules = boot_files.compile_plan(situation, plan)
    else:
        library = installed_library()
        image = Library(library.shipped, join_root(root, library.site), library.owner, top=root)
        config = load_config(image)
        if (name := profile or config.profile) is None:
            chosen = vendors.load_chosen_profile(None, config)  # raises UsageError
        else:
            chosen = load_profile(name, image, vendors.load_followed_rules(image, config.site))
        rules = compile_rules(chosen, config.site)
    executable = _find_executable(root)
    rules_pieces = boot_files.make_pieces(rules, paths)
    textfile = config.metrics.textfile
    pieces = [_render_unit(paths.units / system.UNIT, executable, config), *rules_pieces]
    require_trusted_command(executable, root)
    if textfile is not None:
        # The directory itself may belong to another user.
        _require_trusted([Path(textfile)], root, end=False)
        for unit in (system.AUDIT, system.AUDIT_TIMER):
            pieces.append(_render_unit(paths.units / unit, executable, config))
    if root != ROOT:
        # Nothing runs in an image: the link that `systemctl enable` would make is placed there.
        wanted = paths.units / "multi-user.target.wants" / system.UNIT
        pieces.append(Piece(wanted, str(paths.units / system.UNIT), link=True))
    # This machine's tools check a unit only if its program exists.
    is_here = os.access(executable, os.X_OK)
    boot_files.check_pieces(
        piece for piece in pieces if not piece.link and (is_here or piece.path.suffix != ".service")
    )
    return PreparedFiles(chosen, rules, tuple(pieces))


def _render_unit(path: Path, executable: Path, config: Config) -> Piece:
    try:
        text = render_template(
            "systemd",
            f"{path.name}.j2",
            executable=executable,
            at_home=any(map(executable.is_relative_to, _HOMES)),
            textfile=config.metrics.textfile,
            # The daemon reads no firmware, but restores it when it stops (rollback_on_stop).
            firmware=any(entry.firmware == "set" for entry in config.site.adapter.values()),
        )
    except UnsafeNameError as error:
        hint = "choose a path with only the characters a-z, A-Z, 0-9 and . _ + -"
        raise UsageError(f"no unit can name {error.name!r}", hint=hint) from error
    return Piece(path, text)


def _find_executable(root: Path) -> Path:
    """Return the path of hbatune, as seen in the image; UsageError if it is not installed."""
    candidates = [Path(sys.argv[0]), Path(sys.executable).with_name("hbatune")]
    candidates += [Path(program)] if (program := shutil.which("hbatune")) else []
    candidates += [Path("/usr/local/bin/hbatune"), Path("/usr/bin/hbatune")]
    # Links are not resolved: one may lead to a newer version later.
    for path in map(Path, map(os.path.abspath, candidates)):
        if path.name == "hbatune" and os.access(toml_files.resolve_links(path, root).end, os.X_OK):
            return path
    problem = f"there is no hbatune in {root} that a unit could start"
    raise UsageError(problem, hint="install hbatune there first, as with `pip install --root`")


def require_trusted_command(command: Path, root: Path = ROOT) -> None:
    """Raise UsageError unless only root can change the command and its interpreters.

    Paths are below ``root``. For this system, the Python package of hbatune is checked as well.
    """
    _require_trusted(_list_commands(command, root, _NESTED), root)
    if root == ROOT:
        _require_trusted([Path(__file__).parents[1]], root)


def _require_trusted(paths: Iterable[Path], root: Path, *, end: bool = True) -> None:
    # An image may be built without root: its builder's files will be root's there.
    owner = 0 if root == ROOT else os.geteuid()
    for path in paths:
        try:
            fault = toml_files.find_fault_on_path(path, owner, root=root, top=root, end=end)
        except OSError as error:
            raise UsageError(f"{path} cannot be followed: {error.strerror}") from error
        if fault is not None:
            way = "" if fault.path == path else f" (on the way to {path})"
            mended = ""
            if fault.remedy:
                mended = f"{fault.remedy} {fault.path}, after checking its contents, or "
            raise UsageError(
                f"{fault.path}{way} must be writable only by root: {fault.problem}",
                hint=f"a unit that runs as root would depend on it: {mended}choose a path that "
                "only root can write",
            )


def _list_commands(command: Path, root: Path, nested: int) -> Iterator[Path]:
    yield command
    if nested:
        for interpreter in _find_interpreters(toml_files.resolve_links(command, root).end, root):
            yield from _list_commands(interpreter, root, nested - 1)


def _find_interpreters(script: Path, root: Path) -> Iterator[Path]:
    """Yield the interpreters in the first lines of a script; nothing for other files."""
    try:
        with loader.open_file(script) as descriptor:
            lines = loader.read_beginning(descriptor, _HEAD).decode(errors="replace").split("\n")
    # Missing, unreadable or not a file: its path is checked anyway.
    except (OSError, loader.UnusableFileError):
        return
    if not lines[0].startswith("#!"):
        return
    arguments = lines[0].removeprefix("#!").split()
    if arguments and arguments[0].startswith("/"):
        yield Path(arguments[0])
        if Path(arguments[0]).name == "env":
            yield from _find_programs(arguments[1:], root)
    if len(lines) > 1 and lines[1].startswith(_LONG):
        with suppress(ValueError):  # quotes that do not end
            yield Path(shlex.split(lines[1].removeprefix(_LONG))[0])


def _find_programs(arguments: Iterable[str], root: Path) -> Iterator[Path]:
    """Yield the programs that env(1) may start, named by its first word except options and VAR=."""
    for name in arguments:
        if name.startswith("-") or "=" in name:
            continue
        for folder in (ROOT,) if name.startswith("/") else _SEARCHED:
            if os.access(toml_files.resolve_links(folder / name, root).end, os.X_OK):
                yield folder / name
        return


def remove_installation(context: Context, root: Path, *, keep_values: bool = False) -> bool:
    """Remove everything below the root; return whether nothing remains and no command hangs.

    On the running system the values are restored first, except with ``keep_values`` or in an image
    without /sys and changed values. If they cannot be restored, the state that records them stays.
    One lock is held from the restore to the removal of the last file, the lock file. Raises
    UsageError if the values would not be kept. Raises LockedError: a rollback of everything is
    recorded then, unless ``keep_values``.
    """
    paths = context.paths
    if root != ROOT:
        return _remove_files(context, root)
    if keep_values:
        with suppress(PolicyError):  # an error in the file must not prevent an uninstallation
            if load_configuration().daemon.rollback_on_stop:  # when the daemon stops
                raise UsageError(
                    "the values would not be kept: rollback_on_stop is set, and the daemon is "
                    "stopped",
                    hint=f"set it to false in {find_configuration_file()}, or leave out "
                    "--keep-values",
                )
    finished = True
    placed = placement.load_installed(root, paths.manifest)
    sums = placed.collect_sums() if placed else {}
    if str(paths.units / system.UNIT) in sums:
        # Before the lock, which a pass of the daemon takes.
        units = [system.UNIT]
        for unit in (system.AUDIT_TIMER, system.OLD_LATENCY):
            # An upgrade of the package has removed the old unit, which systemctl would refuse.
            if str(paths.units / unit) in sums and (paths.units / unit).exists():
                units.append(unit)
        finished = _report_failure(context, system.disable(*units))
    if keep_values or _is_untouched(paths):
        with _make_daemon_lock(paths), context.lock() as lock:
            finished = boot_files.remove_options(context, None) and finished
            return _remove_files(context, root, lock) and finished
    config = rollback.read_configuration(context)
    recorded = rollback.record_rollback(context, config)
    with (
        rollback.hold_lock("uninstall", _make_daemon_lock(paths), recorded=recorded),
        rollback.hold_lock("uninstall", context.lock(), recorded=recorded) as lock,
    ):
        # Without the journal, values that are not restored yet could never be restored.
        done = rollback.restore_targets(context, config, recorded=recorded)
        context.note(done)
        # A loss is reported once: the next uninstallation finds no loss and continues.
        remains = bool(done.losses) or not done.read or paths.journal.exists()
        if not done.complete and remains:
            context.note_event(Event.VALUES_UNRESTORED)
            return False
        return _remove_files(context, root, lock) and finished


def _make_daemon_lock(paths: Paths) -> Lock:
    """Return the lock of the daemon, which an administrator may have started without systemd.

    Such a daemon would set values again, and their original values would be lost.
    """
    return Lock(paths.daemon_lock, LockRole.LAST_DAEMON, spare=paths.daemon_lock_spare)


def _remove_files(context: Context, root: Path, lock: Lock | None = None) -> bool:
    """Remove files and state below the root; return whether nothing remains and no command hangs.

    On the running system the caller holds the ``lock``.
    """
    paths = context.paths
    result = placement.remove_files(root, paths.manifest)
    for path in result.gone:
        context.note_event(Event.FILE_REMOVED, join_root(root, path))
    finished = True
    if lock is not None:
        finished = _report_failure(context, system.reload_units())
        finished = _report_failure(context, system.reload_rules()) and finished
        # After the removal of the rules: udev's database then drops the saved values.
        finished = _report_failure(context, system.announce(find_marked_disks())) and finished
    for path in result.left:
        context.note_event(Event.FILE_KEPT, join_root(root, path))
    configuration = join_root(root, find_configuration_file())
    forget = partial(system.forget_profile, configuration, root=root)
    if not context.attempt(Task.FORGET_PROFILE, forget) or result.left:
        return False
    # The state last: as long as any step before fails, an uninstallation can be repeated.
    files.remove_folder(join_root(root, paths.state))
    if lock is not None:
        files.empty_folder(paths.run, keep=paths.lock.name)
        lock.remove()
    placement.remove_empty_folders(root, result.folders)
    return finished


def preview_removal(context: Context, root: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Return the files below the root to remove, edited ones to keep, and directories to remove."""
    manifest = context.paths.manifest
    installation = placement.load_installed(root, manifest)
    removed, edited = list[Path](), list[Path]()
    for entry in installation.placed if installation else ():
        path = Path(entry.path)
        files = edited if placement.is_changed(root, manifest, path) else removed
        files.append(join_root(root, path))
    folders = [join_root(root, context.paths.state)]
    if root == ROOT:  # an image has no directory in /run
        folders.append(context.paths.run)
    return removed, edited, [folder for folder in folders if folder.exists()]


def _is_untouched(paths: Paths) -> bool:
    """Return whether /sys is missing and no trace shows a changed setting in this boot.

    A journal of this boot is such a trace, and so is a journal of an unknown boot (/proc is missing
    too). Each run that writes leaves a claims file in /run. udev may also have written the values
    of the installed rules.
    """
    if devices.has_sysfs() or paths.claims.exists():
        return False
    if paths.udev_rules.exists() and Path("/run/udev/control").exists():
        return False
    if not paths.journal.exists():
        return True
    try:
        recorded, _ = journal.load(paths.journal, assembly.read_boot_id())
    except (OSError, journal.JournalError):
        return False
    return not (recorded.entries or recorded.losses or recorded.run)


def _report_failure(context: Context, ran: system.ToolResult | None) -> bool:
    """Report a command that failed; return False if it did not end by its deadline."""
    context.check_program(ran)
    return ran is None or ran.finished
