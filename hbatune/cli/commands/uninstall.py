"""`hbatune uninstall`: restore the values and remove all files of hbatune."""

import argparse

from msgspec import Struct

from hbatune.boot.placement import ROOT
from hbatune.cli import arguments, command_context
from hbatune.errors import UsageError
from hbatune.operations.install import preview_removal, remove_installation
from hbatune.text.terminal import print_line, show_json


class RemovalDocument(Struct, frozen=True):
    """The JSON document of `uninstall --dry-run`: files that would be removed or kept.

    A file is kept if it was edited after hbatune wrote it.
    """

    files: tuple[str, ...]
    edited: tuple[str, ...]
    folders: tuple[str, ...]
    schema: str = "hbatune.removal/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `uninstall`."""
    arguments.add_options(parser, "--root", "--dry-run", "--json", "--keep-values")


def run(args: argparse.Namespace) -> int:
    """Restore the values and remove the files; exit 1 if any remain."""
    root = arguments.resolve_root(args.root)
    if args.json and not args.dry_run:
        raise UsageError("--json previews the removal: use it with --dry-run")
    if args.dry_run:
        planned = preview_removal(command_context.make_context(), root)
        files, edited, folders = (tuple(map(str, paths)) for paths in planned)
        document = RemovalDocument(files, edited, folders)
        if args.json:
            show_json(document)
            return 0
        for path in document.files:
            print_line(f"{path} would be removed")
        for path in document.edited:
            print_line(f"{path} would be kept: it was edited after hbatune wrote it")
        for path in document.folders:
            print_line(f"{path} would be removed, with all its files")
        print_line("Nothing was removed.")
        return 0
    if root == ROOT:
        arguments.require_root("uninstall")
    if not remove_installation(command_context.make_context(), root, keep_values=args.keep_values):
        return 1
    print_line("No service, udev rule or state of hbatune remains here; the package stays.")
    return 0
