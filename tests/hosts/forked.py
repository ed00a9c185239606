"""hbatune's commands in forks of one process on a described machine: Python starts once."""

from collections.abc import Sequence
from importlib import import_module

from hbatune.cli import COMMANDS, main
from tests.kernel.ptrace import Run

for command in COMMANDS:
    import_module(f"hbatune.cli.commands.{command}")


def run_forked(words: Sequence[str]) -> tuple[int, str, str]:
    """Run hbatune as a new process; return its exit code and what it printed on both streams."""

    def run_command() -> int:
        try:
            return main(list(words))
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1

    ended = Run(run_command).wait()
    return ended.code, ended.out, ended.err
