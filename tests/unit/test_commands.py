"""A command is one file: the list, its help and what is imported follow from the folder."""

import subprocess
import sys

import pytest

from hbatune.cli import COMMANDS, main
from hbatune.cli.parser import make_full_parser

IMPORTED = "import sys; print(*sorted(each for each in sys.modules if each.startswith('hbatune')))"


def imported_by(*arguments: str) -> set[str]:
    code = (
        "import atexit; from hbatune.cli import main\n"
        f"atexit.register(lambda: exec({IMPORTED!r}))\n"
        f"main({list(arguments)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_help_summarizes_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert make_full_parser().format_help() == listed, (
        "summaries are read without importing anything"
    )
    assert all(f"\n  {command} " in listed for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: hbatune {command} ")


def test_version_imports_little() -> None:
    cli = {"hbatune.cli", "hbatune.cli.streams", "hbatune.errors"}
    assert imported_by("--version") == {"hbatune", *cli}


def test_command_imports_no_sibling() -> None:
    commands = {each for each in imported_by("diff", "--help") if "cli.commands." in each}
    assert commands == {"hbatune.cli.commands.diff"}
