"""What outlives a reboot of the guest: the tests that are left, and what the one under way keeps.

The root disk is the same after a reboot; the host sees one machine all the time.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REBOOT = 75
"""The exit code of a pytest that wants the guest rebooted."""

_FOLDER = Path("/var/lab")
_BOOTED = _FOLDER / "booted"
_LEFT = _FOLDER / "left.json"
_KEPT = _FOLDER / "kept.json"


def first() -> bool:
    """Whether the guest boots for the first time; noted for the next time."""
    _FOLDER.mkdir(exist_ok=True)
    found = _BOOTED.exists()
    _BOOTED.touch()
    return not found


def leave(tests: Sequence[str]) -> None:
    """Have these tests run after the reboot."""
    _LEFT.write_text(json.dumps(tests))


def left() -> list[str] | None:
    """Take the tests that a reboot has left, None where nobody asked for one."""
    if not _LEFT.exists():
        return None
    found: list[str] = json.loads(_LEFT.read_text())
    _LEFT.unlink()
    return found


def keep(kept: dict[str, Any]) -> None:
    """Keep something for after the reboot."""
    _KEPT.write_text(json.dumps(kept))


def kept() -> dict[str, Any]:
    """Take what was kept; nothing where there was no reboot."""
    if not _KEPT.exists():
        return {}
    found: dict[str, Any] = json.loads(_KEPT.read_text())
    _KEPT.unlink()
    return found
