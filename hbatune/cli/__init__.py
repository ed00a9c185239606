"""The command line: one module per command. It prints and chooses exit codes, and decides nothing.

Each module in ``commands`` is a command with ``add_arguments(parser)`` and ``run(args) -> int``.
``templates/commands.toml`` has the texts of its help. Only the module of the called command is
imported, so ``hbatune --version`` takes almost no time.
"""

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from itertools import chain

from hbatune import __version__
from hbatune.cli.streams import finish_output, open_standard_streams

GROUPS = {
    "look": (
        *("audit", "check", "compare", "config", "diff", "explain", "forecast", "help", "list"),
        *("profiles", "size", "snapshot", "status"),
    ),
    "change": ("apply", "daemon", "install", "rollback", "uninstall"),
    "measure": ("autotune", "capture", "history", "probe", "report", "watch", "why"),
}
"""The commands by group. The commands of ``look`` change nothing."""

COMMANDS = tuple(sorted(chain.from_iterable(GROUPS.values())))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # First of all: a file opened earlier would get the number of a closed stream.
    open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        print(f"hbatune {__version__}")
        return finish_output(0)
    # Imported objects are never freed: collecting before the command runs is useless (command.py).
    gc.disable()
    from hbatune.cli.command import run_command

    code = run_command(arguments)
    if argv is None:
        _end_process(code)
    return code


def _end_process(code: int) -> None:
    """End the process without freeing its modules, unless it has threads: the kernel is faster."""
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
