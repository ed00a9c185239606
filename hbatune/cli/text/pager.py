"""Shows what a command prints in a pager, on a terminal, as git does."""

import io
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

TYPE_CHECKING = False  # as in cli.streams
if TYPE_CHECKING:
    import argparse
    from typing import TextIO

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
    shown = False
    try:
        yield
        sys.stdout = terminal
        shown = _show(command, collected, _environment(os.environ))
    finally:
        sys.stdout = terminal
        if not shown:
            terminal.write(collected.getvalue())


def pager_command(environment: Mapping[str, str]) -> str | None:
    """Return the shell command of the pager, None for none.

    HBATUNE_PAGER counts before PAGER. Where root acts for another user it is less, whatever they
    say: what may run as root is decided elsewhere.
    """
    asked = environment.get("HBATUNE_PAGER", environment.get("PAGER", _LESS)).strip()
    if asked in ("", "cat") or environment.get("TERM") == "dumb":
        return None
    if any(name in environment for name in _ON_BEHALF):
        asked = _LESS
    if asked != _LESS:
        return asked
    import shutil  # heavy, and only a terminal has a pager

    return asked if shutil.which(_LESS) else None


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {**_ENVIRONMENT, **environment}
    if any(name in environment for name in _ON_BEHALF):
        # No shell and no other file from inside of less (less(1)).
        found["LESSSECURE"] = "1"
        for name in ("LESSOPEN", "LESSCLOSE", "LESSKEY", "LESSKEYIN"):
            found.pop(name, None)
    return found


def _show(command: str, collected: _Collected, environment: Mapping[str, str]) -> bool:
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
