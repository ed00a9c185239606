"""Makes the text of generated files from the templates that ship with hbatune.

The only door to jinja2. A name that a template uses and nobody gave is an error, never an empty
string; HTML alone is autoescaped, every other format has a filter for what it holds (``escape``).
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from hbatune.render.escape import comment, fio_filename, fio_zones, modprobe_name, modprobe_value
from hbatune.shipped import shipped

if TYPE_CHECKING:
    from jinja2 import Environment


def render(folder: str, template: str, **values: object) -> str:
    """Return the text of ``template`` in the shipped ``folder``, filled with ``values``.

    Raises ``jinja2.UndefinedError`` for a value that is missing, ``UnsafeNameError`` for one that
    its place in the file cannot hold.
    """
    return _environment(folder).get_template(template).render(**values)


@lru_cache
def _environment(folder: str) -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=FileSystemLoader(shipped(folder)),
        undefined=StrictUndefined,
        autoescape=select_autoescape(("html", "html.j2"), default=False),
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for each in (comment, fio_filename, fio_zones, modprobe_name, modprobe_value):
        environment.filters[each.__name__] = each
    return environment
