"""Interrupt coalescing of NVMe controllers, asked for by a site."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RULES = Path("/etc/hbatune/rules.d/coalescing.toml")


@contextmanager
def asking_for(value: str, setting: str = "coalescing") -> Iterator[None]:
    """Have every profile ask for this coalescing of NVMe controllers, or what is exempt of it."""
    RULES.parent.mkdir(parents=True, exist_ok=True)
    RULES.write_text(
        f'[[rule]]\nname = "gather"\nsetting = "{setting}"\n'
        'when = { protocol = "nvme" }\n'
        f'value = {value}\nbecause = "a test"\nsource = "site"\n'
    )
    try:
        yield
    finally:
        RULES.unlink()
