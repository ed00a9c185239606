"""A site that wants of virtual disks what shipped profiles want of drives behind an adapter.

Shipped profiles leave their scheduler and requests as they are. Most of the lab's disks are
virtual: what a test of writing, udev or the daemon needs of them is a wish of a site's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = Path("/etc/hbatune/rules.d")
_RULE = """\
[[rule]]
name = "virtual-{setting}"
when = {{ protocol = ["virtio", "virtual"], kind = "disk" }}
setting = "{setting}"
value = {value}
because = "a test"
source = "site"
"""

_DEEP = """\
[[rule]]
name = "deep"
when = {{ family = "scsi_debug" }}
setting = "queue_depth"
at_least = {depth}
because = "a test"
source = "site"
"""


@contextmanager
def wanted() -> Iterator[None]:
    """Have the site's rules for virtual disks in place."""
    values = {"scheduler": '"mq-deadline"', "nr_requests": 2048}
    texts = (_RULE.format(setting=name, value=text) for name, text in values.items())
    with rules("virtual", "".join(texts)):
        yield


@contextmanager
def deep(depth: int) -> Iterator[None]:
    """Have a site's rule for the least depth of scsi_debug's LUNs, paths of a map included."""
    with rules("deep", _DEEP.format(depth=depth)):
        yield


@contextmanager
def rules(name: str, text: str) -> Iterator[None]:
    """Have a file of the site's rules in place."""
    file = _FOLDER / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # the purge of a package takes it
