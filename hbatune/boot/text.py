"""The text of a rules file."""

from hbatune.boot.compile import Compiled
from hbatune.render import render

_FOLDER, _TEMPLATE = "udev", "hbatune.rules.j2"


def text(compiled: Compiled) -> str:
    """Return the file's text; ``UnsafeNameError`` for a value that a rule cannot hold."""
    return render(_FOLDER, _TEMPLATE, compiled=compiled)
