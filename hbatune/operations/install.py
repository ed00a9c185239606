"""Install hbatune's udev rules and units, here or in an image, and remove them.

Installs hbatune's udev rules and units, here or in an image, and starts the daemon.

Only root may be able to change what a root unit starts or writes to: that is checked first.

Removes hbatune from a machine or an image: values back first, then files, then state.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from msgspec import Struct

from hbatune import loader
from hbatune.act import files, journal, rollback_record, system
from hbatune.act.journal import Journal
from hbatune.act.lock import Lock
from hbatune.act.paths import Paths
from hbatune.act.writer import require_writable
from hbatune.boot import placement as placement
from hbatune.boot.compile import CompiledRules
from hbatune.boot.placement import Piece, below
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.assembly import boot_id
from hbatune.facts.devices import has_sysfs
from hbatune.facts.udev import marked_disks
from hbatune.loader import UnusableFileError
from hbatune.operations.boot_files import (
    check_pieces,
    compile_for,
    remove_options,
    rules_piece,
    write_options,
)
from hbatune.operations.context import (
    CommandFailed,
    Context,
    FileEdited,
    FileRemoved,
    NothingStarts,
    RolledBack,
    Task,
    TaskFailed,
    UnrestoredValues,
)
from hbatune.operations.rollback import hold_for, read_configuration, record, restore
from hbatune.operations.situation import Situation, survey
from hbatune.plan.joint_limits import require_affordable
from hbatune.plan.rows import State
from hbatune.policy.chosen import chosen_profile, configuration, configuration_file
from hbatune.policy.config import FILE, Config, MetricsConfig, load_config
from hbatune.policy.library import Library, installed_library, load_profile
from hbatune.policy.profile import Profile
from hbatune.policy.toml_files import ROOT, Fault, PolicyError, fault_on_way, follow
from hbatune.policy.vendors import rules_followed
from hbatune.render import UnsafeNameError, render

_TARGET = "multi-user.target"
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))

_ROOT_USER = 0
_NESTED = 5
"""Scripts whose interpreter is a script again (fs/exec.c: exec_binprm allows five)."""
_HEAD = 4096
"""Bytes at the start of a script in which its interpreter is looked for."""
_SEARCHED = tuple(map(Path, ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")))
"""Where systemd looks for programs (systemd.exec(5): $PATH)."""
_LONG = "'''exec'"
"""Begins the second line of pip's scripts whose interpreter has a long path, or blanks in it."""


class Prepared(Struct, frozen=True):
    """The files to place, and the profile that they are for."""

    profile: Profile
    rules: CompiledRules
    pieces: tuple[Piece, ...]
    configuration: Path
    executable: Path

    @property
    def checkable(self) -> tuple[Piece, ...]:
        """The files that this machine's tools can check: units only where their program exists."""
        startable = os.access(self.executable, os.X_OK)
        return tuple(
            piece
            for piece in self.pieces
            if not piece.link and (startable or piece.path.suffix != ".service")
        )


class RollbackCameError(HbatuneError):
    """A rollback was recorded after the installation began; nothing was placed."""

    def __init__(self) -> None:
        super().__init__(
            "a rollback was recorded after this installation began; nothing was installed",
            hint="to tune again, run the same command again",
        )


class Installed(Struct, frozen=True):
    """The result of an installation: the ``changed`` paths, and whether everything works now."""

    prepared: Prepared
    changed: Sequence[Path]
    complete: bool


def install(
    context: Context, root: Path, profile: str | None, *, module_options: bool = False
) -> Installed:
    """Place the files below the root; on the running system, start the daemon as well.

    A named ``profile`` becomes the active one, and lifts a rollback of everything.
    ``module_options`` are written for the adapters of this system. Raises as ``prepare`` does,
    LockedError, and InstallError where a file cannot be placed.
    """
    live = root == ROOT
    began = rollback_record.load(context.paths)
    # An installation would tune again what an administrator has rolled back.
    if live and began.everything and not profile:
        raise UsageError(
            "everything was rolled back here",
            hint="name the profile to have it tuned again: `hbatune install --profile P`",
        )
    prepared = prepare(context, root, profile)
    manifest = context.paths.manifest
    with context.lock() if live else nullcontext():
        if live and rollback_record.has_later(began, context.paths):
            raise RollbackCameError
        # The files before the profile: where one cannot be placed, no profile becomes active.
        changed = placement.place(root, manifest, prepared.pieces)
        if profile:
            system.activate_profile(
                below(root, prepared.configuration), prepared.profile.name, root=root
            )
            if live:
                rollback_record.lift(began, None, context.paths)
        placement.record(root, manifest, context.paths.modprobe)
        written = _write_options(context, profile) if module_options else True
    if not live:
        return Installed(prepared, changed, written)
    restarted = context.paths.units / system.UNIT in changed
    started = _start(context, restart=restarted)
    if restarted:
        context.nudge()  # a daemon that was not restarted was reloaded, which has the same effect
    return Installed(prepared, changed, started and written)


