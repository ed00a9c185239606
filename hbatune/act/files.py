"""Files that survive a crash: whole or absent, and durable once they have their name."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hbatune import loader
from hbatune.errors import HbatuneError
from hbatune.loader import UnusableFileError

FOLDER = 0o711
"""The mode of hbatune's own folders: others may read the files in them that are theirs to read.

They may not list a folder, nor open it: who can open a folder can lock it (``alone``) for ever.
"""

READABLE = 0o644
"""The mode of hbatune's own files that answer questions of users other than root."""

_ACCESS_LIST = "system.posix_acl_access"
"""The extended attribute that holds a file's access list (acl(5))."""


def make_folder(folder: Path, mode: int = FOLDER) -> None:
    """Make the folder and those above it, whatever the umask; one that is there stays as it is.

    Raises OSError where that fails.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    try:
        folder.mkdir(mode=mode)
        folder.chmod(mode)
    except FileExistsError:
        if not folder.is_dir():  # another process was first otherwise
            raise


def replace(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o600,
    folder_mode: int = FOLDER,
    reserved_for: Path | None = None,
) -> None:
    """Put ``data`` at ``path`` so that a crash at any instant leaves the old or the new content.

    Durable when it returns: the file and its folder are synced; a missing folder is made. Where the
    disk is full, the room reserved for the file, or ``reserved_for`` another one of its folder, is
    used (``reserve_space``). Raises OSError where that fails.
    """
    make_folder(path.parent, folder_mode)
    try:
        _put(path, data, mode, None)
    except OSError as error:
        reserve = _reserve(reserved_for or path)
        if error.errno not in _FULL or not _put_in_reserve(path, data, mode, reserve):
            raise
    sync_folder(path.parent)


def change(path: Path, data: bytes, *, mode: int, folder_mode: int) -> None:
    """Do as ``replace`` does, for a file that may be an administrator's.

    An existing file keeps its mode, owner and access list; ``mode`` is for a new one.
    """
    make_folder(path.parent, folder_mode)
    _put(path, data, mode, path if path.is_file() else None)
    sync_folder(path.parent)


def holds(path: Path, data: bytes) -> bool:
    """Whether the file at ``path`` is a regular one with exactly this content."""
    with suppress(OSError, UnusableFileError):
        return loader.read_bytes(path, len(data)) == data
    return False


_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK = 4096


def reserve_space(path: Path, size: int) -> None:
    """Reserve ``size`` bytes beside ``path``, so that it can be replaced on a full disk.

    The reserve is used up by the replacement that needs it; one that is large enough is kept.
    Raises OSError where there is no room for it.
    """
    reserve = _reserve(path)
    # In whole blocks, as file systems give room: a file that grows by a digit needs no new reserve.
    size += -size % _BLOCK
    if room(path) >= size:
        return
    make_folder(path.parent)
    descriptor, temporary = _temporary(path)
    try:
        # Allocated for real: a sparse file would find the disk full when it is written.
        os.posix_fallocate(descriptor, 0, size)
        os.rename(temporary, reserve)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(descriptor)


def room(path: Path) -> int:
    """Return how many bytes are reserved beside ``path``."""
    try:
        return _reserve(path).stat().st_size
    except OSError:
        return 0


def _reserve(path: Path) -> Path:
    return path.with_name(f".{path.name}.reserve")


def _put_in_reserve(path: Path, data: bytes, mode: int, reserve: Path) -> bool:
    """Write ``data`` into the reserved blocks; return False where there are too few."""
    try:
        descriptor = os.open(reserve, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if os.fstat(descriptor).st_size < len(data):
            return False
        # Over the blocks that are there, and cut afterwards: truncating first would give them back.
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], written)
        os.ftruncate(descriptor, len(data))
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    # Synced above, so the name never leads to content that is not on disk.
    os.rename(reserve, path)
    return True


def _put(path: Path, data: bytes, mode: int, like: Path | None) -> None:
    """Write ``data`` to a file beside ``path``, sync it, and give it that name."""
    # An unpredictable name: no planted link is followed, and no other writer's file is taken.
    descriptor, temporary = _temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            _guard(descriptor, mode, like)
            os.fsync(descriptor)
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):  # half a file would take the room that a full disk lacks
            os.unlink(temporary)
        raise


def _guard(descriptor: int, mode: int, like: Path | None) -> None:
    """Set the mode of a file, or copy mode, owner and access list from the file ``like``."""
    if like is None:
        os.fchmod(descriptor, mode)
        return
    status = like.stat(follow_symlinks=False)
    # Owner before mode: chown(2) may clear mode bits.
    os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
    with suppress(OSError):  # no access list, or a file system without them
        os.setxattr(descriptor, _ACCESS_LIST, os.getxattr(like, _ACCESS_LIST))


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes out while ``path`` is read, changed and written back.

    The lock is on the folder, since the file itself is replaced, and ends with the process. Raises
    OSError where the folder cannot be locked.
    """
    make_folder(path.parent)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def publish(path: Path, data: bytes, *, mode: int) -> None:
    """Put ``data`` at ``path`` for others to read: whole at any moment, but not durable.

    For files that are written every few seconds and worthless after a crash. The folder must exist
    and may be another user's: a link in the place of the temporary file is not followed. Raises
    OSError where that fails.
    """
    temporary = path.with_name(f".{path.name}.new")
    # A fixed name, unlike mkstemp's: a crash leaves one stale file at most, and the next call
    # removes it.
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
    """Put ``data`` into a new file that a person named, or ``over`` a regular file there.

    Links are not followed, and devices are not written to. A file that is replaced keeps its mode
    and owner. A file that cannot be written whole is not left behind. Raises FileExistsError where
    another file has the name, and OSError for other failures.
    """
    before = None
    if over:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise FileExistsError(f"{path} is not a regular file")
            before = path
    descriptor, temporary = _temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            _guard(descriptor, 0o644, before)
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
    """Give the file its name unless that is taken."""
    try:
        # link(2) fails where the name exists; rename(2) would replace the file of that name.
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: reserve the name with an empty file, then replace that.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        os.rename(temporary, path)


