"""The man page and the completions have every command and option, since the parser has."""

import argparse
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hbatune.cli.parser import GROUP_TITLES, make_full_parser
from hbatune.errors import ExitCode
from hbatune.settings.table import SETTINGS
from tools.manual import SHELLS, completion, files, man_page


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the name and the parser of each subcommand."""
    for action in make_full_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


COMMANDS = dict(commands())


@cache
def plain_manual() -> str:
    """Return the man page without roff's fonts and escapes."""
    return re.sub(r"\\f.|\\[,/]", "", man_page()).replace("\\-", "-")


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("command", COMMANDS)
def test_man_page_covers_commands(command: str) -> None:
    text = plain_manual()
    assert f"hbatune {command}" in text
    assert all(option in text for option in options(COMMANDS[command]) - {"-h", "--help"})


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_covers_commands(shell: str) -> None:
    text = completion(shell)
    for command, parser in COMMANDS.items():
        assert command in text
        assert all(option.lstrip("-") in text for option in options(parser)), command


def complete_line(*words: str, before: str = "") -> list[str]:
    """Return bash's completions of the last word, after the script was sourced."""
    line = shlex.join(words)
    script = f"""
    {completion("bash")}
    {before}
    COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}
    _shtab_hbatune hbatune {shlex.quote(words[-1])} {shlex.quote(words[-2])} 2>/dev/null
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("hbatune roll", ["rollback"]),
        ("hbatune -H db1 roll", ["rollback"]),
        ("hbatune diff --sna", ["--snapshot"]),
        ("hbatune diff --qui", ["--quiet"]),
        ("hbatune diff --color a", ["auto", "always"]),
        ("hbatune diff --profile l", ["latency"]),
        ("hbatune profiles ol", ["oltp"]),
        ("hbatune explain sda nr_", ["nr_requests"]),
        ("hbatune probe depth-", ["depth-sweep"]),
        ("hbatune help snap", ["snapshot"]),
    ],
)
def test_bash_completes_next_argument(line: str, offered: list[str]) -> None:
    assert complete_line(*line.split(" ")) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_local_targets() -> None:
    listed = "ls() { printf '%s\\n' /sys/block: loop0 sda sdb sr0 '' /sys/class/nvme: nvme0; }"
    for command in ("diff", "explain", "rollback", "watch"):
        assert complete_line("hbatune", command, "", before=listed) == ["sda", "sdb", "nvme0"]
    assert complete_line("hbatune", "probe", "qd1", "s", before=listed) == ["sda", "sdb"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_file_paths(tmp_path: Path) -> None:
    (tmp_path / "db1.snap").touch()
    (tmp_path / "image").mkdir()
    offered = complete_line("hbatune", "list", "--snapshot", f"{tmp_path}/db")
    assert offered == [f"{tmp_path}/db1.snap"]
    assert complete_line("hbatune", "install", "--root", f"{tmp_path}/") == [f"{tmp_path}/image"]


CHECKS = {"bash": ("bash", "-n"), "zsh": ("zsh", "-n"), "fish": ("fish", "--no-execute")}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_passes_shell_check(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    path = tmp_path / SHELLS[shell]
    path.write_text(completion(shell))
    done = subprocess.run([*CHECKS[shell], path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_covers_settings(shell: str) -> None:
    text = completion(shell)
    assert all(name in text for name in (*SETTINGS, "oltp", "balanced", "four-corners"))


def test_man_page_covers_settings() -> None:
    text = plain_manual()
    assert all(f"\n.B {name}\n" in text for name in SETTINGS)
    assert all(f"\n.B {code.value}\n{code.meaning}" in text for code in ExitCode)
    assert all(f"\n.B {title}\n" in text for title in GROUP_TITLES.values())
    assert text.count("--color WHEN") == 1, "told once, and not with every command"


@pytest.mark.skipif(shutil.which("man") is None, reason="no man")
def test_man_page_is_clean(tmp_path: Path) -> None:
    (tmp_path / "hbatune.8").write_text(man_page())
    words = ["man", "--warnings", "-l", str(tmp_path / "hbatune.8")]
    env = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
    assert done.stderr == ""
    assert "hbatune explain" in done.stdout


def test_generated_files_have_standard_names() -> None:
    assert set(files()) == {"hbatune.8", "hbatune.bash", "_hbatune", "hbatune.fish"}
