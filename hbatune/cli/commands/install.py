"""`hbatune install`: keep a profile from boot on, by udev's rules and a daemon."""

import argparse
import difflib
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

from hbatune.act import active, hands_off, paths, system
from hbatune.act.journal import Journal
from hbatune.agent.running import nudge
from hbatune.agent.service import require
from hbatune.agent.turns import Turn
from hbatune.boot import install
from hbatune.boot.compile import Compiled
from hbatune.boot.install import ROOT, Piece, below
from hbatune.cli.arguments import require_root
from hbatune.cli.text.output import note, say
from hbatune.errors import UsageError
from hbatune.operations.boot_rules import check, compiled_for, rules_piece
from hbatune.operations.module_options import add_module_options, write_options
from hbatune.operations.situation import Situation, chosen_profile, configuration_file, survey
from hbatune.operations.trusted import require_trusted_command, require_trusted_folder
from hbatune.plan.memory import require_affordable
from hbatune.plan.rows import State
from hbatune.policy.config import FILE, Config, MetricsConfig, load_config
from hbatune.policy.load import Library, installed_library, load_profile
from hbatune.policy.model import Profile
from hbatune.policy.trust import follow
from hbatune.render import render
from hbatune.render.escape import UnsafeNameError

_TARGET = "multi-user.target"
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `install` takes."""
    parser.add_argument("--profile", metavar="P", help="the profile; without it, the active one")
    add_root(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be placed and place nothing"
    )
    add_module_options(parser)


def add_root(parser: argparse.ArgumentParser) -> None:
    """Let the command take --root."""
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=Path,
        default=ROOT,
        help="the root of an image, not of the running system",
    )


def run(args: argparse.Namespace) -> int:
    """Place the files and start the daemon; exit 1 where that does not start."""
    root = checked_root(args.root)
    live = root == ROOT
    if args.module_options and not live:
        raise UsageError("--module-options looks at this machine's adapters, not at an image's")
    if live and not args.dry_run:
        require_root("install")
        if hands_off.load().everything and not args.profile:
            raise UsageError(
                "everything was rolled back here",
                hint="name the profile to have it tuned again: `hbatune install --profile P`",
            )
        if system.systemd_runs():
            require()
    prepared = _prepared(root, args)
    check(prepared.checkable)
    if args.dry_run:
        _show(root, prepared)
        return 0
    with Turn() if live else nullcontext():
        changed = install.place(root, paths.MANIFEST, prepared.pieces)
        if args.profile:
            active.activate(below(root, prepared.configuration), prepared.profile.name, root=root)
            if live:
                hands_off.save(hands_off.load().applied(None))
        install.record(root, paths.MANIFEST, paths.MODPROBE)
    done = _module_options(args) if args.module_options else True
    _tell(root, prepared, changed)
    restarted = paths.UNITS / system.UNIT in changed
    started = _started(anew=restarted) if live else True
    if live and restarted:
        nudge(paths.STATUS)  # one that was running is reloaded, which has the same effect
    return 0 if started and done else 1


def checked_root(root: Path) -> Path:
    """Return an absolute root; UsageError for what is no folder."""
    if not root.is_dir():
        raise UsageError(f"--root {str(root)!r} is no folder")
    return root.resolve()


class _Prepared(Struct, frozen=True):
    """What is to be placed, and for which profile."""

    profile: Profile
    rules: Compiled
    pieces: tuple[Piece, ...]
    configuration: Path
    executable: Path

    @property
    def checkable(self) -> tuple[Piece, ...]:
        """What the tools of this machine can judge: a unit only where it could start here."""
        startable = os.access(self.executable, os.X_OK)
        return tuple(
            each
            for each in self.pieces
            if not each.link and (startable or each.path.suffix != ".service")
        )


def _prepared(root: Path, args: argparse.Namespace) -> _Prepared:
    library, filed, room = installed_library(), Journal(""), True
    rolled_back: tuple[str, ...] = ()
    if root == ROOT:
        # What the requests of the disks that are here cost is judged before any rule asks for them.
        situation = survey(args.profile, ())
        _require_matched(situation)
        plan = situation.plan()
        require_affordable(plan)
        room, rolled_back = plan.memory.roomy, situation.hands_off.ids
        profile, config, filed = situation.profile, situation.config, situation.journal
        site = situation.boot_site
    else:
        image = Library(library.shipped, below(root, library.site), library.owner, top=root)
        config = load_config(image)
        profile, site = _profile(args.profile, config, image), config.site
    rules = compiled_for(profile, site, filed, rolled_back=rolled_back, room=room)
    executable = _executable(root)
    pieces = [
        _unit(system.UNIT, executable, config.metrics),
        _unit(system.LATENCY, executable, config.metrics),
        rules_piece(rules),
    ]
    require_trusted_command(executable, root)
    if config.metrics.textfile is not None:
        require_trusted_folder(Path(config.metrics.textfile), root)
    if root != ROOT:
        wanted = paths.UNITS / f"{_TARGET}.wants" / system.UNIT
        pieces.append(Piece(wanted, str(paths.UNITS / system.UNIT), link=True))
    return _Prepared(profile, rules, tuple(pieces), library.site / FILE, executable)


def _require_matched(situation: Situation) -> None:
    """UsageError where a name in [site] means nothing here: what it was to protect would not be."""
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
    return load_profile(wanted, library)


def _unit(name: str, executable: Path, metrics: MetricsConfig) -> Piece:
    listens = metrics.listen is not None and not metrics.listen.startswith("unix:")
    try:
        text = render(
            "systemd",
            f"{name}.j2",
            executable=executable,
            at_home=any(executable.is_relative_to(home) for home in _HOMES),
            listens=listens,
            textfile=metrics.textfile,
        )
    except UnsafeNameError as error:
        raise UsageError(f"no unit can name {error.name!r}") from error
    return Piece(paths.UNITS / name, text)


def _executable(root: Path) -> Path:
    """Return where hbatune is, in the image where there is one; UsageError where it is not."""
    found = [Path(sys.argv[0]), Path(sys.executable).with_name("hbatune")]
    found += [Path(where)] if (where := shutil.which("hbatune")) else []
    found += [Path("/usr/local/bin/hbatune"), Path("/usr/bin/hbatune")]
    named = [Path(os.path.abspath(path)) for path in found if path.name == "hbatune"]
    for path in named:
        if os.access(follow(path, root).end, os.X_OK):
            return path
    raise UsageError(
        f"there is no hbatune in {root} that a unit could start",
        hint="install hbatune there first, as with `pip install --root`",
    )


def _show(root: Path, prepared: _Prepared) -> None:
    for piece in install.differing(root, prepared.pieces):
        path = below(root, piece.path)
        if piece.link:
            say(f"{path} → {piece.text}")
            continue
        before = path.read_text(errors="replace").splitlines() if path.is_file() else []
        names = (str(path) if before else "/dev/null", str(path))
        for line in difflib.unified_diff(before, piece.text.splitlines(), *names, lineterm=""):
            say(line)
    say("Nothing was placed.")


def _module_options(args: argparse.Namespace) -> bool:
    args.targets = []
    with Turn():
        rows = write_options(survey(args.profile, ()), args)
    return all(row.state is not State.DRIFT for row in rows)


def _tell(root: Path, prepared: _Prepared, changed: Sequence[Path]) -> None:
    for path in changed:
        say(f"{below(root, path)} is placed.")
    if not changed:
        say("Everything is in place already.")
    set_by = ", ".join(prepared.rules.settings) or "nothing"
    name = prepared.profile.name
    say(f"Profile {name}: udev sets {set_by} as a disk appears, the daemon the rest.")


def _started(*, anew: bool) -> bool:
    """Tell udev and systemd; whether the daemon runs, or nothing could start it."""
    reloaded, enabled = system.reload_rules(), system.enable(anew=anew)
    for ran in (reloaded, enabled):
        if ran is not None and ran.code:
            note(f"`{' '.join(ran.command)}` failed: {ran.said}")
    if enabled is None:
        note(f"systemd does not run here: nothing starts {system.UNIT}")
    return not any(ran is not None and ran.code for ran in (reloaded, enabled))
