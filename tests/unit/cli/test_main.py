"""How a command ends: at once, and with all that it owes to others."""

import subprocess
import sys

from tests.unit.cli.shell_commands import shell

_RUN = """
import atexit, sys, threading
from hbatune import cli
sys.argv = ["hbatune", *{words!r}]
atexit.register(print, "a handler")
{before}
print("it came back", cli.main())
"""


def _done(words: tuple[str, ...]) -> tuple[int, list[str]]:
    """Run a command as a program; return its exit code and the lines that it printed."""
    command = [sys.executable, "-c", _RUN.format(words=words, before="")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_command_returns_code_and_output() -> None:
    code, lines = _done(("profiles",))
    assert code == 0
    assert lines[0].startswith("PROFILE")
    assert lines[-1] == "a handler"
    assert not any(line.startswith("it came back") for line in lines)


def test_usage_error_returns_exit_code() -> None:
    assert _done(("profiles", "nonsense", "--such")) == (2, ["a handler"])


def test_running_thread_is_awaited() -> None:
    before = "threading.Thread(target=lambda: print('read', sys.stdin.read())).start()"
    code = _RUN.format(words=("profiles",), before=before)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("PROFILE")  # all is out, and the command ends
        output, _ = process.communicate("everything")
    assert process.returncode == 0
    assert "read everything" in output


def test_package_runs_as_module() -> None:
    assert shell('"$@" --version').stdout.startswith("hbatune ")
