"""The options for printing, the pager, and counts in words. Each command loads it, even `status`.

Numbers of things in words, and what `status` says in every case: light enough for it.

The options of every command that say how it prints: --quiet and --color.

They hold while a command runs, and are asked where something is printed.

Shows what a command prints in a pager, on a terminal, as git does.
"""

import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar

TYPE_CHECKING = False  # typing takes 3 ms of the 20 ms of a status
if TYPE_CHECKING:
    from typing import Literal

    from rich.console import Console

    Color = Literal["auto", "always", "never"]
    import argparse
    from typing import TextIO


def quantity(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number of things in words: ``1 adapter``, ``2 adapters``, ``2 passes``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def second(seconds: float) -> str:
    """Return date and time of a moment to the second, given in seconds since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def tuned(profile: str, endpoints: int) -> str:
    """Return which profile is in force, and for how much."""
    return f"profile {profile}, {quantity(endpoints, 'endpoint')}"


def running(since: float, passes: int, written: int) -> str:
    """Return since when the daemon runs, and what it has done."""
    work = f"{quantity(passes, 'pass', 'passes')}, {quantity(written, 'value')} set"
    return f"Running since {second(since)}, {work}."


def last_pass(moment: float, reason: str) -> str:
    """Return when the last pass was, and why."""
    return f"Last pass {second(moment)} ({reason})."


COLORS: "tuple[Color, ...]" = ("auto", "always", "never")

_quiet = ContextVar("quiet", default=False)
_color: "ContextVar[Color | None]" = ContextVar("color", default=None)


@contextmanager
def output_options(*, quiet: bool, color: "Color | None") -> Iterator[None]:
    """Hold these options until the context ends; without a ``color`` the environment decides.

    With ``quiet``, what is printed to standard output goes nowhere.
    """
    before = _quiet.set(quiet), _color.set(color)
    try:
        if not quiet:
            yield
        else:
            with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
                yield
    finally:
        _quiet.reset(before[0])
        _color.reset(before[1])


def is_quiet() -> bool:
    """Whether only warnings and errors are to be printed."""
    return _quiet.get()


def is_styled() -> bool:
    """Whether standard output gets the form for a terminal: as one, or by --color=always."""
    return _color.get() == "always" or sys.stdout.isatty()


def console(*, stderr: bool = False) -> "Console":
    """Return rich's console for standard output or standard error, with the colours asked for.

    ``--color`` has the last word: over NO_COLOR, FORCE_COLOR and what the stream is. Without it
    rich obeys those.
    """
    from rich.console import Console

    match _color.get():
        case "never":  # not only colours: with NO_COLOR, rich still prints in bold
            return Console(stderr=stderr, color_system=None, highlight=False)
        case "always":
            return Console(
                stderr=stderr,
                force_terminal=True,
                color_system="standard",
                no_color=False,
                highlight=False,
            )
        case "auto" | None:
            return Console(stderr=stderr, highlight=False)


_LESS = "less"
_ON_BEHALF = ("SUDO_UID", "DOAS_USER", "PKEXEC_UID")
"""Set where root runs a command for another user."""

_ENVIRONMENT = {"LESS": "FRX", "LV": "-c"}
"""As git sets them: leave at once what fits on the screen, show colours, keep the screen."""


class _Collected(io.StringIO):
    """What a command prints, kept for the pager; to those who print it is the terminal itself."""

    takes_messages = True

    def __init__(self, terminal: "TextIO") -> None:
        super().__init__()
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The terminal's encoding."""
        return getattr(self._terminal, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What the terminal makes of characters that it cannot show."""
        return getattr(self._terminal, "errors", None)

    def isatty(self) -> bool:
        """Return that it is a terminal."""
        return True


def add_pager(parser: "argparse.ArgumentParser") -> None:
    """Let the command take --no-pager, and have its text shown in a pager without it."""
    parser.add_argument(
        "--no-pager", dest="pager", action="store_false", help="print without a pager"
    )


@contextmanager
def paged(args: "argparse.Namespace") -> Iterator[None]:
    """Show what is printed meanwhile in a pager, where the command takes --no-pager.

    Not JSON, and not in a pipe. After an error it is printed as it is.
    """
    wanted = getattr(args, "pager", False) and not getattr(args, "json", False)
    command = pager_command(os.environ) if wanted and sys.stdout.isatty() else None
    if command is None:
        yield
        return
    terminal = sys.stdout
    collected = _Collected(terminal)
    sys.stdout = collected
    displayed = False
    try:
        yield
        sys.stdout = terminal
        displayed = _run_pager(command, collected, _build_environment(os.environ))
    finally:
        sys.stdout = terminal
        if not displayed:
            terminal.write(collected.getvalue())


def pager_command(environment: Mapping[str, str]) -> str | None:
    """Return the shell command of the pager, None for none.

    HBATUNE_PAGER counts before PAGER. Where root acts for another user it is less, whatever they
    say: what may run as root is decided elsewhere.
    """
    command = environment.get("HBATUNE_PAGER", environment.get("PAGER", _LESS)).strip()
    if command in ("", "cat") or environment.get("TERM") == "dumb":
        return None
    if any(name in environment for name in _ON_BEHALF):
        command = _LESS
    if command != _LESS:
        return command
    import shutil  # heavy, and only a terminal has a pager

    return command if shutil.which(_LESS) else None


def _build_environment(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {**_ENVIRONMENT, **environment}
    if any(name in environment for name in _ON_BEHALF):
        # No shell and no other file from inside of less (less(1)).
        variables["LESSSECURE"] = "1"
        for name in ("LESSOPEN", "LESSCLOSE", "LESSKEY", "LESSKEYIN"):
            variables.pop(name, None)
    return variables


def _run_pager(command: str, collected: _Collected, environment: Mapping[str, str]) -> bool:
    """Show the text in the pager and wait for its end. Return whether there was one."""
    data = collected.getvalue().encode(collected.encoding, collected.errors or "backslashreplace")
    if not data:
        return True
    import subprocess  # here, since most output needs none

    # Ctrl-C is for the pager, as long as there is one.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        # By a shell, as git does: PAGER may hold options.
        ran = subprocess.run(["/bin/sh", "-c", command], input=data, env=environment, check=False)
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    # Not found, or not to be executed (sh(1)).
    return ran.returncode not in (126, 127)
