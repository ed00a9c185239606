"""A command is one file: the list, its help and what is imported follow from the folder."""

import pytest

from hbatune.cli import COMMANDS, main
from hbatune.cli.parser import make_full_parser


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
