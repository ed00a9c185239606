"""The command line: one module per command. It prints and chooses exit codes, and decides nothing.

A command is one module in ``commands``: ``SUMMARY``, ``GROUP``, ``EXAMPLES``,
``add_arguments(parser)`` and ``run(args) -> int``. The folder is the list of them. A module is
imported when its command is called, so that ``hbatune --version`` costs next to nothing.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from hbatune import __version__
from hbatune.cli.streams import open_standard_streams, with_output

COMMANDS = tuple(
    sorted(path.stem for path in (Path(__file__).parent / "commands").glob("[a-z]*.py"))
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Before anything else opens a file, which would take the number of a closed stream.
    open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        print(f"hbatune {__version__}")
        return with_output(0)
    from hbatune.cli.command import run

    return run(arguments)
