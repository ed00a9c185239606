"""A command is one file, an entry in the list, and the texts of its help."""

from pathlib import Path

import pytest

from hbatune.cli import COMMANDS, commands, main
from hbatune.cli.parser import find_subparsers, load_help, make_full_parser


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


def test_each_option_text_is_used() -> None:
    used = {"main": set[str](), **{command: set[str]() for command in COMMANDS}}
    for command, parser in find_subparsers(make_full_parser()).items():
        for action in parser._actions:
            name = (action.option_strings or [action.dest])[-1]
            texts = load_help()[command].get("options", {})
            used[command if name in texts else "main"].add(name)
    for command, texts in load_help().items():
        assert set(texts.get("options", {})) <= used[command], command


@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: hbatune {command} ")