def prepare(context: Context, root: Path, profile: str | None) -> Prepared:
    """Return the files to place below the root, after systemd and udev have checked them.

    Below another root than this system's, the profile and the site are the image's. Raises
    UsageError where the policy makes no sense, does not fit this machine, or depends on files that
    other users can change; RejectedError where a file would not be accepted.
    """
    prepared = _prepared(context.paths, root, profile)
    check_pieces(prepared.checkable)
    return prepared


def _prepared(paths: Paths, root: Path, name: str | None) -> Prepared:
    library, filed, room = installed_library(), Journal(""), True
    rolled_back: tuple[str, ...] = ()
    if root == ROOT:
        # The memory for the requests of today's disks is judged before any rule asks for them.
        situation = survey(name, (), paths=paths)
        _require_matched(situation)
        plan = situation.plan()
        require_affordable(plan)
        require_writable(situation.machine, {row.id for row in plan.drift})
        room, rolled_back = plan.memory.roomy, situation.rollbacks.ids
        profile, config, filed = situation.profile, situation.config, situation.journal
        site = situation.boot_site
    else:
        image = Library(library.shipped, below(root, library.site), library.owner, top=root)
        config = load_config(image)
        profile, site = _profile(name, config, image), config.site
    rules = compile_for(profile, site, filed, rolled_back=rolled_back, room=room)
    executable = _executable(root)
    pieces = [
        _unit(paths.units / system.UNIT, executable, config.metrics),
        _unit(paths.units / system.LATENCY, executable, config.metrics),
        rules_piece(rules, paths.udev_rules),
    ]
    require_trusted_command(executable, root)
    if config.metrics.textfile is not None:
        require_trusted_folder(Path(config.metrics.textfile), root)
        for unit in (system.AUDIT, system.AUDIT_TIMER):
            pieces.append(_unit(paths.units / unit, executable, config.metrics))
    if root != ROOT:
        # Nothing runs in an image: the link that `systemctl enable` would make is placed there.
        wanted = paths.units / f"{_TARGET}.wants" / system.UNIT
        pieces.append(Piece(wanted, str(paths.units / system.UNIT), link=True))
    return Prepared(profile, rules, tuple(pieces), library.site / FILE, executable)


def _require_matched(situation: Situation) -> None:
    """UsageError where a name in [site] matches nothing: the device meant would be tuned."""
    if unknown := situation.unmatched:
        named = ", ".join(f"{each.key}: {each.name!r}" for each in unknown)
        raise UsageError(
            f"[site] names what is no disk or adapter of this machine ({named}); "
            "nothing was placed",
            hint=f"correct the name in {configuration_file()}; `hbatune list` shows them all",
        )


def _profile(name: str | None, config: Config, library: Library) -> Profile:
    wanted = name or config.profile
    if wanted is None:
        return chosen_profile(None, config)  # which says that there is none
    return load_profile(wanted, library, rules_followed(library, config.site))


def _unit(path: Path, executable: Path, metrics: MetricsConfig) -> Piece:
    listens = metrics.listen is not None and not metrics.listen.startswith("unix:")
    try:
        text = render(
            "systemd",
            f"{path.name}.j2",
            executable=executable,
            at_home=any(executable.is_relative_to(home) for home in _HOMES),
            listens=listens,
            textfile=metrics.textfile,
        )
    except UnsafeNameError as error:
        raise UsageError(f"no unit can name {error.name!r}") from error
    return Piece(path, text)


def _executable(root: Path) -> Path:
    """Return the path of hbatune, as seen in the image; UsageError where it is not installed."""
    found = [Path(sys.argv[0]), Path(sys.executable).with_name("hbatune")]
    found += [Path(where)] if (where := shutil.which("hbatune")) else []
    found += [Path("/usr/local/bin/hbatune"), Path("/usr/bin/hbatune")]
    # Links stay in the path: one may lead to a newer version tomorrow.
    named = [Path(os.path.abspath(path)) for path in found if path.name == "hbatune"]
    for path in named:
        if os.access(follow(path, root).end, os.X_OK):
            return path
    raise UsageError(
        f"there is no hbatune in {root} that a unit could start",
        hint="install hbatune there first, as with `pip install --root`",
    )


def _write_options(context: Context, profile: str | None) -> bool:
    """Write the module options for the next load; return whether all are as the profile wants."""
    rows = write_options(context, survey(profile, (), paths=context.paths), ())
    return all(row.state is not State.DRIFT for row in rows)


