"""Whether a site's file may be believed: with root's rights, only what root alone can write."""

import os
import stat
from pathlib import Path

from hbatune.policy.errors import PolicyError

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def require_trusted(path: Path, status: os.stat_result, owner: int) -> None:
    """Raise ``PolicyError`` unless ``owner`` (a uid) alone may write what ``status`` describes."""
    kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != owner:
        raise PolicyError(
            f"this {kind} belongs to uid {status.st_uid}, expected uid {owner}",
            file=path,
            found=str(status.st_uid),
            allowed=f"uid {owner}",
            hint=f"chown the {kind} to uid {owner}, after reading what it says",
        )
    if mode & _WRITABLE_BY_OTHERS:
        raise PolicyError(
            f"this {kind} has mode {mode:04o}, expected none but its owner to have write access",
            file=path,
            found=f"{mode:04o}",
            allowed=f"{mode & ~_WRITABLE_BY_OTHERS:04o}",
            hint="chmod go-w, after reading what it says",
        )


def require_trusted_folders(path: Path, top: Path, owner: int) -> None:
    """Raise ``PolicyError`` unless ``owner`` alone may write the folder of ``path``, and ``top``.

    Whoever may write a folder can put another file in the place of a trusted one. Where a link
    leads elsewhere, the folder that it leads to counts as well.
    """
    for folder in sorted({path.parent, path.resolve().parent, top}):
        require_trusted(folder, folder.stat(), owner)
