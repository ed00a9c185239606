"""Generate the man pages and the shell completions: ``python -m tools.manual FOLDER``.

`make manual` runs this. hbatune(8) and the page of each command have the text of the help, so they
include new subcommands and options. The pages of section 5 have the text of pages in docs/. All are
built, not committed. Packages install them in the directories of their distribution.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import shtab

from hbatune.cli import COMMANDS, GROUPS
from hbatune.cli.arguments import GLOBAL_OPTIONS
from hbatune.cli.parser import (
    find_subparsers,
    list_exit_codes,
    load_help,
    make_full_parser,
)
from hbatune.policy.library import Library, list_profiles
from hbatune.probe.workloads import load_workloads
from hbatune.settings.table import SETTINGS
from hbatune.shipped import find_shipped
from hbatune.text.basic_output import format_sentence
from tools.roff import bold, convert_markdown, escape, inline, italic, list_terms, render_page

SHELLS = {"bash": "hbatune.bash", "zsh": "_hbatune", "fish": "hbatune.fish"}
"""By shell, the file name of the completion of ``hbatune``."""

_DOCS = Path(__file__).resolve().parents[1] / "docs"
_ADMINISTRATION = "System administration"
_FORMATS = "File formats"
_PURPOSE = "tune storage adapters, measure the effect, restore the original values"
_TARGETS = (
    "ls /sys/block /sys/class/scsi_host /sys/class/nvme 2>/dev/null"
    " | grep -Ev ':|^(loop|ram|zram|sr|fd|md)'"
)
"""A command that lists names of TARGETs. Completion must be fast, so it reads no device."""
_FILES = (
    ("/etc/hbatune/hbatune.toml", "the configuration, and the active profile: hbatune.toml(5)"),
    ("/etc/hbatune/rules.d, /etc/hbatune/profiles", "local rules and profiles: hbatune-rules(5)"),
    ("/var/lib/hbatune", "the journal of changes and the history of results"),
    ("/run/hbatune", "the lock and the daemon's status"),
    ("/usr/share/doc/hbatune/docs", "the pages that the man pages name, such as settings.md"),
)


def man_pages() -> dict[str, str]:
    """Return the text of each man page by its file name, in roff.

    Section 8 is for the administrator's commands, section 5 for file formats.
    """
    parser = make_full_parser()
    pages = {"hbatune.8": _main_page(parser)}
    for name, command_parser in find_subparsers(parser).items():
        pages[f"hbatune-{name}.8"] = _command_page(name, command_parser)
    pages["hbatune.toml.5"] = _configuration_page()
    pages["hbatune-rules.5"] = _rules_page()
    return pages


def _main_page(parser: argparse.ArgumentParser) -> str:
    body = [*_synopsis(parser), ".SH DESCRIPTION", inline(parser.description or "")]
    body.append(".SH COMMANDS")
    for group, names in GROUPS.items():
        title = load_help()["main"]["groups"][group]
        summaries = [(bold(f"hbatune-{name}(8)"), load_help()[name]["summary"]) for name in names]
        body += [f".SS {escape(title)}", list_terms(summaries)]
    body += _options(parser)
    body += [".SH OPTIONS OF EVERY COMMAND", _list_actions(parser, GLOBAL_OPTIONS)]
    body += [".SH EXAMPLES", _list_texts(load_help()["main"]["examples"])]
    body += [".SH EXIT STATUS", _list_texts(list_exit_codes())]
    body += [".SH FILES", _list_texts(_FILES)]
    body += _see_also("hbatune.toml(5)", "hbatune-rules(5)")
    return render_page("hbatune", 8, _ADMINISTRATION, _PURPOSE, body)


def _command_page(name: str, parser: argparse.ArgumentParser) -> str:
    texts = load_help()[name]
    body = [*_synopsis(parser), ".SH DESCRIPTION", inline(format_sentence(texts["summary"]))]
    body += [
        "hbatune(8) describes the options of every command, and the exit status.",
        *_options(parser),
        ".SH EXAMPLES",
        _list_texts(texts["examples"]),
        *_see_also("hbatune(8)", "hbatune.toml(5)", "hbatune-rules(5)"),
    ]
    return render_page(f"hbatune-{name}", 8, _ADMINISTRATION, texts["summary"], body)


def _configuration_page() -> str:
    """Return hbatune.toml(5): the page on the configuration, and its tables for `watch`."""
    text = (_DOCS / "configuration.md").read_text(encoding="utf-8")
    text = text.replace("[watch.md](watch.md) describes `[watch]` and `[metrics]`.\n", "")
    watch = (_DOCS / "watch.md").read_text(encoding="utf-8")
    body = convert_markdown(text + "\n## Alerts\n" + watch.partition("## Alerts\n")[2])
    body += _see_also("hbatune(8)", "hbatune-rules(5)")
    purpose = "the configuration of hbatune"
    return render_page("hbatune.toml", 5, _FORMATS, purpose, body)


def _rules_page() -> str:
    """Return hbatune-rules(5): the page on rules, and the settings that a rule can set."""
    text = (_DOCS / "write-your-first-rule.md").read_text(encoding="utf-8")
    settings = []
    for setting in SETTINGS.values():
        settings.append((setting.name, f"{setting.summary}; takes {setting.format.allowed}"))
    body = convert_markdown(text)
    body += [".SH SETTINGS", _list_texts(settings), *_see_also("hbatune(8)", "hbatune.toml(5)")]
    purpose = "local rules and profiles of hbatune"
    return render_page("hbatune-rules", 5, _FORMATS, purpose, body)


def _synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the usage of a command, its name in bold. No line ends within an option."""
    usage = " ".join(parser.format_usage().split()).removeprefix(f"usage: {parser.prog}")
    parts = [bold(parser.prog)]
    for argument in re.findall(r"\[[^]]*\]|\S+", usage):
        parts.append("\\%" + escape(argument).replace(" ", "\\ "))
    yield ".SH SYNOPSIS"
    yield " ".join(parts)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a section for each group of a command's arguments."""
    for group in parser._action_groups:
        if group.title != GLOBAL_OPTIONS and (text := _list_actions(parser, group.title)):
            title = (group.title or "").removeprefix("positional ")
            yield f".SH {escape(title.upper())}"
            yield text


def _list_actions(parser: argparse.ArgumentParser, title: str | None) -> str:
    """Return the arguments of a group with their help. Commands have a separate section."""
    formatter = parser._get_formatter()
    terms = []
    for group in parser._action_groups:
        for action in group._group_actions if group.title == title else ():
            if not isinstance(action, argparse._SubParsersAction):
                terms.append((_name_argument(formatter, action), formatter._expand_help(action)))
    return list_terms(terms)


def _name_argument(formatter: argparse.HelpFormatter, action: argparse.Action) -> str:
    """Return an option with its value, or the name of a positional argument."""
    if not action.option_strings:
        return italic(str(action.metavar or action.dest))
    names = ", ".join(bold(option) for option in action.option_strings)
    if action.nargs == 0:
        return names
    return f"{names} {italic(formatter._format_args(action, action.dest.upper()))}"


def _list_texts(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a list of terms in bold with their texts."""
    return list_terms([(bold(term), text) for term, text in pairs])


def _see_also(*pages: str) -> Iterator[str]:
    yield ".SH SEE ALSO"
    yield ", ".join(bold(page) for page in pages)


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
            return list(load_workloads(library))
        case "COMMAND" if not isinstance(action, argparse._SubParsersAction):
            return COMMANDS
    return None


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {**man_pages(), **{SHELLS[shell]: completion(shell) for shell in SHELLS}}


def main() -> None:
    """Write every file into the named directory."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
