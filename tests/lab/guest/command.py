"""The hbatune command as a person runs it, and as a test may kill it."""

import importlib
import json
import os
import pkgutil
import re
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import hbatune as package
from hbatune.cli import main
from hbatune.cli.parser import make_parser
from hbatune.shipped import find_shipped, load_texts

CONFIGURATION = Path("/etc/hbatune/hbatune.toml")
JOURNAL = Path("/var/lib/hbatune/journal.json")
_SITE_RULES = Path("/etc/hbatune/rules.d/watch.toml")
_OBJECTIVE = """\
[[objective]]
when = {{ protocol = "virtual" }}
p99_ms = {p99_ms}
because = "a load of the test misses it"
source = "site"
"""

if not Path("/run/lab").is_dir():
    raise RuntimeError("guest tests change the machine: they run in the lab only")

# Imports are five sixths of what a command costs, and emulated they take seconds: what is loaded
# here, the forks have.
for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    importlib.import_module(module.name)
for library in ("jinja2", "tomlkit"):
    importlib.import_module(library)
# The texts of a command and the patterns of its parser take another tenth.
for texts in find_shipped("templates").glob("*.toml"):
    load_texts(texts.name)
make_parser(["apply"])[0].parse_args(["apply"])


@dataclass(frozen=True)
class Done:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.code == -signal.SIGKILL

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


class Forked:
    """hbatune in a fork of this process, which saves the interpreter's start.

    ``prepare`` runs in the fork, before the command.
    """

    def __init__(self, *words: str, prepare: Callable[[], None] = lambda: None) -> None:
        self._out, self._err = os.memfd_create("out"), os.memfd_create("err")
        self.pid = os.fork()
        if self.pid == 0:
            self._run(words, prepare)

    def kill_after(self, seconds: float) -> None:
        """Send SIGKILL once so much time has passed, or at once where it ends before."""
        watch = os.pidfd_open(self.pid)
        select.select([watch], [], [], seconds)
        os.close(watch)
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> Done:
        """Return what it printed and how it ended; a signal's number is a negative code."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return Done(code, _text(self._out), _text(self._err))

    def _run(self, words: tuple[str, ...], prepare: Callable[[], None]) -> NoReturn:
        code: object = 99
        try:
            os.dup2(self._out, 1)
            os.dup2(self._err, 2)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            prepare()
            code = main(list(words))
        except SystemExit as exited:
            code = exited.code
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 99)


def _text(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, errors="replace") as stream:
        return stream.read()


def hbatune(*words: str, prepare: Callable[[], None] = lambda: None) -> Done:
    """Run hbatune to its end, in a fork of this process."""
    return Forked(*words, prepare=prepare).wait()


def installed(*words: str, before: tuple[str, ...] = ()) -> Done:
    """Run the installed command as a person does, behind another command where one is given."""
    done = subprocess.run(
        [*before, "hbatune", *words], capture_output=True, text=True, timeout=300, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def writes(*words: str, log: Path) -> list[str]:
    """Run the installed command, which has to succeed; return what it did to write below /sys."""
    lines = list_calls(*words, calls="openat,open,write,pwrite64", log=log)
    opened = [line for line in lines if '"/sys' in line and re.search(r"O_WRONLY|O_RDWR", line)]
    return [*opened, *(line for line in lines if re.search(r"p?write(64)?\(\d+</sys/", line))]


def list_calls(*words: str, calls: str, log: Path) -> list[str]:
    """Run the installed command, which has to succeed; return these calls of all its processes."""
    # With a filter in the kernel it does not stop at every other call, which takes minutes here.
    watch = ("strace", "-f", "--seccomp-bpf", "-y", "-e", f"trace={calls}")
    done = installed(*words, before=(*watch, "-o", str(log)))
    assert done.code == 0, done.out + done.err
    lines = log.read_text().splitlines()
    assert len(lines) > 100, "strace saw the command"
    return lines


@contextmanager
def objective(p99_ms: int) -> Iterator[None]:
    """Set an objective for the disks of scsi_debug, in a rule of the site."""
    _SITE_RULES.parent.mkdir(parents=True, exist_ok=True)
    _SITE_RULES.write_text(_OBJECTIVE.format(p99_ms=p99_ms))
    try:
        yield
    finally:
        _SITE_RULES.unlink()


def configure(text: str) -> None:
    """Write the site's configuration."""
    CONFIGURATION.parent.mkdir(parents=True, exist_ok=True)
    CONFIGURATION.write_text(text)
