"""The options of every command that say how it prints: --quiet and --color.

They hold while a command runs, and are asked where something is printed.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar

TYPE_CHECKING = False  # as in cli.streams
if TYPE_CHECKING:
    from typing import Literal

    from rich.console import Console

    Color = Literal["auto", "always", "never"]

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
