"""Write files that survive a crash: complete or absent, and durable once they have their name."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from hbatune import loader
from hbatune.errors import HbatuneError

FOLDER_MODE = 0o711
"""Mode of the directories that hbatune creates. Other users may read files in it, but not list or
open it, since who can open one can lock it (``lock_path``) indefinitely."""

READABLE_MODE = 0o644
"""Mode of the files that hbatune writes for commands of users other than root."""

_ACCESS_LIST = "system.posix_acl_access"  # the extended attribute of acl(5)


def make_folder(folder: Path, mode: int = FOLDER_MODE) -> None:
    """Create the directory and its parents with this mode, ignoring the umask. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    try:
        folder.mkdir(mode=mode)
        folder.chmod(mode)
    except FileExistsError:
        if not folder.is_dir():  # if it is one, another process was first
            raise


def replace(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o600,
    folder_mode: int = FOLDER_MODE,
    reserved_for: Path | None = None,
    keep_access: bool = False,
) -> None:
    """Put ``data`` at ``path``, durably. A crash at any instant leaves the old or the new content.

    With ``keep_access`` an administrator's existing file keeps mode, owner and access list. On a
    full disk the space reserved for the file, or for ``reserved_for`` in the same directory, is
    used (``reserve_space``). Raises OSError if that fails.
    """
    make_folder(path.parent, folder_mode)
    try:
        _put_file(path, data, mode, path if keep_access and path.is_file() else None)
    except OSError as error:
        reserve = _reserve_path(reserved_for or path)
        if error.errno not in _FULL or not _put_in_reserve(path, data, mode, reserve):
            raise
    sync_folder(path.parent)


def replace_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Put files for all readers into ``folder``; a crash leaves all or none. Raises FolderError."""
    temporary = folder.with_name(f".{folder.name}.new")
    remove_folder(temporary)
    try:
        if folder.exists():
            folder.rename(temporary)
            sync_folder(folder.parent)
            remove_folder(temporary)
        for name, data in contents.items():
            replace(temporary / name, data, mode=READABLE_MODE, folder_mode=0o755)
        temporary.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise FolderError(f"{folder} cannot be written: {error.strerror}") from error


def has_content(path: Path, data: bytes) -> bool:
    """Return whether ``path`` is a regular file with exactly this content."""
    with suppress(OSError, loader.UnusableFileError):
        return loader.read_bytes(path, len(data)) == data
    return False


_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK = 4096


def reserve_space(path: Path, size: int) -> None:
    """Reserve ``size`` bytes next to ``path`` for one replacement on a full disk. OSError."""
    reserve = _reserve_path(path)
    # In full blocks, as file systems allocate: a file that grows by a digit needs no new reserve.
    size += -size % _BLOCK
    if count_reserved_bytes(path) >= size:
        return
    make_folder(path.parent)
    descriptor, temporary = _make_temporary(path)
    with loader.close_on_exit(descriptor):
        try:
            # Allocated for real: a sparse file would find the disk full when it is written.
            os.posix_fallocate(descriptor, 0, size)
            os.rename(temporary, reserve)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def count_reserved_bytes(path: Path) -> int:
    """Return the number of bytes reserved next to ``path``."""
    try:
        return _reserve_path(path).stat().st_size
    except OSError:
        return 0


def _reserve_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.reserve")


def _put_in_reserve(path: Path, data: bytes, mode: int, reserve: Path) -> bool:
    """Write ``data`` into the reserved blocks; return False if there are too few."""
    try:
        descriptor = os.open(reserve, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with loader.close_on_exit(descriptor):
        if os.fstat(descriptor).st_size < len(data):
            return False
        # Over the existing blocks, and cut afterwards: truncating first would free them.
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], written)
        os.ftruncate(descriptor, len(data))
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    # Synced above, so the name never leads to content that is not on disk.
    os.rename(reserve, path)
    return True


def _put_file(
    path: Path, data: bytes, mode: int, like: Path | None, *, exclusive: bool = False
) -> None:
    """Write a file next to ``path``, with this mode or the access of ``like``, and rename it."""
    # An unpredictable name: no planted link is followed, and no other writer's file is used.
    descriptor, temporary = _make_temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if like is not None:
                status = like.stat(follow_symlinks=False)
                # Owner before mode: chown(2) may clear mode bits.
                os.fchown(descriptor, status.st_uid, status.st_gid)
                mode = stat.S_IMODE(status.st_mode)
            os.fchmod(descriptor, mode)
            if like is not None:
                with suppress(OSError):  # no access list, or a file system without them
                    os.setxattr(descriptor, _ACCESS_LIST, os.getxattr(like, _ACCESS_LIST))
            os.fsync(descriptor)
        if exclusive:
            _link_exclusively(temporary, path)
        else:
            os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):  # half a file would occupy space on a full disk
            os.unlink(temporary)
        raise


@contextmanager
def lock_path(path: Path) -> Iterator[None]:
    """Exclude other processes while ``path`` is read, changed and written. Raises OSError."""
    make_folder(path.parent)
    # The directory is locked, since the file itself is replaced. The lock ends with the process.
    with _open_folder(path.parent) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def publish(path: Path, data: bytes, *, mode: int) -> None:
    """Put ``data`` at ``path`` for others to read: complete, but not durable. Raises OSError."""
    # A fixed name: a crash leaves one stale file at most, and the next call removes it. The
    # directory may be another user's: no link at this path is followed.
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
    """Put ``data`` into a new file that a person named, or ``over`` an existing regular file.

    Links are not followed. A replaced file keeps its mode and owner. Raises FileExistsError if
    another file has the name, and OSError for other failures.
    """
    before = None
    if over:
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                raise FileExistsError(f"{path} is not a regular file")
            before = path
    _put_file(path, data, 0o644, before, exclusive=not over)
    sync_folder(path.parent)


def _link_exclusively(temporary: str, path: Path) -> None:
    """Give the file its name unless another file has it."""
    try:
        # link(2) fails if the name exists; rename(2) would replace the file of that name.
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links: reserve the name with an empty file, then replace that.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        os.rename(temporary, path)
    else:
        os.unlink(temporary)


Signature = tuple[int, int, int, int] | None
"""A file's inode, size, and the times of its last change and status change in ns."""


