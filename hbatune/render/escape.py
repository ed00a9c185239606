"""Names from the kernel are hostile until escaped: one function for each place they end up in."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hbatune.probe.model import Zone

# fio takes '#' and ';' for comments, '$' for variables and keywords, a backslash for an escape,
# and cuts lines of 4096 characters in two (fio init.c, options.c); it offers no quoting.
_FIO_SAFE = re.compile(r"/[A-Za-z0-9/._+:,=@!~%-]{0,1000}", re.ASCII)


# kmod splits at blanks and takes quotes, commas in a name and a backslash before a newline for its
# own (modprobe.d(5), libkmod-config.c); a module option needs none of them but the comma.
_MODPROBE_NAME = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
_MODPROBE_VALUE = re.compile(r"[A-Za-z0-9_.,:+-]{1,256}", re.ASCII)


class UnsafeNameError(ValueError):
    """A name that cannot be written into a generated file so that it stays itself."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def fio_filename(path: str) -> str:
    """Return an absolute path as the value of fio's ``filename=``, where ':' parts two files.

    Raises ``UnsafeNameError`` for a path that a job file cannot carry.
    """
    if not _FIO_SAFE.fullmatch(str(path)):  # str() makes jinja2's Undefined say its name
        raise UnsafeNameError(path)
    return path.replace(":", "\\:")


def fio_zones(zones: "Sequence[Zone]", size: int) -> str:
    """Return fio's words for which share of I/Os goes where, on a device of ``size`` bytes."""
    known = sum(zone.bytes or 0 for zone in zones)
    return "zoned_abs:" + ":".join(f"{zone.share}/{zone.bytes or size - known}" for zone in zones)


def comment(text: object) -> str:
    """Return any text as one line that goes on on no other: without a backslash at its end."""
    line = str(text).replace("\\", "\\x5c")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


def modprobe_name(name: object) -> str:
    """Return the name of a module or of its option; ``UnsafeNameError`` where it is none."""
    return _fitting(_MODPROBE_NAME, name)


def modprobe_value(value: object) -> str:
    """Return the value of a module's option; ``UnsafeNameError`` for what kmod would split."""
    return _fitting(_MODPROBE_VALUE, value)


def _fitting(pattern: re.Pattern[str], value: object) -> str:
    text = str(value)
    if not pattern.fullmatch(text):
        raise UnsafeNameError(text)
    return text
