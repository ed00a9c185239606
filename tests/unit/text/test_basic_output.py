"""--quiet and --color: what is printed, and how, is the caller's to say."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hbatune.cli import COMMANDS, main
from hbatune.errors import UsageError
from hbatune.facts.model import Machine
from hbatune.operations import context
from hbatune.operations.context import Task, TaskFailed
from hbatune.text.basic_output import is_quiet, make_console, set_output_options
from hbatune.text.notes import show_note
from hbatune.text.terminal import print_heading, show_progress
from tests.unit.command_runs import see_machine
from tests.unit.machines import attributes, endpoint, machine

MAIN = "import sys; from hbatune.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def drifted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """Return a machine with a disk that differs from oltp, and let commands read it."""
    server = machine(
        endpoint(
            attributes=attributes(
                queue__scheduler="none [mq-deadline]",
                queue__nr_requests="256",
                device__queue_depth="254",
            )
        )
    )
    see_machine(monkeypatch, lambda: server)
    return server


@pytest.mark.parametrize(
    "words",
    [["--quiet", "diff", "--profile", "oltp"], ["diff", "--profile", "oltp", "--quiet"]],
    ids=" ".join,
)
def test_quiet_drift_exits_1(
    words: list[str], drifted: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    assert capsys.readouterr() == ("", "")
    assert main([argument for argument in words if argument != "--quiet"]) == 1
    assert capsys.readouterr().out != ""


def test_quiet_prints_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "--profile", "oltpp", "--quiet"]) == 2
    assert "oltpp" in capsys.readouterr().err


def test_quiet_conflicts_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quiet", "diff", "--json"]) == 2
    assert "--json prints output" in capsys.readouterr().err


def test_quiet_prints_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    warning = TaskFailed(Task.SAVE_HISTORY, UsageError("the disk is full"))
    with set_output_options(quiet=True, color=None):
        show_note(context.ComparisonsAhead(8, 45.0, 600))
        show_note(context.RunsAhead(3, 6.0, False))
        assert capsys.readouterr() == ("", "")
        show_note(context.RunsAhead(3, 6.0, True))
        assert "they WRITE" in capsys.readouterr().err
        show_note(warning)
        assert "the disk is full" in capsys.readouterr().err
    assert not is_quiet()
    show_note(context.ComparisonsAhead(8, 45.0, 600))
    assert "comparing 8 endpoints" in capsys.readouterr().err


def test_quiet_hides_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with set_output_options(quiet=True, color=None), show_progress("probe", 2) as advance:
        assert advance.__name__ == "<lambda>"


def test_dumb_terminal_messages_stay_unbroken() -> None:
    """rich takes such a terminal for one of 80 columns, and breaks what is printed meanwhile."""
    script = (
        "from hbatune.text.terminal import show_progress\n"
        "import sys\n"
        "with show_progress('probing', 2) as advance:\n"
        "    print('word ' * 20 + 'end', file=sys.stderr)\n"
    )
    output = on_terminal([], {"TERM": "dumb"}, script)
    assert "\n" not in output.partition("end")[0]


COLORED: list[tuple[list[str], dict[str, str], bool]] = [
    ([], {}, True),
    ([], {"NO_COLOR": "1"}, False),
    (["--color=auto"], {"NO_COLOR": "1"}, False),
    (["--color=always"], {"NO_COLOR": "1"}, True),
    (["--color=never"], {}, False),
    (["--color=never"], {"FORCE_COLOR": "1"}, False),
]


def on_terminal(words: list[str], extra: dict[str, str], script: str = MAIN) -> str:
    """Return the terminal output of hbatune or of the script."""
    ours, theirs = pty.openpty()
    env = {"PATH": os.environ["PATH"], "TERM": "xterm", "HBATUNE_PAGER": "cat", **extra}
    command = [sys.executable, "-c", script, *words]
    subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, check=False)
    os.close(theirs)
    output = b""
    while True:
        try:
            output += os.read(ours, 65536)
        except OSError:  # EIO: all was read
            break
    os.close(ours)
    return output.decode()


def test_bare_command_shows_first_screen() -> None:
    lines = on_terminal([], {}).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    commands = {line.split("hbatune ")[1].split()[0] for line in lines if "    hbatune " in line}
    assert commands == {"status", "list", "diff", "check"}
    assert commands <= set(COMMANDS)


@pytest.mark.parametrize(("words", "extra", "colored"), COLORED)
def test_color_option_overrides_environment(
    words: list[str], extra: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in extra.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    color = words[0].partition("=")[2] if words else None
    with set_output_options(quiet=False, color=color):  # type: ignore[arg-type]
        terminal = make_console()
        style = terminal.get_style("yellow")
        text = style.render("drift", color_system=terminal._color_system)
    assert (("\x1b[" in text) and not terminal.no_color) is colored


def test_never_suppresses_escape_sequences() -> None:
    assert "\x1b[" in on_terminal(["profiles", "oltp"], {})
    assert "\x1b" not in on_terminal(["profiles", "oltp", "--color", "never"], {})


def test_always_colours_pipe_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    print_heading("plain")
    assert capsys.readouterr().out == "plain\n"
    with set_output_options(quiet=False, color="always"):
        print_heading("bold")
    assert "\x1b[1mbold" in capsys.readouterr().out


def test_invalid_color_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--color", "red"]) == 2
    assert "--color takes auto, always, never, and not 'red'" in capsys.readouterr().err
