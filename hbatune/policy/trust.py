"""Checks whether a path may be trusted with root's rights: one owner alone can change it.

One rule for the site's files and for programs that a root unit starts. A path is as safe as the
weakest folder on the way to it, so each one up to ``/`` counts, and so does each one that a link
leads through. A sticky folder such as ``/tmp`` is not trusted: others may put new files there.
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
    """The reason why a path is not trusted, and the remedy.

    ``found`` and ``allowed`` are its owner or its mode.
    """

    path: Path
    problem: str
    found: str
    allowed: str
    remedy: str


class FollowedPath(Struct, frozen=True):
    """A path with all links followed: the folders in which names are looked up, and the ``end``."""

    folders: tuple[Path, ...]
    end: Path


def follow(path: Path, root: Path = ROOT) -> FollowedPath:
    """Follow an absolute path through all links, as a process would whose / is ``root``.

    ``path`` is as that process sees it. A name that does not exist is kept as it is. OSError
    (ELOOP) if links lead in a circle.
    """
    names = deque(path.parts[1:])
    here, links = root, 0
    folders: dict[Path, None] = {root: None}
    while names:
        name = names.popleft()
        if name == "..":
            here = here if here == root else here.parent  # as in the kernel, /.. is /
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
    """Return why others than ``owner`` (a uid) can change this file or folder, or None."""
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
    """Return why others than ``owner`` can change the end of an absolute path, or None.

    ``root`` is as for ``follow``. Folders above ``top`` are not checked. Without ``end`` only the
    folders on the way are judged. A name that does not exist is no fault: its folder, which is
    judged, decides who may create it. Raises OSError as ``follow`` does.
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
