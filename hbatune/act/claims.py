"""Claims: the target that each worker writes to. A later run then knows what a stuck one may set.

A worker can hang in the kernel and outlive its run, which is why the claims are in a file. The
parent of the workers writes it. The file is on a memory file system: no claim has to survive a
reboot, since no worker does. It has a slot for each worker. The slots are allocated before the
first write to a device, so a file system that is full later cannot prevent a claim.

A claim never prevents a write. Without the file, on a read-only /run for example, only the parent
knows its workers, and the next run finds a stuck one by its deadline.
"""

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from hbatune import loader
from hbatune.act import files
from hbatune.loader import UnusableFileError
from hbatune.workers import Process

if TYPE_CHECKING:
    from hbatune.act.chain import Chain

_SLOT_BYTES = 1024
_MAX_BYTES = 1 << 20
_EMPTY = b"\0"
"""The first byte of a slot without a claim, and the end of a claim in its slot."""


class Claim(msgspec.Struct, frozen=True):
    """A process and the endpoint that it writes to."""

    pid: int
    start_time: int
    target: str
    id: str

    @property
    def process(self) -> Process:
        """The writer."""
        return Process(self.pid, self.start_time)


class ClaimTable:
    """The claims of this process's workers, at most ``slots`` at a time. Only under the lock.

    Slots of living workers of earlier runs are not used.
    """

    def __init__(self, path: Path, slots: int) -> None:
        self._descriptor = -1
        self._slots: dict[int, int] = {}  # by pid
        self._free: list[int] = []
        with suppress(OSError):
            self._allocate(path, slots)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def started(self, worker: Process, chain: "Chain") -> None:
        """Record the target that a worker is about to write to."""
        claim = Claim(worker.pid, worker.start_time, chain.target, chain.id)
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

    def _allocate(self, path: Path, slots: int) -> None:
        """Open the file and allocate its free slots. Raises OSError if the file cannot be used."""
        files.make_folder(path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        # Readable by others: a stuck worker is not a secret, and nothing locks this file.
        os.fchmod(self._descriptor, files.READABLE)
        taken = {slot for slot, claim in _slots(path) if claim.process.alive()}
        count = slots + len(taken)
        allocated = os.fstat(self._descriptor).st_size // _SLOT_BYTES
        with suppress(OSError):  # no free space: the slots that exist are used
            if allocated < count:
                os.posix_fallocate(self._descriptor, 0, count * _SLOT_BYTES)
                allocated = count
        self._free = [slot for slot in reversed(range(allocated)) if slot not in taken]

    def _write(self, slot: int, data: bytes) -> None:
        # Not synced: the reader is another process of the same boot.
        with suppress(OSError):
            os.pwrite(self._descriptor, data, slot * _SLOT_BYTES)


def outstanding(path: Path) -> list[Claim]:
    """Return the claims of workers that are still alive."""
    return [claim for _, claim in _slots(path) if claim.process.alive()]


def settle(path: Path, *, patience: float) -> list[Claim]:
    """Kill the workers that an earlier run left, and return the claims of those still alive.

    Waits up to ``patience`` seconds: a worker in an uninterruptible wait ends when its I/O does. To
    be called under the lock, since no worker can then belong to a living run.
    """
    claims = outstanding(path)
    for claim in claims:
        _kill(claim.process)
    _wait([claim.process for claim in claims], patience)
    return [claim for claim in claims if claim.process.alive()]


def _slots(path: Path) -> list[tuple[int, Claim]]:
    """Return the claims with their slots. A slot that is being written is skipped."""
    try:
        data = loader.read_bytes(path, _MAX_BYTES)
    except (FileNotFoundError, PermissionError, UnusableFileError):
        return []
    claims = list[tuple[int, Claim]]()
    for start in range(0, len(data), _SLOT_BYTES):
        text = data[start : start + _SLOT_BYTES].partition(_EMPTY)[0]
        if text:
            with suppress(UnusableFileError):
                claims.append((start // _SLOT_BYTES, loader.decode(text, Claim)))
    return claims


def _kill(process: Process) -> None:
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _wait(processes: Iterable[Process], patience: float) -> None:
    due = time.monotonic() + patience
    for process in processes:
        try:
            # Not a child of this process, so waitpid(2) does not do.
            descriptor = os.pidfd_open(process.pid)
        except OSError:  # it has ended, or there is no free descriptor
            continue
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, due - time.monotonic()) * 1000)
        finally:
            os.close(descriptor)
