"""Parses the command line, runs one command, and turns its errors into an exit code."""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from hbatune.cli.parser import parser_for
from hbatune.cli.text.output_options import output_options
from hbatune.errors import HbatuneError

INTERRUPTED = 1


def run(arguments: list[str]) -> int:
    """Run the command that the arguments name and return its exit code."""
    # Both end a command as Ctrl-C does: through the code that cleans up, with an exit code.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        parser, module = parser_for(arguments)
        parsed = parser.parse_args(arguments)
        assert module is not None
        if parsed.host is not None:
            from hbatune.cli.remote import run_on

            return run_on(parsed.host, arguments)
        with output_options(quiet=parsed.quiet, color=parsed.color):
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


def _output_fails() -> bool:
    """Whether the error came from standard output: then one more line fails, too."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _complain(error: HbatuneError) -> None:
    from hbatune.cli.text.output import printable

    with suppress(OSError):  # standard error may be closed; the exit code says it as well
        print(f"hbatune: {printable(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"         {printable(error.hint)}", file=sys.stderr)
