"""The man page and the completions have every command and option, since the parser has."""

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest

from hbatune.cli.parser import full_parser
from tools.manual import SHELLS, completion, files, man_page


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the name and the parser of each subcommand."""
    for action in full_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


COMMANDS = dict(commands())


@cache
def plain_manual() -> str:
    """Return the man page without roff's fonts and escapes."""
    return re.sub(r"\\f.|\\[,/]", "", man_page()).replace("\\-", "-")


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {word for action in parser._actions for word in action.option_strings}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_man_page_describes_every_command_with_its_options(command: str) -> None:
    text = plain_manual()
    assert f"hbatune {command}" in text
    assert all(option in text for option in options(COMMANDS[command]) - {"--help"})


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_knows_every_command_and_option(shell: str) -> None:
    text = completion(shell)
    for command, parser in COMMANDS.items():
        assert command in text
        assert all(option.lstrip("-") in text for option in options(parser)), command


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_a_command_and_an_option() -> None:
    script = f"""
    {completion("bash")}
    COMP_WORDS=(hbatune roll) COMP_CWORD=1
    _shtab_hbatune hbatune roll hbatune 2>/dev/null
    echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rollback"]


def test_each_file_goes_by_the_name_that_its_reader_looks_for() -> None:
    assert set(files()) == {"hbatune.8", "hbatune.bash", "_hbatune", "hbatune.fish"}
