"""Runs work in a process of its own, so that the daemon goes on listening if it hangs or dies."""

import os
import signal
import sys
from collections.abc import Callable

from hbatune.errors import HbatuneError
from hbatune.workers.worker import die_with_parent


class ChildError(HbatuneError):
    """No process can be started for some work."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"no process can be started: {error.strerror}",
            hint="make room for processes, memory or open files (TasksMax=, MemoryMax=)",
        )


class Child:
    """A fork that does ``work`` and sends its result; ``fileno`` is readable once data has come.

    A child that dies sends nothing. Raises ChildError where none can be started.
    """

    def __init__(self, work: Callable[[], bytes]) -> None:
        self._parts: list[bytes] = []
        parent = os.getpid()
        try:
            self._reader, writer = os.pipe2(os.O_CLOEXEC)
        except OSError as error:
            raise ChildError(error) from error
        try:
            self.pid = os.fork()
        except OSError as error:
            os.close(self._reader)
            os.close(writer)
            raise ChildError(error) from error
        if self.pid == 0:
            _run(work, writer, parent)
        os.close(writer)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reader

    def read(self) -> bytes | None:
        """Receive what has arrived; return all of it once the child has ended, None before."""
        part = os.read(self._reader, 1 << 16)
        if part:
            self._parts.append(part)
            return None
        os.close(self._reader)
        os.waitpid(self.pid, 0)  # past its last write, so it ends soon
        return b"".join(self._parts)

    def kill(self) -> None:
        """Kill it and collect its exit status."""
        os.close(self._reader)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)  # it ends at once: only its workers can hang in the kernel


def _run(work: Callable[[], bytes], writer: int, parent: int) -> None:
    """Do the work in the child; it never returns."""
    code = 1
    try:
        # A daemon that is killed must not leave a pass behind that goes on writing.
        die_with_parent(parent)
        # The inherited descriptor is the daemon's: a signal for this process would wake the daemon.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        sent = memoryview(work())
        while sent:
            sent = sent[os.write(writer, sent) :]
        code = 0
    except BaseException:
        # os._exit below tells nobody, and a fault of hbatune must be seen in the journal.
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)
