"""The command line: one module per command. It prints and chooses exit codes, and decides nothing.

A command is one module in ``commands``: ``SUMMARY``, ``GROUP``, ``EXAMPLES``,
``add_arguments(parser)`` and ``run(args) -> int``. The folder is the list of them. A module is
imported when its command is called, so that ``hbatune --version`` costs next to nothing.
"""

import atexit
import gc
import os
import sys
from collections.abc import Sequence

from hbatune import __version__
from hbatune.cli.streams import open_standard_streams, with_output

COMMANDS = tuple(
    sorted(
        name.removesuffix(".py")
        for name in os.listdir(f"{os.path.dirname(__file__)}/commands")
        if name.endswith(".py") and not name.startswith("_")
    )
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Before anything else opens a file, which would take the number of a closed stream.
    open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        print(f"hbatune {__version__}")
        return with_output(0)
    # What is imported stays: no collection is worth its time before the command runs (command.py).
    gc.disable()
    from hbatune.cli.command import run

    code = run(arguments)
    if argv is None:
        _end_process(code)
    return code


def _end_process(code: int) -> None:
    """End the process at once, unless it has other threads: all output is out.

    The interpreter would take apart first what a command has imported, which the kernel does in a
    tenth of the time.
    """
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
