"""The parser of the command line: grouped commands, help with examples, and plain errors."""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from types import ModuleType
from typing import Any, NoReturn

from hbatune import __version__
from hbatune.cli import COMMANDS, GROUPS
from hbatune.cli.arguments import GLOBAL_OPTIONS, add_global_options, is_option
from hbatune.errors import ExitCode, UsageError
from hbatune.shipped import find_message, load_texts
from hbatune.text.basic_output import format_sentence

_WIDTH = 80
"""The minimum terminal width for which help is formatted, in characters."""


def find_command_name(arguments: Sequence[str]) -> str | None:
    """Return the argument in the position of the command's name, or None."""
    words = iter(arguments)
    for argument in words:
        if is_option(argument, "-H", "--host", "--color"):
            next(words, None)  # its value
        elif not argument.startswith("-"):
            return argument
    return None


def make_parser(arguments: Sequence[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """Return the parser, and the module of the named command, the only one that is imported."""
    name = find_command_name(arguments)
    if name is None:
        return _make_parser(dict.fromkeys(COMMANDS)), None
    module = import_command(name)
    # If the command's name is first, no option can request the list of all: one parser is enough.
    modules: dict[str, ModuleType | None] = {} if arguments[0] == name else dict.fromkeys(COMMANDS)
    return _make_parser({**modules, name: module}), module


def make_full_parser() -> argparse.ArgumentParser:
    """Return the parser with every command, the source of man pages and completion."""
    parser = _make_parser({name: import_command(name) for name in COMMANDS})
    for command_parser in (parser, *find_subparsers(parser).values()):
        _fill_help(command_parser)
    return parser


def format_help_page(command: str | None) -> str:
    """Return the help of a command, or the main help. UsageError if there is no such command."""
    if command is None:
        return _make_parser(dict.fromkeys(COMMANDS)).format_help()
    return find_subparsers(_make_parser({command: import_command(command)}))[command].format_help()


def find_subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, by name."""
    [subparsers_action] = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(subparsers_action.choices)


def import_command(name: str) -> ModuleType:
    """Import and return the module of a command. UsageError if there is no such command."""
    if name not in COMMANDS:
        hint = _find_nearest(name, COMMANDS) or "`hbatune --help` shows all commands"
        raise UsageError(f"there is no command {name!r}", hint=hint)
    return importlib.import_module(f"hbatune.cli.commands.{name}")


def _make_parser(modules: Mapping[str, ModuleType | None]) -> argparse.ArgumentParser:
    """Return the parser of these commands; one without its module is only listed."""
    parser = _Parser(prog="hbatune")
    version = f"hbatune {__version__}"
    parser.add_argument(
        "-V", "--version", action="version", version=version, help="show the version"
    )
    add_global_options(parser, defaults=True)
    commands = parser.add_subparsers(
        metavar="COMMAND", required=True, title="commands", parser_class=_CommandParser
    )
    for name, module in modules.items():
        summary = load_help()[name]["summary"] if len(modules) > 1 else None
        command_parser = commands.add_parser(name, help=summary)
        if module is not None:
            module.add_arguments(command_parser)
        add_global_options(command_parser, defaults=False)  # it runs after the main parser
    return parser


# Messages are parsed here, in English (_simplify_message). Translations would import many modules.
argparse._ = str  # type: ignore[attr-defined]


def _get_columns() -> int:
    """Return the width of the terminal like shutil, which every parser would have to import."""
    with suppress(ValueError):
        if (width := int(os.environ.get("COLUMNS", ""))) > 0:
            return width
    with suppress(AttributeError, ValueError, OSError):
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _WIDTH  # type: ignore[union-attr]
    return _WIDTH


class _Formatter(argparse.HelpFormatter):
    """Fills the paragraphs of a text; in lists, which have indented lines, only long lines."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_get_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        limit = min(width, _WIDTH - 2)
        parts = []
        for part in text.split("\n\n"):
            if "\n  " in part:
                folded = (_fold_line(line, limit) for line in part.split("\n"))
                parts.append("\n".join(chain.from_iterable(folded)))
            else:
                parts.append(super()._fill_text(part, width, indent))
        return "\n\n".join(parts)


_MIN_TEXT_WIDTH = 24
"""The minimum width of a text next to its name; if less is available, it is below the name."""


def _fold_line(line: str, width: int) -> list[str]:
    """Return a line of a list, wrapped, but not within its name: it may be a command to copy."""
    split = re.fullmatch(r"( *\S.*? {2,}| {5,})(\S.*)", line)
    if len(line) <= width or split is None:
        return [line]
    before, text = split.groups()
    name = ""
    if width - len(before) < _MIN_TEXT_WIDTH:
        name, before = before.rstrip(), " " * 6
    import textwrap  # only help has paragraphs

    lines = textwrap.wrap(
        text,
        width,
        initial_indent=before,
        subsequent_indent=" " * len(before),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [name, *lines] if name else lines


class _Parser(argparse.ArgumentParser):
    """Shows commands in groups, and raises UsageError for invalid arguments."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, formatter_class=_Formatter, add_help=False)

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Return the parsed arguments. UsageError for an unknown option."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._refuse_unknown(find_command_name(args), unknown)
        if parsed.quiet and getattr(parsed, "json", False):
            raise UsageError("--quiet prints nothing, and --json prints output: name one of them")
        if getattr(parsed, "csv", False) and getattr(parsed, "json", False):
            raise UsageError("--json and --csv both print to standard output: name one of them")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with a plain form of argparse's message."""
        hint = f"`{self.prog} --help` shows how to use it"
        raise UsageError(_simplify_message(message), hint=hint)

    def format_usage(self) -> str:
        """Return the usage without the global options, which are the same for all commands."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, list(self._get_own_actions()), [])
        return formatter.format_help()

    def format_help(self) -> str:
        """Return the complete help."""
        _fill_help(self)
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, list(self._get_own_actions()), [])
        formatter.add_text(self.description)
        sections: list[tuple[str | None, list[argparse.Action]]] = []
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                commands = action._get_subactions()
                for name, heading in load_help()["main"]["groups"].items():
                    members = [command for command in commands if command.dest in GROUPS[name]]
                    sections.append((heading, members))
        for group in self._action_groups:
            if group is not self._subparsers:
                sections.append((group.title, group._group_actions))
        for title, actions in sections:
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _get_own_actions(self) -> Iterator[argparse.Action]:
        """Yield -h, which describes the global options, and the other arguments."""
        for group in sorted(self._action_groups, key=lambda group: group.title != GLOBAL_OPTIONS):
            yield from group._group_actions[: 1 if group.title == GLOBAL_OPTIONS else None]

    def _refuse_unknown(self, command: str | None, unknown: Sequence[str]) -> NoReturn:
        parser = find_subparsers(self)[command] if command else self
        argument = unknown[0]
        if not argument.startswith("-"):
            problem = f"`{parser.prog}` does not take {argument!r}"
            raise UsageError(problem, hint=f"`{parser.prog} --help` shows its arguments")
        option = argument.partition("=")[0]
        options = [name for name in parser._option_string_actions if name.startswith("--")]
        hint = _find_nearest(option, options) or f"`{parser.prog} --help` shows its options"
        raise UsageError(f"`{parser.prog}` has no option {option!r}", hint=hint)


class _CommandParser(_Parser):
    """Accepts options between positional arguments: ``probe qd1 --runtime 5 sda``."""

    _within = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if self._within:  # parse_known_intermixed_args calls this method for each of its two passes
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


def load_help() -> dict[str, Any]:
    """Return summary, examples and options of each command; ``main`` has what they share."""
    return load_texts("commands.toml")


def _fill_help(parser: argparse.ArgumentParser) -> None:
    """Add the description, the examples and the arguments' help from templates/commands.toml."""
    texts = load_help()
    options, command = texts["main"]["options"], parser.prog.rpartition(" ")[2]
    if parser._subparsers is not None:
        codes = [f"  {number:>3}  {meaning}" for number, meaning in list_exit_codes()]
        examples = _format_examples(texts["main"]["examples"])
        parser.description = texts["main"]["description"]
        parser.epilog = "\n".join((examples, "", "exit codes:", *codes))
    else:
        options = {**options, **texts[command].get("options", {})}
        parser.description = format_sentence(texts[command]["summary"])
        parser.epilog = _format_examples(texts[command]["examples"])
    for action in parser._actions:
        if action.help is None:
            action.help = options.get((action.option_strings or [action.dest])[-1])


def _format_examples(examples: Sequence[tuple[str, str]]) -> str:
    """Return the examples for the end of a help text; a long command line has two lines."""
    widest = max(len(line) for line, _ in examples if len(line) <= _WIDTH // 2)
    lines = ["examples:"]
    for line, purpose in examples:
        if len(line) <= widest:
            lines.append(f"  {line:<{widest}}  {purpose}")
        else:
            lines += [f"  {line}", f"  {'':<{widest}}  {purpose}"]
    return "\n".join(lines)


def list_exit_codes() -> list[tuple[str, str]]:
    """Return each number with its meaning, in the order of the numbers."""
    return [(str(code.value), find_message(code)) for code in sorted(ExitCode)]


_PLAIN = (
    (r"the following arguments are required: (.+)", r"\1 is missing"),
    (r"argument (\S+): expected (?:one|at least one) argument", r"\1 needs a value"),
    (r"argument (\S+): takes (.+)", r"\1 takes \2"),
    (r"argument (\S+): (.+)", r"\1: \2"),
)
"""Patterns of argparse's messages, and their replacements."""

_CHOICE = r"argument (\S+): invalid choice: (.+) \(choose from (.+)\)"


def _simplify_message(message: str) -> str:
    if (match := re.fullmatch(_CHOICE, message, re.DOTALL)) is not None:
        choices = match[3].replace("'", "")  # some versions of Python quote each of them
        return f"{match[1]} takes {choices}, and not {match[2]}"
    for pattern, plain in _PLAIN:
        if (match := re.fullmatch(pattern, message, re.DOTALL)) is not None:
            return match.expand(plain)
    return message


def _find_nearest(name: str, candidates: Iterable[str]) -> str | None:
    from hbatune.policy.toml_files import suggest_nearest  # here, as only errors need it

    return suggest_nearest(name, candidates)
