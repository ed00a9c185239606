"""Claims: which disk each worker writes to, so that a later run knows what a stuck one may change.

A worker keeps one small file named after its pid, and names there the endpoint that it is about to
write to. The folder is on a memory file system: it need not survive a reboot, since no worker does.
"""

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from hbatune import loader
from hbatune.act import files
from hbatune.loader import UnusableFileError
from hbatune.workers import Process, this_process


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


class Claimer:
    """Writes this process's own claim; used inside a worker.

    It keeps no descriptor open: a worker that is used again gets a new one of these each time
    it switches work.
    """

    def __init__(self, folder: Path) -> None:
        self._process = this_process()
        # Others may list it: what a stuck worker holds up is nobody's secret, and nothing locks it.
        files.make_folder(folder.parent)
        files.make_folder(folder, 0o755)
        self._path = str(folder / str(self._process.pid))

    def claim(self, target: str, id: str) -> None:
        """Record the endpoint that this process is about to write to."""
        data = msgspec.json.encode(Claim(self._process.pid, self._process.start_time, target, id))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.fchmod(descriptor, files.READABLE)
            # Not synced: the reader is another process of the same boot, never one after a crash of
            # the kernel.
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Withdraw the claim: this process writes to nothing until the next one."""
        with suppress(FileNotFoundError):
            os.unlink(self._path)


def outstanding(folder: Path) -> list[Claim]:
    """Return the claims of workers that are still alive."""
    return [claim for _, claim in _read(folder) if claim is not None and claim.process.alive()]


def settle(folder: Path, *, patience: float) -> list[Claim]:
    """Kill the workers that an earlier run left, and return the claims of those still alive.

    Waits up to ``patience`` seconds: a worker in an uninterruptible wait ends when its I/O does. To
    be called under the lock, since no worker can then belong to a living run. Removes the claims of
    workers that have ended.
    """
    for claim in outstanding(folder):
        _kill(claim.process)
    # Read again: most have died at once, and only the others are worth waiting for.
    _wait([claim.process for claim in outstanding(folder)], patience)
    clear(folder)
    return outstanding(folder)


def clear(folder: Path) -> None:
    """Remove the claims of workers that have ended."""
    for path, claim in _read(folder):
        if claim is None or not claim.process.alive():
            with suppress(OSError):  # another program's folder of that name
                path.unlink()


def _read(folder: Path) -> list[tuple[Path, Claim | None]]:
    try:
        paths = sorted(folder.iterdir())
    except (FileNotFoundError, PermissionError):
        return []
    found: list[tuple[Path, Claim | None]] = []
    for path in paths:
        try:
            found.append((path, loader.load(path, Claim, loader.SMALL)))
        except FileNotFoundError:
            continue
        # Killed between opening the file and writing to it: no device was written to.
        except UnusableFileError:
            found.append((path, None))
    return found


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
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, due - time.monotonic()) * 1000)
        finally:
            os.close(descriptor)
