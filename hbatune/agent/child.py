"""Run work in a separate process, so the daemon keeps listening if the work hangs or crashes."""

import os
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum

from hbatune import children
from hbatune.errors import HbatuneError
from hbatune.workers.worker import close_descriptors, die_with_parent

IDLE_AFTER_S = 2.0
"""Seconds without a request before idle work: events mostly arrive in quick succession."""


class ChildFailure(StrEnum):
    """The error of a child without a reply, as reports and the status contain it."""

    DIED = "its process has died"
    OVERDUE = "it did not come to its end"


class ChildError(HbatuneError):
    """No process can be started."""

    def __init__(self, error: OSError) -> None:
        hint = "raise the limits of processes, memory or open files (TasksMax=, MemoryMax=)"
        super().__init__(f"no process can be started: {error.strerror}", hint=hint)


class Server:
    """A fork that answers requests with ``serve``, one by one. ``fileno`` is the pipe of answers.

    It keeps the state of ``serve``, but no descriptor of the daemon. If no request arrives within
    ``IDLE_AFTER_S`` after an answer, it calls ``on_idle`` once. A server that crashes does not
    answer. Raises ChildError if the fork fails.
    """

    def __init__(self, serve: Callable[[bytes], bytes], on_idle: Callable[[], None]) -> None:
        self._received = bytearray()
        parent, opened = os.getpid(), list[int]()
        try:
            for _ in range(2):
                opened += os.pipe2(os.O_CLOEXEC)
            self.pid = os.fork()
        except OSError as error:
            for descriptor in opened:
                os.close(descriptor)
            raise ChildError(error) from error
        requests, self._writer, self._reader, answers = opened
        if self.pid == 0:

            def answer_requests() -> None:
                # A connection that the daemon closes must not stay open here.
                close_descriptors(requests, answers, *_find_log_connections())
                poll, received = select.poll(), bytearray()
                poll.register(requests, select.POLLIN)
                while (request := _receive_message(requests, received)) != b"":
                    if request is None:
                        continue
                    _write_message(answers, serve(request))
                    if not poll.poll(IDLE_AFTER_S * 1000):
                        on_idle()

            _run_in_child(answer_requests, parent)
        os.close(requests)
        os.close(answers)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reader

    def ask(self, request: bytes) -> None:
        """Send a request that is not empty. Raises BrokenPipeError if the server has died."""
        _write_message(self._writer, request)

    def read(self) -> bytes | None:
        """Receive available data. Return a complete answer, None before, or b"" if it has died."""
        answer = _receive_message(self._reader, self._received)
        if answer == b"":
            self.kill()
        return answer

    def kill(self) -> None:
        """Kill the process and collect its exit status, or abandon it (``children``)."""
        os.close(self._reader)
        os.close(self._writer)
        children.kill(self.pid)


def start_server(
    serve: Callable[[bytes], bytes],
    request: bytes = b"start",
    *,
    on_idle: Callable[[], None] = lambda: None,
) -> Server:
    """Return a server with its first request, which must not be empty. Raises ChildError."""
    server = Server(serve, on_idle)
    try:
        server.ask(request)
    except BrokenPipeError as error:
        server.kill()
        raise ChildError(error) from error
    return server


def await_answer(server: Server, seconds: float) -> bytes | None:
    """Return the server's answer, or None after ``seconds``. The server is ended."""
    sent, limit = None, time.monotonic() + seconds
    while sent is None and (remaining := limit - time.monotonic()) > 0:
        if select.select([server], [], [], remaining)[0]:
            sent = server.read()
    if sent != b"":  # it has not ended by itself
        server.kill()
    return sent


def _find_log_connections() -> Iterator[int]:
    """Yield the connections to systemd's journal, which receives the errors of a pass."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        with suppress(OSError):  # the directory's descriptor is closed
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                if (connection.family, connection.type) == (socket.AF_UNIX, socket.SOCK_DGRAM):
                    yield descriptor


_LENGTH = struct.Struct("!Q")


def _write_message(descriptor: int, message: bytes) -> None:
    remaining = memoryview(_LENGTH.pack(len(message)) + message)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


def _receive_message(descriptor: int, received: bytearray) -> bytes | None:
    """Add available data. Return a complete message, None before, b"" at the end."""
    part = os.read(descriptor, 1 << 16)
    if not part:
        return b""
    received += part
    if len(received) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(received)
    if len(received) < _LENGTH.size + length:
        return None
    # Nothing follows it: each end sends one message and waits for the reply.
    message = bytes(memoryview(received)[_LENGTH.size :])
    received.clear()
    return message


def _run_in_child(work: Callable[[], None], parent: int) -> None:
    """Do the work in the child. Never returns."""
    code = 1
    try:
        # A pass must not continue to write after the daemon is killed.
        die_with_parent(parent)
        # The descriptor is inherited: a signal for this process would wake the daemon.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        work()
        code = 0
    except BaseException:
        # os._exit below reports nothing, and an internal error must appear in the journal.
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)
