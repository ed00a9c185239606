"""Generate the text of files from the templates that ship with hbatune.

Only this module uses jinja2. A name that a template uses and the caller did not give is an error,
never an empty string. Only HTML is autoescaped; every other format has filters.

Names from the kernel are hostile until escaped: each position that accepts them has a filter. If a
format cannot contain a name, UnsafeNameError is raised. An adapted name would be another device's.
"""

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from hbatune.shipped import find_shipped

if TYPE_CHECKING:
    from jinja2 import Environment

    from hbatune.probe.result import Zone


_PATTERNS = {
    # fio treats '#' and ';' as comments, '$' as the start of variables and keywords, and a
    # backslash as an escape. It cuts lines of 4096 characters in two (fio init.c, options.c) and
    # offers no quoting.
    "fio_path": r"/[A-Za-z0-9/._+:,=@!~%-]{0,1000}",
    # kmod splits at blanks and interprets quotes, commas in a name and a backslash before a newline
    # (modprobe.d(5), libkmod-config.c). A module option needs only the comma of them.
    "modprobe_name": r"[A-Za-z0-9_]{1,64}",
    "modprobe_value": r"[A-Za-z0-9_.,:+-]{1,256}",
    # The name in braces of a udev key: the path of an attribute may contain the parent that a rule
    # matches or the disk, and no other substitution.
    "udev_name": r"(?:[A-Za-z0-9_./-]|\$(?:id|kernel)(?=/)){1,128}",
    # udev can escape only a quotation mark, and hbatune's lines need no escapes (udev(7)). `$` and
    # `%` are allowed, since only hbatune writes them: names from the kernel become globs without
    # them.
    "udev_value": r"[ !#-\[\]-~]{0,4096}",
    # An absolute path as a word of a unit, without anything that systemd expands.
    "unit_path": r"/[A-Za-z0-9/._+-]{1,1000}",
}
"""By filter, the texts that a file can contain unchanged at the positions of the filter."""


class UnsafeNameError(ValueError):
    """A name that a generated file cannot contain unchanged."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def fio_filename(path: str) -> str:
    """Return a path for fio's ``filename=``, which splits at ':'. Raises ``UnsafeNameError``."""
    return require_safe("fio_path", path).replace(":", "\\:")


def fio_zones(zones: "Sequence[Zone]", size: int) -> str:
    """Return fio's option for the fraction of I/Os in each zone, on a device of ``size`` bytes."""
    zone_bytes = sum(zone.bytes or 0 for zone in zones)
    shares = [f"{zone.share}/{zone.bytes or size - zone_bytes}" for zone in zones]
    return "zoned_abs:" + ":".join(shares)


def comment(text: object) -> str:
    """Return any text as one comment line, without a backslash that would continue it."""
    line = str(text).replace("\\", "\\x5c")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)


def require_safe(filter_name: str, value: object) -> str:
    """Return the value as text; ``UnsafeNameError`` if the filter's position cannot contain it."""
    text = str(value)  # makes jinja2's Undefined raise its name
    if not re.fullmatch(_PATTERNS[filter_name], text):
        raise UnsafeNameError(text)
    return text


def render_template(folder: str, template: str, **values: object) -> str:
    """Return the text of ``template`` in the shipped ``folder``, filled with ``values``.

    Raises ``jinja2.UndefinedError`` for a missing value, and ``UnsafeNameError`` for a value that
    its position in the file cannot contain.
    """
    return _make_environment(folder).get_template(template).render(**values)


@lru_cache
def _make_environment(folder: str) -> "Environment":
    # Imported here: jinja2 is heavy, and few commands generate a file.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(find_shipped(folder)),
        undefined=StrictUndefined,
        # Escaped as HTML, a name in a udev rule or a unit would be another name.
        autoescape=select_autoescape(("html", "html.j2"), default=False),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (comment, fio_filename, fio_zones):
        environment.filters[function.__name__] = function
    for name in _PATTERNS:
        environment.filters[name] = partial(require_safe, name)
    return environment
