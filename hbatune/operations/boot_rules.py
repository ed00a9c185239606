"""The compiled udev rules, kept in step with the active profile by `apply` and `rollback`."""

import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from hbatune.act import paths, system
from hbatune.act.claims import Claim
from hbatune.act.journal import Journal
from hbatune.act.system import Ran
from hbatune.boot import install
from hbatune.boot.compile import Compiled, compiled, text
from hbatune.boot.install import ForeignError, Piece
from hbatune.cli.text.output import note
from hbatune.errors import HbatuneError
from hbatune.operations.situation import chosen_profile, look
from hbatune.policy.config import Config, Site
from hbatune.policy.model import Profile
from hbatune.render.escape import UnsafeNameError


class RejectedError(HbatuneError):
    """systemd or udev finds fault with a generated file, which was therefore not placed."""


def compiled_for(
    profile: Profile,
    site: Site,
    filed: Journal,
    *,
    rolled_back: Collection[str] = (),
    room: bool = True,
) -> Compiled:
    """Compile the profile, less what was ``rolled_back`` by name or a verdict put back.

    ``room`` is whether there is memory for the requests of disks to come.
    """
    return compiled(profile, site, excluded=rolled_back, reverted=filed.reverted, room=room)


def rules_piece(rules: Compiled) -> Piece:
    """Return the rules as a file to place; ``RejectedError`` for a value that no rule can hold."""
    try:
        return Piece(paths.UDEV_RULES, text(rules))
    except UnsafeNameError as error:
        raise RejectedError(f"{error.name!r} cannot stand in a udev rule") from error


def check(pieces: Iterable[Piece]) -> None:
    """Have systemd and udev look at the files before they are placed; ``RejectedError``."""
    with tempfile.TemporaryDirectory(prefix="hbatune-") as folder:
        for piece in pieces:
            file = Path(folder) / piece.path.name
            file.write_text(piece.text)
            ran = _judge(file)
            if ran is not None and ran.code:
                said = ran.said.replace(f"{folder}/", "")
                raise RejectedError(f"`{ran.command[0]}` rejects {piece.path.name}: {said}")


def refresh(
    profile: Profile,
    site: Site,
    filed: Journal,
    *,
    rolled_back: Collection[str] = (),
    room: bool = True,
) -> bool:
    """Compile the rules again where hbatune is installed; whether udev has them now.

    The arguments are those of ``compiled_for``.
    """
    if install.installed(install.ROOT, paths.MANIFEST) is None:
        return True
    rules = compiled_for(profile, site, filed, rolled_back=rolled_back, room=room)
    piece = rules_piece(rules)
    try:
        check([piece])
        changed = install.place(install.ROOT, paths.MANIFEST, [piece])
    except (ForeignError, RejectedError, install.InstallError) as error:
        note(f"udev's rules are as they were: {error.message}")
        return False
    return not changed or _reloaded()


def refresh_active(config: Config, filed: Journal, stuck: Iterable[Claim]) -> bool:
    """Compile the active profile's rules again, where there is one and hbatune is installed."""
    if config.profile is None or install.installed(install.ROOT, paths.MANIFEST) is None:
        return True
    here = look(config, chosen_profile(None, config), stuck=stuck)
    out, room = here.hands_off.ids, here.plan().memory.roomy
    return refresh(here.profile, here.boot_site, filed, rolled_back=out, room=room)


def withdraw() -> bool:
    """Take the rules away, so that no disk to come is tuned; whether they are gone."""
    try:
        taken = install.take_away(install.ROOT, paths.MANIFEST, only={paths.UDEV_RULES})
    except install.InstallError as error:
        note(error.message)
        return False
    if taken.left:
        note(f"{taken.left[0]} is not as hbatune wrote it, and is left: it tunes disks still")
        return False
    return not taken.gone or _reloaded()


def _judge(file: Path) -> Ran | None:
    return system.check_rules(file) if file.suffix == ".rules" else system.check_unit(file)


def _reloaded() -> bool:
    ran = system.reload_rules()
    if ran is not None and ran.code:
        note(f"udev did not take its rules anew: {ran.said}")
        return False
    return True
