"""Files that survive a crash: whole or not there at all."""

import os
from pathlib import Path


def replace(path: Path, data: bytes, *, mode: int = 0o600, folder_mode: int = 0o700) -> None:
    """Put ``data`` at ``path`` so that a crash at any instant leaves the old or the new content.

    Durable when it returns: the file and its folder are synced; a folder that is not there is
    made. OSError where that fails.
    """
    path.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove ``path``, durably; it may be gone already."""
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
