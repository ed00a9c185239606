"""Printing options, the pager, and text for counts and times.

Every command imports this module, even `status`, so it imports little. --quiet and --color apply
while a command runs. On a terminal the pager shows the output, as in git.
"""

import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar

from hbatune import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Literal

    from rich.console import Console

    Color = Literal["auto", "always", "never"]


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 adapter``, ``2 adapters``, ``2 passes``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def format_sentence(text: str) -> str:
    """Return a text as a sentence: with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def format_second(seconds: float) -> str:
    """Return the date and time, to the second, of a time in seconds since the epoch."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


COLORS: "tuple[Color, ...]" = ("auto", "always", "never")

_quiet = ContextVar("quiet", default=False)
_color: "ContextVar[Color | None]" = ContextVar("color", default=None)


@contextmanager
def set_output_options(*, quiet: bool, color: "Color | None") -> Iterator[None]:
    """Set these options until the context ends; with ``quiet``, standard output is discarded."""
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
    """Return whether only warnings and errors are printed."""
    return _quiet.get()


def is_styled() -> bool:
    """Return whether output has terminal styles: on a terminal, or with --color=always."""
    return _color.get() == "always" or sys.stdout.isatty()


def make_console(*, stderr: bool = False) -> "Console":
    """Return rich's console; ``--color`` overrides NO_COLOR, FORCE_COLOR and the stream's type."""
    from rich.console import Console

    options: dict[str, Any] = {}
    if _color.get() == "never":  # not only colours: with NO_COLOR, rich still prints in bold
        options = {"color_system": None}
    elif _color.get() == "always":
        options = {"force_terminal": True, "color_system": "standard", "no_color": False}
    return Console(stderr=stderr, highlight=False, **options)


_LESS = "less"
_ON_BEHALF = frozenset(("SUDO_UID", "DOAS_USER", "PKEXEC_UID"))
"""Variables that are set if root runs a command for another user."""

_ENVIRONMENT = {"LESS": "FRX", "LV": "-c"}
"""The values that git sets: exit if the text fits on the screen, show colours, keep the screen."""


class _Collected(io.TextIOWrapper):
    """Collects a command's output for the pager. To the command it looks like the terminal."""

    takes_messages = True

    def isatty(self) -> bool:
        """Return True, as a terminal does."""
        return True


@contextmanager
def page_output(is_wanted: bool) -> Iterator[None]:
    """Show the output of the context in a pager if it is wanted, or directly after an error."""
    command = find_pager(os.environ) if is_wanted and sys.stdout.isatty() else None
    if command is None:
        yield
        return
    terminal = sys.stdout
    data = io.BytesIO()
    encoding = getattr(terminal, "encoding", None) or "utf-8"
    errors = getattr(terminal, "errors", None) or "backslashreplace"
    sys.stdout = collected = _Collected(data, encoding, errors, write_through=True)
    displayed = False
    try:
        yield
        sys.stdout = terminal
        displayed = _run_pager(command, data.getvalue(), _build_environment(os.environ))
    finally:
        sys.stdout = terminal
        if not displayed:
            collected.seek(0)
            terminal.write(collected.read())


def find_pager(environment: Mapping[str, str]) -> str | None:
    """Return the shell command of the pager, or None.

    HBATUNE_PAGER overrides PAGER. If root acts for another user, the pager is always less: that
    user must not choose a command that root runs.
    """
    command = environment.get("HBATUNE_PAGER", environment.get("PAGER", _LESS)).strip()
    if command in ("", "cat") or environment.get("TERM") == "dumb":
        return None
    if not _ON_BEHALF.isdisjoint(environment):
        command = _LESS
    if command != _LESS:
        return command
    import shutil  # heavy, and only a terminal has a pager

    return command if shutil.which(_LESS) else None


def _build_environment(environment: Mapping[str, str]) -> dict[str, str]:
    variables = {**_ENVIRONMENT, **environment}
    if not _ON_BEHALF.isdisjoint(environment):
        # less must not start a shell or open other files (less(1)).
        variables["LESSSECURE"] = "1"
        for name in ("LESSOPEN", "LESSCLOSE", "LESSKEY", "LESSKEYIN"):
            variables.pop(name, None)
    return variables


def _run_pager(command: str, data: bytes, environment: Mapping[str, str]) -> bool:
    """Show the text in the pager and wait for its end. Return whether a pager ran."""
    if not data:
        return True
    import subprocess  # here, since most output needs no pager

    # Ctrl-C is for the pager while it runs.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        # Run by a shell, as in git: PAGER may contain options.
        ran = subprocess.run(["/bin/sh", "-c", command], input=data, env=environment, check=False)
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    # The command was not found, or is not executable (sh(1)).
    return ran.returncode not in (126, 127)
