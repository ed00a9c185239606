"""`hbatune uninstall`: restore the values and remove all files of hbatune."""

import argparse

from hbatune.boot.placement import ROOT
from hbatune.cli import arguments, command_context
from hbatune.operations.install import preview_removal, remove_installation
from hbatune.text.terminal import print_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `uninstall`."""
    arguments.add_options(parser, "--root", "--dry-run", "--keep-values")


def run(args: argparse.Namespace) -> int:
    """Restore the values and remove the files; exit 1 if any remain."""
    root = arguments.resolve_root(args.root)
    if args.dry_run:
        files, edited, folders = preview_removal(command_context.make_context(), root)
        for path in files:
            end = "kept: it was edited after hbatune wrote it" if path in edited else "removed"
            print_line(f"{path} would be {end}")
        for folder in folders:
            print_line(f"{folder} would be removed, with all its files")
        print_line("Nothing was removed.")
        return 0
    if root == ROOT:
        arguments.require_root("uninstall")
    if not remove_installation(command_context.make_context(), root, keep_values=args.keep_values):
        return 1
    print_line("No service, udev rule or state of hbatune remains here; the package stays.")
    return 0
