"""Parse the command line, run one command, and turn its result or error into an exit code."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType, SimpleNamespace, TracebackType

from hbatune import TYPE_CHECKING
from hbatune.cli import GROUPS, streams
from hbatune.errors import ExitCode, HbatuneError
from hbatune.text.basic_output import page_output, set_output_options

if TYPE_CHECKING:
    from typing import Any

_DEFAULT_THRESHOLDS = gc.get_threshold()
_RARE_THRESHOLDS = (100_000, 50, 100)
"""Thresholds of the garbage collector (gc.set_threshold)."""

NO_OPTIONS = {"host": None, "quiet": False, "color": None}
"""The defaults of the global options (``arguments.add_global_options``)."""


def run_command(arguments: list[str]) -> int:
    """Run the named command, and return the exit code of its result or of its exception."""
    # Both end a command like Ctrl-C: it cleans up and returns an exit code.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    watch_for_faults(arguments, _print_message)
    try:
        code = _run_command(arguments)
    except HbatuneError as error:
        _print_message(error.message, *([error.hint] if error.hint else []))
        code = error.exit_code
    except KeyboardInterrupt:
        from hbatune.cli.fault import describe_interrupted_run

        _print_message("interrupted", *describe_interrupted_run())
        code = ExitCode.FOUND
    except SystemExit as end:
        status = streams.finish_output(end.code) if isinstance(end.code, int) else end.code
        raise SystemExit(status) from end
    except Exception as error:  # noqa: BLE001  (the last place to report it)
        from hbatune.cli.fault import describe_crash, describe_system_error, is_of_system

        if is_of_system(error):
            _print_message(*describe_system_error(error))
            code = ExitCode.FOUND
        else:
            _print_message(*describe_crash(error, arguments))
            code = ExitCode.FAULT
    return streams.finish_output(code)


def _run_command(arguments: list[str]) -> int:
    # In a script, a missing command is a mistake.
    if not arguments and sys.stdout.isatty():
        from hbatune.shipped import load_texts

        print(load_texts("commands.toml")["main"]["first_screen"], end="")
        return ExitCode.DONE
    module, parsed = _parse_arguments(arguments)
    is_look = module.__name__.rpartition(".")[2] in GROUPS["look"]
    if not gc.isenabled():  # main() disabled it
        gc.freeze()  # excludes imports from later collections and from copies in forked workers
        # A read-only command ends soon and keeps all data that it reads. At 32,768 LUNs, a tenth
        # of its time would be spent on looking for garbage.
        gc.set_threshold(*(_RARE_THRESHOLDS if is_look else _DEFAULT_THRESHOLDS))
        gc.enable()
    if parsed.host is not None:
        from hbatune.cli.remote import run_remote_command

        return run_remote_command(parsed.host, arguments)
    if is_look:
        _use_batch_scheduling()
    # A command that prints text for people accepts --no-pager.
    is_paged = getattr(parsed, "pager", False) and not getattr(parsed, "json", False)
    with set_output_options(quiet=parsed.quiet, color=parsed.color), page_output(is_paged):
        # The names in a snapshot are names of another machine.
        if getattr(parsed, "targets", None) and getattr(parsed, "snapshot", None) is None:
            from hbatune.cli.arguments import resolve_targets

            parsed.targets = resolve_targets(parsed.targets, parsed, shows_uses=not is_look)
        code = module.run(parsed)
    assert isinstance(code, int)
    return code


def _parse_arguments(arguments: list[str]) -> "tuple[ModuleType, Any]":
    """Return the module and the arguments of the command, without a parser for the daemon.

    Building a parser takes as long as starting the interpreter, and a daemon would keep it.
    """
    if arguments == ["daemon"]:
        return import_module("hbatune.cli.commands.daemon"), SimpleNamespace(**NO_OPTIONS)
    from hbatune.cli.parser import make_parser

    parser, command_module = make_parser(arguments)
    parsed = parser.parse_args(arguments)
    assert command_module is not None
    return command_module, parsed


def _use_batch_scheduling() -> None:
    """Use SCHED_BATCH, so this process preempts no other one when it wakes up (sched(7)).

    A read-only command on a busy server can wait. Its own reading processes would be preempted for
    each of their replies as well, which takes a twentieth of the CPU time for 4,096 LUNs.
    """
    if os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def watch_for_faults(arguments: list[str], report: Callable[[str], None]) -> None:
    """Report internal errors that end a worker or another process but not this one, a line each.

    ``sys.excepthook`` receives such an error. Each process reports the same error only once: the
    failing work may be repeated for thousands of disks.
    """
    reported: set[str] = set()

    def handle_exception(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception):
            sys.__excepthook__(kind, error, trace)
            return
        from hbatune.cli import fault  # heavy, and rarely needed

        if (text := fault.format_traceback(error)) not in reported:
            reported.add(text)
            with suppress(Exception):  # the interrupted work must continue
                report(fault.summarise_fault(error, arguments))

    sys.excepthook = handle_exception


def _print_message(message: str, *details: str) -> None:
    from hbatune.text.terminal import make_printable

    lines = [f"hbatune: {make_printable(message)}"]
    lines += [f"         {make_printable(detail)}" for detail in details]
    with suppress(OSError):  # standard error may be a foreign stream
        print("\n".join(lines), file=sys.stderr)
