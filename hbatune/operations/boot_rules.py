"""Keeps udev's rules for disks to come as the active profile wants them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hbatune.act import system
from hbatune.act.claims import Claim
from hbatune.act.journal import Journal
from hbatune.act.system import Ran
from hbatune.boot import install
from hbatune.boot.install import ForeignError, Piece
from hbatune.errors import HbatuneError
from hbatune.operations.context import Context
from hbatune.operations.notes import FileEdited, RulesNotLoaded, Task, TaskFailed
from hbatune.operations.situation import look
from hbatune.policy.chosen import chosen_profile
from hbatune.policy.config import Config, Site
from hbatune.policy.model import Profile
from hbatune.render import UnsafeNameError

if TYPE_CHECKING:
    from hbatune.boot.compile import Compiled


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
    from hbatune.boot.compile import compiled  # not where hbatune is not installed

    return compiled(profile, site, excluded=rolled_back, reverted=filed.reverted, room=room)


def rules_piece(rules: Compiled, path: Path) -> Piece:
    """Return the rules as a file to place at ``path``; RejectedError for an unsafe name."""
    from hbatune.boot.compile import text

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
    out, room = here.rollbacks.ids, here.plan().memory.roomy
    return refresh(context, here.profile, here.boot_site, filed, rolled_back=out, room=room)


def withdraw(context: Context) -> bool:
    """Remove the rules, so that no further disk is tuned; return whether they are gone."""
    rules = context.paths.udev_rules
    try:
        taken = install.take_away(install.ROOT, context.paths.manifest, only={rules})
    except (install.ManifestError, install.InstallError) as error:
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
