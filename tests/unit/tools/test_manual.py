"""The man pages and the completions have every command and option, since the parser has."""

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

from hbatune.cli.parser import load_help, make_full_parser
from hbatune.errors import ExitCode
from hbatune.policy.config import (
    ActConfig,
    Config,
    DaemonConfig,
    MetricsConfig,
    ProbeConfig,
    Site,
    WatchConfig,
)
from hbatune.policy.profile import LinkMatch, Match, Objective, ProbeSpec, Tolerance
from hbatune.policy.schema import RuleTable
from hbatune.settings.table import SETTINGS
from hbatune.shipped import find_message
from tools.manual import SHELLS, completion, files, man_pages


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the name and the parser of each subcommand."""
    for action in make_full_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


COMMANDS = dict(commands())


@cache
def plain_pages() -> dict[str, str]:
    """Return the man pages by file name, without roff's fonts and escapes."""
    pages = {}
    for name, text in man_pages().items():
        plain = re.sub(r"\\f.|\\%", "", text)
        pages[name] = plain.replace("\\-", "-").replace("\\(aq", "'")
    return pages


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page(command: str) -> None:
    text, texts = plain_pages()[f"hbatune-{command}.8"], load_help()[command]
    assert f".SH NAME\nhbatune-{command} - {texts['summary']}\n" in text.replace("`", "")
    terms = {term for line in text.splitlines() for term in line.split(" ")[:1]}
    assert options(COMMANDS[command]) - options(COMMANDS["help"]) <= terms
    for line, purpose in texts["examples"]:
        assert f"\n.TP\n{line}\n" in text, purpose


def test_main_page_names_all_pages() -> None:
    text = plain_pages()["hbatune.8"]
    for command in COMMANDS:
        assert f"\n.TP\nhbatune-{command}(8)\n" in text
    assert "hbatune.toml(5), hbatune-rules(5)" in text.partition(".SH SEE ALSO")[2]
    assert all(
        f"\n{code.value}\n{find_message(code).replace('`', '')}" in text for code in ExitCode
    )
    assert all(f"\n.SS {title}\n" in text for title in load_help()["main"]["groups"].values())


def test_common_options_are_on_main_page() -> None:
    pages = [name for name, text in plain_pages().items() if "--color WHEN" in text]
    assert pages == ["hbatune.8"]


def require_keys(keys: tuple[str, ...], text: str) -> None:
    missing = [key for key in keys if not re.search(rf"\b{key}\b", text)]
    assert not missing


def test_format_pages_have_all_keys() -> None:
    toml, rules = plain_pages()["hbatune.toml.5"], plain_pages()["hbatune-rules.5"]
    for shape in (Config, Site, ActConfig, ProbeConfig, DaemonConfig, WatchConfig, MetricsConfig):
        require_keys(shape.__struct_fields__, toml)
    for shape_of_rules in (RuleTable, Match, Objective, ProbeSpec, Tolerance, LinkMatch):
        require_keys(shape_of_rules.__struct_fields__, rules)
    assert all(f"\n.TP\n{name}\n" in rules for name in SETTINGS)


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


@pytest.mark.skipif(not (shutil.which("man") or shutil.which("groff")), reason="no man, no groff")
def test_man_pages_render_without_warnings(tmp_path: Path) -> None:
    for name, text in man_pages().items():
        (tmp_path / name).write_text(text)
    names = sorted(man_pages())
    words = ["man", "--warnings", "--local-file", *names]
    if shutil.which("man") is None:
        words = ["groff", "-man", "-ww", "-Kutf8", "-Tutf8", *names]
    env = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env, cwd=tmp_path)
    assert done.stderr == ""
    assert "hbatune explain [-h]" in done.stdout


def test_generated_files_have_standard_names() -> None:
    pages = {"hbatune.8", "hbatune.toml.5", "hbatune-rules.5"}
    pages |= {f"hbatune-{command}.8" for command in COMMANDS}
    assert set(files()) == {*pages, "hbatune.bash", "_hbatune", "hbatune.fish"}
