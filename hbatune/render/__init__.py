"""Makes the text of generated files from the templates that ship with hbatune.

The only door to jinja2. A name that a template uses and the caller did not give is an error, never
an empty string; only HTML is autoescaped, every other format has filters (``escape``).
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from hbatune.render.escape import (
    comment,
    fio_filename,
    fio_zones,
    modprobe_name,
    modprobe_value,
    udev_name,
    udev_value,
    unit_path,
)
from hbatune.shipped import shipped

if TYPE_CHECKING:
    from jinja2 import Environment

_FILTERS = (
    *(comment, fio_filename, fio_zones, modprobe_name, modprobe_value),
    *(udev_name, udev_value, unit_path),
)


def render(folder: str, template: str, **values: object) -> str:
    """Return the text of ``template`` in the shipped ``folder``, filled with ``values``.

    Raises ``jinja2.UndefinedError`` for a value that is missing, ``UnsafeNameError`` for one that
    its place in the file cannot hold.
    """
    return _environment(folder).get_template(template).render(**values)


@lru_cache
def _environment(folder: str) -> "Environment":
    # Imported here: jinja2 is heavy, and few commands generate a file.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(shipped(folder)),
        undefined=StrictUndefined,
        # Escaped as HTML, a name in a udev rule or a unit would be another name.
        autoescape=select_autoescape(("html", "html.j2"), default=False),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for each in _FILTERS:
        environment.filters[each.__name__] = each
    return environment