def compute_digest(data: bytes) -> str:
    """Return the digest that identifies content and names in hbatune's own files."""
    # hashlib would also load OpenSSL (3 MiB), although it takes this digest from _blake2.
    try:
        from _blake2 import blake2b
    except ImportError:
        from hashlib import blake2b

    return blake2b(data, digest_size=16).hexdigest()


def read_signature(path: Path | str) -> Signature:
    """Return a value that changes whenever the file does, or None if it cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def write_at(path: Path, offset: int, data: bytes, *, mode: int) -> None:
    """Put ``data`` at an offset, durably; a crash may leave a part of it. Raises OSError."""
    is_new = not path.exists()
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with loader.close_on_exit(os.open(path, flags, mode)) as descriptor:
        if is_new:
            os.fchmod(descriptor, mode)
        done = 0
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], offset + done)
        # Not the times of a file that keeps its size: they would cost a file system transaction.
        os.fdatasync(descriptor)
    if is_new:
        sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove ``path`` and its reserve, durably; both may be absent."""
    _reserve_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    with _open_folder(folder) as descriptor:
        os.fsync(descriptor)


def _open_folder(folder: Path) -> AbstractContextManager[int]:
    return loader.close_on_exit(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


class FolderError(HbatuneError):
    """A directory of hbatune cannot be removed."""


def remove_folder(folder: Path) -> None:
    """Remove the directory, if any, and its content; a mount point stays. Raises FolderError."""
    if folder.is_symlink():
        raise FolderError(f"{folder} is a link, which hbatune did not make")
    import shutil  # heavy, and only `uninstall` removes folders

    try:
        shutil.rmtree(folder)
    except OSError as error:
        is_mounted = error.errno == errno.EBUSY and Path(error.filename) == folder
        if error.errno != errno.ENOENT and not is_mounted:
            raise FolderError(f"{error.filename} cannot be removed: {error.strerror}") from error


def empty_folder(folder: Path, *, keep: str) -> None:
    """Remove everything in the directory, if it exists, except ``keep``. Raises FolderError."""
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


def _make_temporary(path: Path) -> tuple[int, str]:
    """Create a file next to ``path`` that only its owner can read; return it open, and its name."""
    temporary = str(path.with_name(f".{path.name[:64]}.{os.urandom(8).hex()}"))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(temporary, flags, 0o600), temporary
