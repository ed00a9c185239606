"""A site that wants of virtual disks what shipped profiles want of drives behind an adapter.

Shipped profiles leave their scheduler and requests as they are. Most of the lab's disks are
virtual: what a test of writing, udev or the daemon needs of them is a wish of a site's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RULES = Path("/etc/hbatune/rules.d/virtual.toml")
_RULE = """\
[[rule]]
name = "virtual-{setting}"
when = {{ protocol = ["virtio", "virtual"], kind = "disk" }}
setting = "{setting}"
value = {value}
because = "a test"
source = "site"
"""


@contextmanager
def wanted() -> Iterator[None]:
    """Have the site's rules for virtual disks in place."""
    values = {"scheduler": '"mq-deadline"', "nr_requests": 2048}
    _RULES.parent.mkdir(parents=True, exist_ok=True)
    _RULES.write_text("".join(_RULE.format(setting=name, value=it) for name, it in values.items()))
    try:
        yield
    finally:
        _RULES.unlink(missing_ok=True)  # the purge of a package takes it
