"""Parses the command line, runs one command, and turns its errors into an exit code."""

import argparse
import ast
import importlib
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

from hbatune import __version__
from hbatune.cli import COMMANDS
from hbatune.cli.text.pager import paged
from hbatune.errors import HbatuneError

INTERRUPTED = 1


def run(arguments: list[str]) -> int:
    """Run the command that the arguments name and return its exit code."""
    # Both end a command as Ctrl-C does: through the code that cleans up, with an exit code.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    name = next((word for word in arguments if not word.startswith("-")), None)
    module = _module(name) if name in COMMANDS else None
    try:
        # With the command's name first, no option can ask for the list of all: one parser will do.
        alone = module is not None and arguments[0] == name
        modules = tuple((each, module if each == name else None) for each in COMMANDS)
        parser = _parser(((name, module),) if alone and name else modules)
        parsed = parser.parse_args(arguments)
        assert module is not None
        with paged(parsed):
            code = module.run(parsed)
        # Here, so that a full disk or a closed pipe becomes an exit code and not a traceback.
        sys.stdout.flush()
    except HbatuneError as error:
        _complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        with suppress(OSError):
            print("hbatune: interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        if not _output_fails():
            raise
        # The rest of the buffer must not fail once more at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
        # The reader has gone (`hbatune diff | head`): that is its right, not an error to show.
        if not isinstance(error, BrokenPipeError):
            _complain(HbatuneError(f"the output cannot be written: {error.strerror}"))
        return INTERRUPTED
    assert isinstance(code, int)
    return code


def full_parser() -> argparse.ArgumentParser:
    """Return the parser with every command, from which man page and completion are made."""
    return _parser(tuple((name, _module(name)) for name in COMMANDS))


def _output_fails() -> bool:
    """Whether the error came from standard output: then one more line fails, too."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


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


def _complain(error: HbatuneError) -> None:
    from hbatune.cli.text.output import printable

    with suppress(OSError):  # standard error may be closed; the exit code says it as well
        print(f"hbatune: {printable(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"         {printable(error.hint)}", file=sys.stderr)