def _start(context: Context, *, restart: bool) -> bool:
    """Reload udev and systemd, and start the daemon; return False where one of them failed."""
    reloaded, enabled = system.reload_rules(), system.enable(restart=restart)
    failed = [ran for ran in (reloaded, enabled) if ran is not None and ran.code]
    for ran in failed:
        context.reporter.note(CommandFailed(ran))
    if enabled is None:
        context.reporter.note(NothingStarts(system.UNIT))
    return not failed


def require_trusted_command(command: Path, root: Path = ROOT) -> None:
    """UsageError unless only root can change the command and its interpreters, below ``root``.

    For this system's own command, the Python package that it runs is checked as well.
    """
    _require(_commands(command, root, _NESTED), root)
    if root == ROOT:
        _require([Path(__file__).parents[1]], root)


def require_trusted_folder(folder: Path, root: Path = ROOT) -> None:
    """UsageError unless only root can replace this folder by another one.

    The folder itself may be another user's.
    """
    _require([folder], root, end=False)


def _require(paths: Iterable[Path], root: Path, *, end: bool = True) -> None:
    # An image may be built without being root: its builder's files will be root's there.
    owner = _ROOT_USER if root == ROOT else os.geteuid()
    for path in paths:
        try:
            fault = fault_on_way(path, owner, root=root, top=root, end=end)
        except OSError as error:
            raise UsageError(f"{path} cannot be followed: {error.strerror}") from error
        if fault is not None:
            raise UsageError(_problem(path, fault), hint=_hint(fault))


def _problem(path: Path, fault: Fault) -> str:
    way = f" (on the way to {path})" if fault.path != path else ""
    return f"{fault.path}{way} is not root's alone: {fault.problem}"


def _hint(fault: Fault) -> str:
    mended = f"{fault.remedy} {fault.path}, after a look at what is there, or "
    return (
        f"a unit of root's would depend on it: {mended if fault.remedy else ''}"
        "choose a place that root alone can write"
    )


def _commands(command: Path, root: Path, nested: int) -> Iterator[Path]:
    """Yield the command and the interpreters that it names."""
    yield command
    if nested:
        for interpreter in _interpreters(follow(command, root).end, root):
            yield from _commands(interpreter, root, nested - 1)


def _interpreters(script: Path, root: Path) -> Iterator[Path]:
    """Yield the interpreters in the first lines of a script; none where it is no script."""
    try:
        with loader.opened(script) as descriptor:
            lines = loader.beginning(descriptor, _HEAD).decode(errors="replace").split("\n")
    # Missing, unreadable or no file: its path is judged all the same.
    except (OSError, UnusableFileError):
        return
    if not lines[0].startswith("#!"):
        return
    words = lines[0].removeprefix("#!").split()
    if words and words[0].startswith("/"):
        yield Path(words[0])
        if Path(words[0]).name == "env":
            yield from _found(words[1:], root)
    if len(lines) > 1 and lines[1].startswith(_LONG):
        with suppress(ValueError):  # quotes that do not end
            word = shlex.split(lines[1].removeprefix(_LONG))[0]
            yield Path(word)


def _found(words: Iterable[str], root: Path) -> Iterator[Path]:
    """Yield the programs that env(1) may start: the first word that is no option or assignment."""
    name = next((word for word in words if not word.startswith("-") and "=" not in word), None)
    if name is not None:
        places = [Path(name)] if name.startswith("/") else [each / name for each in _SEARCHED]
        yield from (place for place in places if os.access(follow(place, root).end, os.X_OK))


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
    placed = placement.installed(root, paths.manifest)
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
            context.reporter.note(UnrestoredValues())
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
    taken = placement.take_away(root, paths.manifest)
    for path in taken.gone:
        context.reporter.note(FileRemoved(below(root, path)))
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
    placement.sweep(root, taken.folders)
    return finished


def removal(context: Context, root: Path) -> Removal:
    """Return the files and folders that ``uninstall`` would remove below the root."""
    manifest = context.paths.manifest
    known = placement.installed(root, manifest)
    placed = [Path(each.path) for each in known.placed] if known else []
    edited = (path for path in placed if placement.changed(root, manifest, path))
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
        system.forget_profile(file, root=root)
    except system.ActiveProfileError as error:
        context.reporter.note(TaskFailed(Task.FORGET_PROFILE, error))
        return False
    return True


def _done(context: Context, ran: system.Ran | None) -> bool:
    """Report a command that failed; return False if it did not end by its deadline."""
    if ran is not None and ran.code:
        context.reporter.note(CommandFailed(ran))
    return ran is None or ran.finished
