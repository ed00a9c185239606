"""`hbatune install`: apply a profile at boot, with udev rules and the daemon."""

import argparse
import difflib
from pathlib import Path

from hbatune.boot.placement import ROOT, find_differing, join_root, read_content
from hbatune.cli import arguments
from hbatune.cli.command_context import make_context
from hbatune.errors import UsageError
from hbatune.operations.install import InstallResult, PreparedFiles, install_profile, prepare_files
from hbatune.text.terminal import print_line, show_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `install`."""
    arguments.add_options(parser, "--profile", "--root", "--dry-run", "--module-options")


def run(args: argparse.Namespace) -> int:
    """Install the files and start the daemon; exit 1 if it does not start."""
    root = arguments.resolve_root(args.root)
    live = root == ROOT
    if args.module_options and not live:
        raise UsageError("--module-options looks at this machine's adapters, not at an image's")
    if args.dry_run:
        _show_changes(root, prepare_files(make_context(), root, args.profile))
        return 0
    if live:
        arguments.require_root("install")
    done = install_profile(make_context(), root, args.profile, module_options=args.module_options)
    _print_report(root, done)
    return 0 if done.complete else 1


def _show_changes(root: Path, prepared: PreparedFiles) -> None:
    for piece in find_differing(root, prepared.pieces):
        path = join_root(root, piece.path)
        if piece.link:
            print_line(f"{path} → {piece.text}")
            continue
        before = (read_content(path) or b"").decode(errors="replace").splitlines()
        names = (str(path) if before else "/dev/null", str(path))
        for line in difflib.unified_diff(before, piece.text.splitlines(), *names, lineterm=""):
            show_line(line)
    print_line("Nothing was placed.")


def _print_report(root: Path, done: InstallResult) -> None:
    for path in done.changed:
        print_line(f"{join_root(root, path)} is placed.")
    if not done.changed:
        print_line("Everything is in place already.")
    set_by = ", ".join(done.prepared.rules.settings) or "nothing"
    name = done.prepared.profile.name
    print_line(f"Profile {name}: udev sets {set_by} when a disk appears, the daemon all others.")
