"""The lock of the machine, held targets, and the claims of workers.

One hbatune at a time changes the machine. ``Lock`` keeps a second run, or a second daemon, out.
``hold_targets`` names the targets that a run is switching, so the daemon does not repair them. A
claim is the target that a worker writes to: a later run then knows what a stuck worker may set.
"""

import errno
import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from hbatune import loader
from hbatune.act import files
from hbatune.errors import HbatuneError, LockedError, LockRole, UsageError, suggest_remedy
from hbatune.processes import describe_process
from hbatune.workers import Process, find_this_process

if TYPE_CHECKING:
    from hbatune.act.chain import Chain


_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux (fcntl.h)
_locked_paths: set[Path] = set()
"""The locks that this process holds. Closing any descriptor of such a file releases its lock
(fcntl(2)), so a second one must never be opened."""


class Lock:
    """A POSIX record lock on a file; LockedError if another process, with this ``role``, holds it.

    A forked worker does not inherit such a lock (fcntl(2)), so one that is stuck in the kernel
    cannot keep the next run out. If the file is missing and its file system accepts no new one, the
    file ``spare`` on another file system is locked. Each process locks both files if both exist,
    and then checks whether a missing one has appeared. So any two processes meet at one file.
    """

    def __init__(
        self, path: Path, role: LockRole = LockRole.RUN, *, spare: Path | None = None
    ) -> None:
        self._path, self._spare, self._role = path, spare, role
        self._descriptors: dict[Path, int] = {}

    def __enter__(self) -> Self:
        if self._path in _locked_paths:
            raise RuntimeError(f"{self._path} is locked by this process already")
        try:
            self._lock_files()
            # A name leads to another file if an uninstallation has removed the opened file. A lock
            # on the removed file would not exclude other processes.
            while not self._has_its_names():
                self._close()
                self._lock_files()
        except BaseException:
            self._close()
            raise
        _locked_paths.add(self._path)
        return self

    def remove(self) -> None:
        """Remove the files of the held lock, after all other state. Raises LockFileError."""
        for path in self._descriptors:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise LockFileError(path, error, "removed") from error
        with suppress(OSError):  # the directory is not empty
            self._path.parent.rmdir()

    def __exit__(self, *_: object) -> None:
        _locked_paths.discard(self._path)
        self._close()

    def _lock_files(self) -> None:
        """Open and lock the files. Raises LockedError, and LockFileError if there is no file."""
        problem: OSError | None = None
        try:
            self._take(self._path, _open_file(self._path))
        except OSError as error:
            # The spare file may replace only a missing file: others may hold this one.
            if self._spare is None or error.errno not in _NO_NEW_FILE or self._path.exists():
                raise LockFileError(self._path, error) from error
            problem = error
        if self._spare is None:
            return
        try:
            self._take(self._spare, _open_file(self._spare, make=problem is not None))
        except FileNotFoundError:
            pass
        except OSError as error:
            path = self._spare if problem is None else self._path
            raise LockFileError(path, problem or error) from error

    def _take(self, path: Path, descriptor: int) -> None:
        self._descriptors[path] = descriptor
        while not _try_lock(descriptor):
            if pid := _query_holder(descriptor):  # else it was released just now
                raise LockedError(pid, self._role, holder=describe_process(pid))

    def _has_its_names(self) -> bool:
        """Return whether each path leads to its locked file, and a path without one to no file."""
        for path in filter(None, (self._path, self._spare)):
            try:
                status = os.stat(path)  # not opened: see ``_locked_paths``
            except FileNotFoundError:
                if path in self._descriptors:
                    return False
                continue
            descriptor = self._descriptors.get(path)
            if descriptor is None or not os.path.samestat(status, os.fstat(descriptor)):
                return False
        return True

    def _close(self) -> None:
        for descriptor in self._descriptors.values():
            if _is_read_only(descriptor):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a fork may not have closed it yet
            os.close(descriptor)
        self._descriptors.clear()


_NO_NEW_FILE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


class LockFileError(HbatuneError):
    """The file to lock cannot be made, opened or removed."""

    def __init__(self, path: Path, error: OSError, action: str = "made") -> None:
        message = f"the lock {path} cannot be {action}: {error.strerror}"
        super().__init__(message, hint=suggest_remedy(error, path))
        if error.errno in (errno.EACCES, errno.EPERM):
            self.exit_code = UsageError.exit_code


