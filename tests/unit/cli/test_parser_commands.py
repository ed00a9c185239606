"""A command is one file, an entry in the list, and the texts of its help."""

from pathlib import Path

import pytest

from hbatune.cli import COMMANDS, commands, main
from hbatune.cli.parser import load_help, make_full_parser


def test_help_summarizes_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert make_full_parser().format_help() == listed, (
        "summaries are read without importing anything"
    )
    assert all(f"\n  {command} " in listed for command in COMMANDS)


def test_all_commands_are_listed() -> None:
    folder = Path(commands.__file__).parent
    assert set(COMMANDS) == {file.stem for file in folder.glob("[!_]*.py")}
    assert set(load_help()) == {"main", *COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: hbatune {command} ")
