"""Generate the man page and the shell completions: ``python -m tools.manual FOLDER``.

`make manual` runs this. Both are generated from the command line parser and the table of settings,
so they include new subcommands, options and settings. They are built, not committed. Packages
install them in the directories of their distribution.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from hbatune import __version__
from hbatune.cli import COMMANDS, GROUPS
from hbatune.cli.arguments import GLOBAL_OPTIONS
from hbatune.cli.parser import (
    GROUP_TITLES,
    find_subparsers,
    load_help,
    make_full_parser,
)
from hbatune.errors import list_exit_codes
from hbatune.policy.library import Library, list_profiles
from hbatune.probe.workloads import load_workloads
from hbatune.settings.table import SETTINGS
from hbatune.shipped import find_shipped

SHELLS = {"bash": "hbatune.bash", "zsh": "_hbatune", "fish": "hbatune.fish"}
"""By shell, the file name of the completion of ``hbatune``."""

_TARGETS = (
    "ls /sys/block /sys/class/scsi_host /sys/class/nvme 2>/dev/null"
    " | grep -Ev ':|^(loop|ram|zram|sr|fd|md)'"
)
"""A command that lists names of TARGETs. Completion must be fast, so it reads no device."""


def man_page() -> str:
    """Return hbatune(8) in roff. Section 8 is for the administrator's commands."""
    about = {
        "project_name": "hbatune",
        "description": "tune storage adapters, measure the effect, restore the original values",
        "version": __version__,
        "manual_section": "8",
        "manual_title": "System administration",
    }
    os.environ["COLUMNS"] = "1000"  # stop argparse from breaking lines, which roff does
    parser = make_full_parser()
    # Print these once, not with every command. Examples and exit codes have separate sections.
    parser.epilog = None
    for command in find_subparsers(parser).values():
        command.description = None
        groups = [group for group in command._action_groups if group.title != GLOBAL_OPTIONS]
        command._action_groups = groups
    page = Manpage(parser, about, format="single-commands-section")
    page.add_section("commands by group", ">", _groups())
    page.add_section("settings", ">", _settings())
    page.add_section("examples", ">", _listed(load_help()["main"]["examples"]))
    page.add_section("exit status", ">", _listed(list_exit_codes()))
    page.add_section("files", ">", _listed(_FILES))
    return str(page)


_FILES = (
    ("/etc/hbatune/hbatune.toml", "the configuration, and the active profile"),
    ("/etc/hbatune/rules.d, /etc/hbatune/profiles", "local rules and profiles"),
    ("/var/lib/hbatune", "the journal of changes and the history of results"),
    ("/run/hbatune", "the lock and the daemon's status"),
)


def _groups() -> str:
    return _listed([(GROUP_TITLES[group], ", ".join(names)) for group, names in GROUPS.items()])


def _settings() -> str:
    return _listed(
        [
            (setting.name, f"{setting.summary}; takes {setting.format.allowed}")
            for setting in SETTINGS.values()
        ]
    )


def _listed(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a list of terms with their texts, in roff."""
    return "\n".join(f".TP\n.B {_roff(term)}\n{_roff(text)}" for term, text in pairs)


def _roff(text: str) -> str:
    """Return the text with roff's control characters escaped."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def completion(shell: str) -> str:
    """Return the completion script for one of ``SHELLS``."""
    parser = make_full_parser()
    for command_parser in (parser, *find_subparsers(parser).values()):
        for action in command_parser._actions:
            if (answers := _answers(action)) is not None:
                action.complete = answers  # type: ignore[attr-defined]
            elif (words := _words(action)) is not None:
                action.choices = words
    return str(shtab.complete(parser, shell=shell))


def _answers(action: argparse.Action) -> object:
    """Return the shell's completion method for an argument, or None."""
    match action.metavar:
        case "FILE" | "OLD":
            return shtab.FILE
        case "DIR":
            return shtab.DIRECTORY
        case "TARGET":
            return shtab.cmd(_TARGETS)
    return None


def _words(action: argparse.Action) -> Sequence[str] | None:
    """Return the fixed values of an argument, or None."""
    library = Library(find_shipped("rules"), site=Path("/nonexistent"))
    match action.metavar:
        case "P" | "NAME":
            return [item.name for item in list_profiles(library)]
        case "SETTING":
            return list(SETTINGS)
        case "WORKLOAD":
            return [item.name for item in load_workloads(library)]
        case "COMMAND" if not isinstance(action, argparse._SubParsersAction):
            return COMMANDS
    return None


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {"hbatune.8": man_page(), **{SHELLS[shell]: completion(shell) for shell in SHELLS}}


def main() -> None:
    """Write every file into the named directory."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