def _open_file(path: Path, *, make: bool = True) -> int:
    """Open the file, or create it; only for reading on a read-only file system. Raises OSError."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        if make:
            files.make_folder(path.parent)
            flags |= os.O_CREAT
        return os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise error from None


def _is_read_only(descriptor: int) -> bool:
    return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY


def _try_lock(descriptor: int) -> bool:
    try:
        if _is_read_only(descriptor):
            # A write lock needs a writable file (fcntl(2)). The read lock excludes write locks, and
            # names its holder. flock(2) excludes other read locks.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        else:
            # Not flock(2): a forked child shares such a lock, and holds it during its lifetime.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # fcntl(2): either
        return False
    return True


def _query_holder(descriptor: int) -> int | None:
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # without a holder, the pid stays 0
    return _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, query))[-1] or None


def find_holder(path: Path) -> int | None:
    """Return the process that holds a lock, which this process does not hold, or None."""
    with suppress(OSError), loader.open_file(path) as descriptor:
        return _query_holder(descriptor)
    return None


class Hold(msgspec.Struct, frozen=True):
    """A process and the ids of the targets that it is switching."""

    process: Process
    ids: tuple[str, ...]


class HoldError(HbatuneError):
    """The held targets cannot be recorded, so nothing is switched."""


@contextmanager
def hold_targets(folder: Path, ids: Iterable[str]) -> Iterator[None]:
    """Hold these targets in a file, which is void without this process. Raises HoldError."""
    path, hold = folder / str(os.getpid()), Hold(find_this_process(), tuple(dict.fromkeys(ids)))
    try:
        files.replace(path, msgspec.json.encode(hold))
    except OSError as error:
        hint = f"{suggest_remedy(error, path)}; the applied values remain"
        problem = f"{path} cannot be written: {error.strerror}"
        raise HoldError(problem, hint=hint) from error
    try:
        yield
    finally:
        # A file that cannot be removed holds nothing once this process has ended.
        with suppress(OSError):
            path.unlink(missing_ok=True)


def read_held_ids(folder: Path) -> frozenset[str]:
    """Return the ids that living processes hold."""
    ids: set[str] = set()
    with suppress(FileNotFoundError, PermissionError):
        for path in folder.iterdir():
            # None if it was just released, or is another program's file.
            hold = loader.load_or(path, None, loader.SMALL_BOUNDS, Hold)
            if hold is not None and hold.process.alive():
                ids.update(hold.ids)
    return frozenset(ids)


_SLOT_BYTES = 1024
_MAX_BYTES = 1 << 20
_EMPTY = b"\0"
"""The first byte of a slot without a claim, and the end of a claim in its slot."""


class Claim(Process, frozen=True):
    """A process and the endpoint that it writes to, and whether the kernel locks its adapter."""

    target: str
    id: str
    locks: bool = False


class ClaimTable:
    """The claims of this process's workers, at most ``slots`` at a time. Only under the lock.

    A worker can hang in the kernel and outlive its run, so the claims are in a file, on a memory
    file system: no worker survives a reboot. The slots are allocated before the first write to a
    device, so a full file system cannot prevent a claim. A claim never prevents a write.
    """

    def __init__(self, path: Path, slots: int) -> None:
        self._descriptor = -1
        self._slots: dict[int, int] = {}  # by pid
        self._free: list[int] = []
        with suppress(OSError):  # without the file a worker has no claim
            files.make_folder(path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
            # Readable by others: a stuck worker is not a secret, and nothing locks this file.
            os.fchmod(self._descriptor, files.READABLE_MODE)
            occupied = {slot for slot, claim in _read_slots(path) if claim.alive()}
            count = slots + len(occupied)
            allocated = os.fstat(self._descriptor).st_size // _SLOT_BYTES
            with suppress(OSError):  # no free space: the slots that exist are used
                if allocated < count:
                    os.posix_fallocate(self._descriptor, 0, count * _SLOT_BYTES)
                    allocated = count
            self._free = [slot for slot in reversed(range(allocated)) if slot not in occupied]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def started(self, worker: Process, chain: "Chain") -> None:
        """Record the target that a worker is about to write to."""
        claim = Claim(worker.pid, worker.start_time, chain.target, chain.id, bool(chain.turn))
        data = msgspec.json.encode(claim) + _EMPTY
        if self._free and len(data) <= _SLOT_BYTES:
            slot = self._slots[worker.pid] = self._free.pop()
            self._write(slot, data)

    def ended(self, worker: Process) -> None:
        """Withdraw the claim of a worker whose writes have all returned."""
        slot = self._slots.pop(worker.pid, None)
        if slot is not None:
            self._write(slot, _EMPTY)
            self._free.append(slot)

    def _write(self, slot: int, data: bytes) -> None:
        # Not synced: the reader is another process of the same boot.
        with suppress(OSError):
            os.pwrite(self._descriptor, data, slot * _SLOT_BYTES)


def find_outstanding_claims(path: Path) -> list[Claim]:
    """Return the claims of workers that are still alive."""
    return [claim for _, claim in _read_slots(path) if claim.alive()]


def settle_claims(path: Path, *, patience: float) -> list[Claim]:
    """Kill the workers that an earlier run left, and return the claims of those still alive.

    Waits up to ``patience`` seconds: a worker in an uninterruptible wait ends when its I/O does.
    Call it only under the lock, since no worker can then belong to a living run.
    """
    claims = find_outstanding_claims(path)
    for claim in claims:
        with suppress(ProcessLookupError):
            os.kill(claim.pid, signal.SIGKILL)
    due = time.monotonic() + patience
    for claim in claims:
        try:
            # Not a child of this process, so waitpid(2) cannot be used.
            descriptor = os.pidfd_open(claim.pid)
        except OSError:  # it has ended, or there is no free descriptor
            continue
        with loader.close_on_exit(descriptor):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, due - time.monotonic()) * 1000)
    return [claim for claim in claims if claim.alive()]


def _read_slots(path: Path) -> list[tuple[int, Claim]]:
    """Return the claims with their slots. A slot that is being written is skipped."""
    try:
        data = loader.read_bytes(path, _MAX_BYTES)
    except (FileNotFoundError, PermissionError, loader.UnusableFileError):
        return []
    claims = list[tuple[int, Claim]]()
    for start in range(0, len(data), _SLOT_BYTES):
        text = data[start : start + _SLOT_BYTES].partition(_EMPTY)[0]
        if text:
            with suppress(loader.UnusableFileError):
                claims.append((start // _SLOT_BYTES, loader.decode(text, Claim)))
    return claims
