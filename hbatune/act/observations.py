"""What has been counted of errors at earlier looks: a small file, lost without harm."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hbatune.act import files
from hbatune.facts.health import Counted


def load(path: Path) -> tuple[Counted, ...]:
    """Return the observations in the file; none where it is not there or makes no sense."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Counted, ...])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ()


def save(path: Path, observations: Iterable[Counted]) -> None:
    """Remember the observations, where this user may; what cannot be kept is forgotten."""
    if os.geteuid() != 0:
        return
    try:
        files.replace(path, msgspec.json.encode(tuple(observations)))
    except OSError:
        return