Signature = tuple[int, int, int, int] | None
"""Of a file: inode, size, and the times of its last change and status change in ns."""


def digest(data: bytes) -> str:
    """Return the digest by which hbatune's own files know content and names."""
    # hashlib would load OpenSSL as well, 3 MiB of it, for a digest that it takes from here.
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b

    return blake2b(data, digest_size=16).hexdigest()


def signature(path: Path) -> Signature:
    """Return a value that changes whenever the file does, None where there is none to be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def write_at(path: Path, offset: int, data: bytes, *, mode: int) -> None:
    """Put ``data`` at this offset of a file, which is made if it is missing, and make it durable.

    A crash may leave a part of it. Raises OSError where that fails.
    """
    is_new = not path.exists()
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        if is_new:
            os.fchmod(descriptor, mode)
        done = 0
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], offset + done)
        # Not the times of a file that keeps its size, which take a transaction of the file system.
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove ``path`` and its reserve, durably; both may be absent."""
    _reserve(path).unlink(missing_ok=True)
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


class FolderError(HbatuneError):
    """A folder of hbatune's own cannot be removed."""


def remove_folder(folder: Path) -> None:
    """Remove the folder and everything in it; it may be absent. Raises FolderError."""
    if folder.is_symlink():
        raise FolderError(f"{folder} is a link, which hbatune did not make")
    import shutil  # heavy, and only `uninstall` removes folders

    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"{error.filename} cannot be removed: {error.strerror}") from error


def empty_folder(folder: Path, *, keep: str) -> None:
    """Remove everything in the folder, which may be absent, except the file ``keep``.

    Raises FolderError.
    """
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        elif path.name != keep:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise FolderError(f"{path} cannot be removed: {error.strerror}") from error


def _temporary(path: Path) -> tuple[int, str]:
    """Make a file beside ``path`` that only its owner can read; return it open, and its name."""
    temporary = str(path.with_name(f".{path.name[:64]}.{os.urandom(8).hex()}"))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(temporary, flags, 0o600), temporary
