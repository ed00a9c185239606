"""What outlives a reboot of the guest: the tests that are left, and what the one under way keeps.

The root disk is the same after a reboot, wanted or by a panic; the host sees one machine all the
time.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REBOOT = 75
"""The exit code of a pytest that wants the guest rebooted."""

_FOLDER = Path("/var/lab")
_BOOTED = _FOLDER / "booted"
_ASKED = _FOLDER / "asked"
_LEFT = _FOLDER / "left.json"
_KEPT = _FOLDER / "kept.json"


def first() -> bool:
    """Whether the guest boots for the first time; noted for the next time."""
    _FOLDER.mkdir(exist_ok=True)
    booted = _BOOTED.exists()
    _BOOTED.touch()
    return not booted


def leave(tests: Sequence[str]) -> None:
    """Have these tests run after the next boot. A panic may come at any time: it is on the disk."""
    with _LEFT.open("w") as file:
        json.dump(tests, file)
        file.flush()
        os.fsync(file.fileno())


def load_remaining_tests() -> list[str]:
    """Return the tests that were not done when the guest went down."""
    tests: list[str] = json.loads(_LEFT.read_text()) if _LEFT.exists() else []
    return tests


def ask() -> None:
    """Note that the next boot is one that a test wants."""
    _ASKED.touch()


def take_request() -> bool:
    """Return whether a test requested this boot, and remove the request."""
    requested = _ASKED.exists()
    _ASKED.unlink(missing_ok=True)
    return requested


def keep(state: dict[str, Any]) -> None:
    """Save a test's state for the next boot."""
    _KEPT.write_text(json.dumps(state))


def take_state() -> dict[str, Any]:
    """Return and remove the saved state, or an empty dict if there is none."""
    if not _KEPT.exists():
        return {}
    state: dict[str, Any] = json.loads(_KEPT.read_text())
    _KEPT.unlink()
    return state
