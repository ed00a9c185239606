"""Files that survive a crash: whole or not there at all."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def replace(path: Path, data: bytes, *, mode: int = 0o600, folder_mode: int = 0o700) -> None:
    """Put ``data`` at ``path`` so that a crash at any instant leaves the old or the new content.

    Durable when it returns: the file and its folder are synced; a folder that is not there is
    made. OSError where that fails.
    """
    path.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
    # A name of its own: no link that lies in wait is followed, no other writer's file is taken.
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:64]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):  # half a file would take the room that a full disk lacks
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep others who do the same out while ``path`` is read, changed and put back.

    The lock is on the folder, and ends with the process. OSError where there can be none.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def publish(path: Path, data: bytes, *, mode: int) -> None:
    """Put ``data`` at ``path`` for others to read: whole at any moment, but not durable.

    For what is written anew every few seconds and of no worth after a crash. The folder has to be
    there, and may be another user's: a link in the place of the temporary file is not followed.
    OSError where that fails.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def save(path: Path, data: bytes, *, over: bool) -> None:
    """Put ``data`` into a new file that somebody named, or ``over`` a regular file there.

    Links are not followed, and devices are not written to. What cannot be written whole is not
    there afterwards. FileExistsError where something is in the way; OSError for the rest.
    """
    if over:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise FileExistsError(f"{path} is not a regular file")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:64]}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        if over:
            os.rename(temporary, path)
        else:
            _publish(temporary, path)
        sync_folder(path.parent)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _publish(temporary: str, path: Path) -> None:
    """Give the file its name unless that is taken; some file systems have no links for that."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        os.rename(temporary, path)


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
