"""Runs commands on a described machine, the snapshot of it among them, in one process.

``python -m tests.hosts.recorded FOLDER`` leaves there ``host.snapshot``, ``anonymous.snapshot``
and, for each of ``COMMANDS``, what it printed.
"""

import contextlib
import io
import sys
from pathlib import Path

from hbatune.act.paths import Paths
from hbatune.cli import main

COMMANDS: dict[str, list[str]] = {
    "diff": ["diff", "--profile", "oltp", "--json"],
    "options": ["diff", "--profile", "oltp", "--module-options", "--json"],
    "list": ["list", "--json"],
    "check": ["check", "--profile", "oltp", "--json"],
}


def output(arguments: list[str]) -> tuple[int, str]:
    """Return a command's exit code and what it printed to standard output."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(arguments)
    return code, printed.getvalue()


def record(folder: Path) -> None:
    """Take both snapshots and run every command; what `check` remembers stays in the folder."""
    Paths.counters = folder / "counters"
    assert output(["snapshot", str(folder / "host.snapshot")])[0] == 0
    assert output(["snapshot", "--anonymous", str(folder / "anonymous.snapshot")])[0] == 0
    for name, arguments in COMMANDS.items():
        code, text = output(arguments)
        (folder / f"{name}.json").write_text(text)
        (folder / f"{name}.code").write_text(str(code))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
