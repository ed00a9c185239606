"""Interrupt coalescing of NVMe controllers, asked for by a site and read by nvme-cli."""

import subprocess
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


def coalescing(controller: str) -> int:
    """Return the feature's number: completions less one, and 100 µs above them."""
    words = ["nvme", "get-feature", f"/dev/{controller}", "-f", "8"]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return int(said.rpartition(":")[2], 16)
