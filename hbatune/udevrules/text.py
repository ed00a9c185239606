"""The text of a rules file."""

from hbatune.render import render
from hbatune.udevrules.compile import Compiled

_FOLDER, _TEMPLATE = "udev", "hbatune.rules.j2"


def text(compiled: Compiled) -> str:
    """Return the file's text; ``UnsafeNameError`` for a value that a rule cannot hold."""
    return render(_FOLDER, _TEMPLATE, compiled=compiled)
