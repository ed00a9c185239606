"""Whether a disk holds nothing but zeros where one looks: thin and trimmed ones answer from no
medium, and their figures are those of the array's or the drive's own memory.
"""

import mmap
import os
from collections.abc import Iterator

from msgspec import Struct

from hbatune.workers import Pool, Replied

BLOCKS = 64
"""So many places are looked at, evenly over the disk; a disk in use shows data at one of them."""

_BLOCK = 4096
_DEADLINE = 5.0  # seconds for each read, after which nobody can tell


class _Place(Struct, frozen=True):
    node: str
    size: int


def blank(node: str, size: int, *, deadline: float = _DEADLINE) -> bool | None:
    """Return whether all that is looked at of ``size`` bytes is zeros, None where it cannot be.

    Reads past the page cache, in a process that a disk which does not answer cannot hold up.
    """
    replies: list[bool] = []
    with Pool(_zeros, size=1, deadline=deadline) as pool:
        for event in pool.run([_Place(node, size)]):
            if isinstance(event, Replied):
                replies.append(event.reply)
    if replies and not replies[-1]:
        return False
    return True if len(replies) == _count(size) else None


def _count(size: int) -> int:
    return max(1, min(BLOCKS, size // _BLOCK))


def _zeros(place: _Place) -> Iterator[bool]:  # pragma: no cover  (runs in the worker)
    """Yield of each place whether there are zeros, up to the first where there are not."""
    nothing, count = bytes(_BLOCK), _count(place.size)
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        descriptor = os.open(place.node, flags | os.O_DIRECT)
    except OSError:
        return
    with mmap.mmap(-1, _BLOCK) as block:  # O_DIRECT wants memory that is aligned
        for number in range(count):
            try:
                os.preadv(descriptor, [block], number * (place.size // count) // _BLOCK * _BLOCK)
            except OSError:
                return
            empty = block[:] == nothing
            yield empty
            if not empty:
                return
