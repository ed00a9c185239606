"""Installs hbatune's udev rules and units, here or in an image, and starts the daemon.

Only root may be able to change what a root unit starts or writes to: that is checked first.
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
from hbatune.act import active, rollback_record, system
from hbatune.act.journal import Journal
from hbatune.act.paths import Paths
from hbatune.boot import install as files
from hbatune.boot.compile import Compiled
from hbatune.boot.install import Piece, below
from hbatune.errors import HbatuneError, UsageError
from hbatune.loader import UnusableFileError
from hbatune.operations.boot_rules import check, compiled_for, rules_piece
from hbatune.operations.context import Context
from hbatune.operations.module_options import write_options
from hbatune.operations.notes import CommandFailed, NothingStarts
from hbatune.operations.situation import Situation, survey
from hbatune.plan.memory import require_affordable
from hbatune.plan.rows import State
from hbatune.policy.chosen import chosen_profile, configuration_file
from hbatune.policy.config import FILE, Config, MetricsConfig, load_config
from hbatune.policy.files import ROOT, Fault, fault_on_way, follow
from hbatune.policy.load import Library, installed_library, load_profile
from hbatune.policy.model import Profile
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
    rules: Compiled
    pieces: tuple[Piece, ...]
    configuration: Path
    executable: Path

    @property
    def checkable(self) -> tuple[Piece, ...]:
        """The files that this machine's tools can check: units only where their program exists."""
        startable = os.access(self.executable, os.X_OK)
        return tuple(
            each
            for each in self.pieces
            if not each.link and (startable or each.path.suffix != ".service")
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
        changed = files.place(root, manifest, prepared.pieces)
        if profile:
            active.activate(below(root, prepared.configuration), prepared.profile.name, root=root)
            if live:
                rollback_record.lift(began, None, context.paths)
        files.record(root, manifest, context.paths.modprobe)
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
    check(prepared.checkable)
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
        room, rolled_back = plan.memory.roomy, situation.rollbacks.ids
        profile, config, filed = situation.profile, situation.config, situation.journal
        site = situation.boot_site
    else:
        image = Library(library.shipped, below(root, library.site), library.owner, top=root)
        config = load_config(image)
        profile, site = _profile(name, config, image), config.site
    rules = compiled_for(profile, site, filed, rolled_back=rolled_back, room=room)
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
        yield from (each for each in places if os.access(follow(each, root).end, os.X_OK))
