"""Interrupts that a write has shown to be nobody's to move, remembered until the next boot.

Where the kernel shows in no file which are managed, what was taken for free would be planned, and
refused, again and again. The file is on a memory file system, so that it is this boot's.
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hbatune.act import files
from hbatune.facts.model import Machine
from hbatune.plan.rows import Plan, Row, State


def remember(path: Path, plan: Plan, rows: Iterable[Row]) -> None:
    """Add the ids of what was planned and, by these rows, turned out to be nobody's to set.

    What cannot be kept is tried again.
    """
    planned = {(row.id, row.setting) for row in plan.drift}
    fixed = (row for row in rows if row.state is State.FIXED)
    known = _load(path)
    if new := {row.id for row in fixed if (row.id, row.setting) in planned} - known:
        with suppress(OSError):
            files.replace(path, msgspec.json.encode(sorted(known | new)))


def confirmed(machine: Machine, path: Path) -> Machine:
    """Return the machine with the vectors in the file known to be managed, not inferred free."""
    known = _load(path)
    if not known:
        return machine
    vectors = (
        replace(each, managed=True, inferred=False) if each.id in known else each
        for each in machine.vectors
    )
    return replace(machine, vectors=tuple(vectors))


def _load(path: Path) -> frozenset[str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=frozenset[str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return frozenset()
