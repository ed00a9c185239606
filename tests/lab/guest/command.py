"""The hbatune command as a person runs it, and as a test may kill it."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hbatune.cli import main

CONFIGURATION = Path("/etc/hbatune/hbatune.toml")
JOURNAL = Path("/var/lib/hbatune/journal.json")


@dataclass(frozen=True)
class Done:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)

    def rows(self, **wanted: object) -> list[dict[str, Any]]:
        """Return the rows of the document that have these values."""
        rows: list[dict[str, Any]] = self.json["rows"]
        return [row for row in rows if all(row[key] == value for key, value in wanted.items())]

    def row(self, target: str, setting: str) -> dict[str, Any]:
        """Return the one row of a target's setting."""
        [row] = self.rows(target=target, setting=setting)
        return row


def hbatune(*words: str, before: tuple[str, ...] = ()) -> Done:
    """Run hbatune, behind another command where one is given."""
    done = subprocess.run(
        [*before, "hbatune", *words], capture_output=True, text=True, timeout=300, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Forked:
    """hbatune in a fork of this process, which saves the interpreter's start.

    ``prepare`` runs in the fork, before the command.
    """

    def __init__(self, *words: str, prepare: Callable[[], None] = lambda: None) -> None:
        self._read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(words, write_end, prepare)
        os.close(write_end)

    def kill_after(self, seconds: float) -> None:
        """Send SIGKILL once so much time has passed, or at once where it ends before."""
        watch = os.pidfd_open(self.pid)
        select.select([watch], [], [], seconds)
        os.close(watch)
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> tuple[int, str]:
        """Return the wait status, and what went to standard error."""
        with open(self._read_end, errors="replace") as stream:
            said = stream.read()
        return os.waitpid(self.pid, 0)[1], said


def _run(words: tuple[str, ...], errors: int, prepare: Callable[[], None]) -> NoReturn:
    status = 99
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(errors, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        prepare()
        status = main(list(words))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def forked(*words: str, prepare: Callable[[], None] = lambda: None) -> tuple[int, str]:
    """Run hbatune in a fork to its end; returns what ``Forked.wait`` does."""
    return Forked(*words, prepare=prepare).wait()


def killed(status: int) -> bool:
    """Whether a wait status says SIGKILL."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def configure(text: str) -> None:
    """Write the site's configuration."""
    CONFIGURATION.parent.mkdir(parents=True, exist_ok=True)
    CONFIGURATION.write_text(text)
