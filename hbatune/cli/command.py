"""Parses the command line, runs one command, and turns whatever comes of it into an exit code."""

import argparse
import ast
import importlib
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from hbatune import __version__
from hbatune.cli import COMMANDS
from hbatune.cli.streams import with_output
from hbatune.errors import HbatuneError

INTERRUPTED = 1
FAULT = 70
"""A fault of hbatune itself (sysexits.h: EX_SOFTWARE)."""


def run(arguments: list[str]) -> int:
    """Run the command that the arguments name and return its exit code.

    Whatever happens becomes a message and an exit code. SystemExit leaves it as argparse raises
    it: after help, and for bad usage.
    """
    # Both end a command as Ctrl-C does: through the code that cleans up, with an exit code.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        code = _run(arguments)
    except HbatuneError as error:
        _complain(error.message, *([error.hint] if error.hint else []))
        code = error.exit_code
    except KeyboardInterrupt:
        from hbatune.cli.fault import lines_on_run

        _complain("interrupted", *lines_on_run())
        code = INTERRUPTED
    except SystemExit as end:
        raise SystemExit(with_output(end.code) if isinstance(end.code, int) else end.code) from end
    except Exception as error:  # noqa: BLE001  (what is not expected here, nobody else will see)
        from hbatune.cli.fault import lines_on

        _complain(*lines_on(error, arguments))
        code = FAULT
    return with_output(code)


def _run(arguments: list[str]) -> int:
    """Parse the arguments and run the command; raise whatever it raises."""
    name = next((word for word in arguments if not word.startswith("-")), None)
    module = _module(name) if name in COMMANDS else None
    # With the command's name first, no option can ask for the list of all: one parser will do.
    alone = module is not None and arguments[0] == name
    modules = tuple((each, module if each == name else None) for each in COMMANDS)
    parser = _parser(((name, module),) if alone and name else modules)
    parsed = parser.parse_args(arguments)
    assert module is not None
    code = module.run(parsed)
    assert isinstance(code, int)
    return code


def full_parser() -> argparse.ArgumentParser:
    """Return the parser with every command, from which man page and completion are made."""
    return _parser(tuple((name, _module(name)) for name in COMMANDS))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"hbatune.cli.commands.{name}")


def _parser(modules: tuple[tuple[str, ModuleType | None], ...]) -> argparse.ArgumentParser:
    """Return the parser of these commands; one without its module is only listed."""
    parser = argparse.ArgumentParser(
        prog="hbatune",
        description="Tunes storage adapters, proves that it helped, and can put everything back. "
        "First look: list, check, profiles, diff. Then: apply, which rollback undoes; install "
        "keeps a profile from boot on.",
        epilog="Exit codes: 0 done, no drift; 1 drift, or not everything could be made so; "
        "2 bad usage or configuration, or not permitted; 3 another hbatune is at work.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"hbatune {__version__}")
    commands = parser.add_subparsers(
        metavar="COMMAND", required=True, parser_class=_IntermixedParser
    )
    for name, module in modules:
        summary = _summary(name) if module is None else module.SUMMARY
        described = commands.add_parser(name, help=summary, description=_sentence(summary))
        if module is not None:
            module.add_arguments(described)
    return parser


def _summary(command: str) -> str:
    """Return a command's SUMMARY, parsed from its source: importing all commands takes a second."""
    source = (Path(__file__).parent / "commands" / f"{command}.py").read_bytes()
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=[ast.Name("SUMMARY")], value=ast.Constant(value=str(text))):
                return text
    raise AssertionError(f"{command} has no SUMMARY")


class _IntermixedParser(argparse.ArgumentParser):
    """Accepts options between positional arguments: ``probe qd1 --runtime 5 sda``."""

    _within = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if self._within:  # parse_known_intermixed_args calls back here for each of its two passes
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _complain(message: str, *more: str) -> None:
    """Print a message to standard error, with further lines below it."""
    from hbatune.cli.text.output import printable

    lines = (f"hbatune: {printable(message)}", *(f"         {printable(each)}" for each in more))
    with suppress(OSError):  # where standard error is not hbatune's own stream
        print("\n".join(lines), file=sys.stderr)
