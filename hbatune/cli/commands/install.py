"""`hbatune install`: apply a profile at boot, with udev rules and the daemon."""

import argparse
import difflib
from pathlib import Path

from hbatune.boot.placement import ROOT, below, content_of, differing
from hbatune.cli.arguments import add_module_options, add_root, checked_root, require_root
from hbatune.cli.command_context import command_context
from hbatune.errors import UsageError
from hbatune.operations.install import Installed, Prepared, install, prepare
from hbatune.text.terminal import say, show_line

SUMMARY = "keep a profile from boot on: udev rules and a daemon"
GROUP = "change"
EXAMPLES = (
    ("sudo hbatune install --profile oltp --dry-run", "show every file, write none"),
    ("sudo hbatune install --profile oltp", "tune from the next boot on"),
    ("sudo hbatune install --profile oltp --root /mnt", "into an image"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `install`."""
    parser.add_argument("--profile", metavar="P", help="the profile; without it, the active one")
    add_root(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be placed and place nothing"
    )
    add_module_options(parser)


def run(args: argparse.Namespace) -> int:
    """Install the files and start the daemon; exit 1 if it does not start."""
    root = checked_root(args.root)
    live = root == ROOT
    if args.module_options and not live:
        raise UsageError("--module-options looks at this machine's adapters, not at an image's")
    if args.dry_run:
        _show_changes(root, prepare(command_context(), root, args.profile))
        return 0
    if live:
        require_root("install")
    done = install(command_context(), root, args.profile, module_options=args.module_options)
    _print_report(root, done)
    return 0 if done.complete else 1


def _show_changes(root: Path, prepared: Prepared) -> None:
    for piece in differing(root, prepared.pieces):
        path = below(root, piece.path)
        if piece.link:
            say(f"{path} → {piece.text}")
            continue
        before = (content_of(path) or b"").decode(errors="replace").splitlines()
        names = (str(path) if before else "/dev/null", str(path))
        for line in difflib.unified_diff(before, piece.text.splitlines(), *names, lineterm=""):
            show_line(line)
    say("Nothing was placed.")


def _print_report(root: Path, done: Installed) -> None:
    for path in done.changed:
        say(f"{below(root, path)} is placed.")
    if not done.changed:
        say("Everything is in place already.")
    set_by = ", ".join(done.prepared.rules.settings) or "nothing"
    name = done.prepared.profile.name
    say(f"Profile {name}: udev sets {set_by} as a disk appears, the daemon the rest.")
