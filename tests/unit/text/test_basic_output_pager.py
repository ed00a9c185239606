"""Long text on a terminal goes through a pager, as git's does; nothing else does."""

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.cli import COMMANDS, main
from hbatune.cli.parser import make_full_parser
from hbatune.text.basic_output import find_pager, page_output
from hbatune.text.terminal import print_note
from tests.unit.terminals import Terminal

Run = Callable[..., tuple[int, str, str]]


class Stream(Terminal):
    """A terminal, or something that is none."""

    def __init__(self, *, live: bool) -> None:
        super().__init__()
        self._live = live

    def isatty(self) -> bool:
        return self._live


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a function that runs a command: its code, what the pager got, what was printed."""
    got = tmp_path / "paged"
    monkeypatch.setenv("HBATUNE_PAGER", f"cat > {got}")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("SUDO_UID", "DOAS_USER", "PKEXEC_UID"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: str, live: bool = True) -> tuple[int, str, str]:
        out = Stream(live=live)
        monkeypatch.setattr(sys, "stdout", out)
        got.unlink(missing_ok=True)
        code = main(list(words))
        return code, got.read_text() if got.exists() else "", out.getvalue()

    return call


def test_terminal_output_is_paged(run: Run) -> None:
    code, paged_text, printed = run("profiles", "oltp")
    assert code == 0
    assert "nr-requests" in paged_text
    assert printed == ""
    assert "\x1b[1m" in paged_text, "colours as on the terminal itself"


@pytest.mark.parametrize("words", [("--no-pager",), ("--json",)])
def test_option_or_json_disables_pager(run: Run, words: tuple[str, ...]) -> None:
    code, paged_text, printed = run("profiles", *words)
    assert (code, paged_text) == (0, "")
    assert "oltp" in printed
    if words == ("--json",):
        json.loads(printed)


def test_pipe_output_skips_pager(run: Run) -> None:
    code, paged_text, printed = run("profiles", live=False)
    assert (code, paged_text) == (0, "")
    assert "oltp" in printed


def test_early_exit_is_harmless(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HBATUNE_PAGER", "true")
    assert run("profiles", "oltp")[0] == 0


@pytest.mark.parametrize("pager", ["no-such-program", "/", "exec no-such-program -R"])
def test_missing_pager_prints_text(run: Run, monkeypatch: pytest.MonkeyPatch, pager: str) -> None:
    monkeypatch.setenv("HBATUNE_PAGER", pager)
    code, _, printed = run("profiles")
    assert code == 0
    assert "oltp" in printed


def test_error_still_prints_text(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Stream(live=True)
    monkeypatch.setattr(sys, "stdout", out)

    def fail() -> None:
        with page_output(True):
            print("half of it")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert out.getvalue() == "half of it\n"
    assert sys.stdout is out


@pytest.mark.parametrize("together", [True, False])
def test_shared_terminal_pages_messages(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, together: bool
) -> None:
    out, err = Stream(live=True), Stream(live=together)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with page_output(True):
        print("text")
        print_note("a message")
    assert ("a message" in (tmp_path / "paged").read_text()) is together
    assert ("a message" in err.getvalue()) is not together


@pytest.mark.parametrize("command", COMMANDS)
def test_only_reporting_commands_are_paged(command: str) -> None:
    takes = {"list", "profiles", "explain", "diff", "check", "history", "status"}
    takes |= {"audit", "compare", "config", "forecast", "size"}
    parser = make_full_parser()
    [commands] = [action for action in parser._actions if isinstance(action.choices, dict)]
    assert isinstance(commands.choices, dict)
    options = commands.choices[command]._option_string_actions
    assert ("--no-pager" in options) is (command in takes)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PAGER": "most"}, "most"),
        ({"PAGER": "most", "HBATUNE_PAGER": "more"}, "more"),
        ({"PAGER": "most", "HBATUNE_PAGER": ""}, None),
        ({"PAGER": "cat"}, None),
        ({"TERM": "dumb"}, None),
        # A shell as root is not to be had by way of a pager.
        ({"PAGER": "sh -c id", "SUDO_UID": "1000"}, "less"),
        ({"PAGER": "cat", "SUDO_UID": "1000"}, None),
    ],
)
def test_environment_selects_pager(
    environment: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert find_pager(environment) == expected


def test_sudo_runs_less_securely(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "said"
    fake = tmp_path / "less"
    fake.write_text(f'#!/bin/sh\necho "$LESSSECURE $LESS [$LESSOPEN]" > {log}\ncat > /dev/null\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("LESSOPEN", "|id")
    monkeypatch.delenv("LESS", raising=False)
    assert run("profiles")[0] == 0
    assert log.read_text() == "1 FRX []\n"
    assert isinstance(sys.stdout, io.StringIO)
