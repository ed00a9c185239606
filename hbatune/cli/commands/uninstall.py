"""`hbatune uninstall`: values back, files gone, nothing left behind."""

import argparse
from contextlib import suppress
from pathlib import Path

from hbatune.act import active, files, paths, system
from hbatune.boot import install
from hbatune.boot.install import ROOT, below
from hbatune.cli.arguments import require_root
from hbatune.cli.commands import rollback
from hbatune.cli.commands.install import add_root, checked_root
from hbatune.cli.text.output import note, say
from hbatune.errors import UsageError
from hbatune.facts.udev import holders
from hbatune.operations.module_options import remove_options
from hbatune.operations.situation import configuration, configuration_file
from hbatune.policy.files import PolicyError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `uninstall` takes."""
    add_root(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be taken away and take nothing"
    )
    parser.add_argument(
        "--keep-values",
        action="store_true",
        help="leave the settings as they are until the next boot; nothing knows the old ones then",
    )


def run(args: argparse.Namespace) -> int:
    """Put the values back and take everything away; exit 1 where something was left."""
    root = checked_root(args.root)
    live = root == ROOT
    if args.dry_run:
        return _show(root, live)
    if live:
        require_root("uninstall")
        if args.keep_values:
            _require_kept()
        known = install.installed(root, paths.MANIFEST)
        if known is not None and known.of(paths.UNITS / system.UNIT):
            _complain(system.disable())
        if args.keep_values:
            remove_options(None)
        elif not _rolled_back():
            return 1
    taken = install.take_away(root, paths.MANIFEST)
    for path in taken.gone:
        say(f"{below(root, path)} is gone.")
    if live:
        _complain(system.reload_units())
        _complain(system.reload_rules())
        _complain(system.announce(holders()))
    for path in taken.left:
        note(f"{below(root, path)} is not as hbatune wrote it, and is left")
    if not _forgotten(below(root, configuration_file()), root) or taken.left:
        return 1
    for folder in (paths.STATE, *([paths.RUN] if live else [])):
        files.remove_folder(below(root, folder))
    install.sweep(root, taken.folders)
    say("hbatune is not installed here any more.")
    return 0


def _require_kept() -> None:
    """UsageError where the daemon would put the values back as it is stopped."""
    with suppress(PolicyError):  # a configuration with a mistake keeps nobody from uninstalling
        if configuration().daemon.rollback_on_stop:
            raise UsageError(
                "the values would not be kept: rollback_on_stop is set, and the daemon is stopped",
                hint=f"set it to false in {configuration_file()}, or leave out --keep-values",
            )


def _forgotten(file: Path, root: Path) -> bool:
    """Take the active profile out of the configuration; whether it could be."""
    try:
        active.forget(file, root=root)
    except active.ActiveProfileError as error:
        note(f"{error.message}; it is left")
        return False
    return True


def _rolled_back() -> bool:
    """Put the values back, as `rollback` does; whether all are, whatever else was left."""
    asked = argparse.Namespace(targets=[], allow_reset=False, json=False)
    if rollback.run(asked) == 0 or not paths.JOURNAL.exists():
        return True
    note(
        "not everything could be put back, so what knows of it stays: `hbatune uninstall` goes on "
        "where it can, with --keep-values at once"
    )
    return False


def _show(root: Path, live: bool) -> int:
    known = install.installed(root, paths.MANIFEST)
    for each in known.placed if known else ():
        path = Path(each.path)
        if install.changed(root, paths.MANIFEST, path):
            say(f"{below(root, path)} would be left: it is not as hbatune wrote it")
        else:
            say(f"{below(root, path)} would go")
    for folder in (paths.STATE, *([paths.RUN] if live else [])):
        if below(root, folder).exists():
            say(f"{below(root, folder)} would go, with all that is in it")
    say("Nothing was taken away.")
    return 0


def _complain(ran: system.Ran | None) -> None:
    if ran is not None and ran.code:
        note(f"`{' '.join(ran.command)}` failed: {ran.said}")
