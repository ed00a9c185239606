"""Whether a path may be trusted with root's rights: only what one owner alone can change.

One rule for the site's files and for what a root unit starts. A path is as safe as the weakest
folder on the way to it, so each one up to ``/`` counts, and so does each one that a link leads
through. A sticky folder such as ``/tmp`` is not trusted: others may put new files there.
"""

import errno
import os
import stat
from collections import deque
from pathlib import Path

from msgspec import Struct

ROOT = Path("/")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40
"""Links that are followed at most (include/linux/namei.h: MAXSYMLINKS)."""


class Fault(Struct, frozen=True):
    """Why something is not trusted, and what would mend it.

    ``found`` and ``allowed`` are its owner or its mode.
    """

    path: Path
    problem: str
    found: str
    allowed: str
    remedy: str


class FollowedPath(Struct, frozen=True):
    """Where a path leads: the folders in which its names are looked up, and its ``end``."""

    folders: tuple[Path, ...]
    end: Path


def follow(path: Path, root: Path = ROOT) -> FollowedPath:
    """Follow an absolute path below ``root`` through all links, as a process would whose / that is.

    ``path`` is as that process sees it. What is not there ends the way as it is. OSError (ELOOP)
    where links lead in a circle.
    """
    names = deque(path.parts[1:])
    here, links = root, 0
    folders: dict[Path, None] = {root: None}
    while names:
        name = names.popleft()
        if name == "..":
            here = here if here == root else here.parent
            continue
        folders[here] = None
        try:
            target = Path(os.readlink(here / name))
        except OSError:  # it is no link, or not there
            here = here / name
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if target.is_absolute():
            here = root
        names.extendleft(reversed([part for part in target.parts if part != "/"]))
    return FollowedPath(tuple(folders), here)


def fault_of(path: Path, status: os.stat_result, owner: int) -> Fault | None:
    """Return why more than ``owner`` (a uid) can change what ``status`` describes, or None."""
    kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != owner:
        return Fault(
            path,
            f"this {kind} belongs to uid {status.st_uid}, expected uid {owner}",
            found=str(status.st_uid),
            allowed=f"uid {owner}",
            remedy=f"chown the {kind} to uid {owner}",
        )
    if mode & _WRITABLE_BY_OTHERS:
        return Fault(
            path,
            f"this {kind} has mode {mode:04o}, expected none but its owner to have write access",
            found=f"{mode:04o}",
            allowed=f"{mode & ~_WRITABLE_BY_OTHERS:04o}",
            remedy="chmod go-w",
        )
    return None


def fault_on_way(
    path: Path, owner: int, *, root: Path = ROOT, top: Path = ROOT, end: bool = True
) -> Fault | None:
    """Return why more than ``owner`` can change what an absolute path leads to, or None.

    ``root`` is as for ``follow``. Folders above ``top`` are taken as they are. Without ``end`` only
    the folders on the way are judged. What is not there is no fault: who may put it there is
    up to its folder. OSError as ``follow`` raises.
    """
    way = follow(path, root)
    taken_as_they_are = set(top.parents)
    for place in (*way.folders, way.end) if end else way.folders:
        if place in taken_as_they_are:
            continue
        try:
            fault = fault_of(place, place.lstat(), owner)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if fault is not None:
            return fault
    return None
