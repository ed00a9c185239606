"""Publish metrics in a file for node_exporter, and on a socket reachable only from this machine.

No threads: the daemon polls one descriptor with all its others, and calls ``serve`` on events. A
slow or silent client uses one descriptor for a few seconds, and can never block the daemon.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from msgspec import Struct

from hbatune.act import files
from hbatune.errors import UsageError
from hbatune.policy.config import MetricsConfig

FILE_NAME = "hbatune.prom"
MAX_CLIENTS = 8  # concurrently
CLIENT_TIMEOUT_S = 5.0  # seconds for a client to send its request and to receive the answer
MAX_REQUEST_SIZE = 4096  # bytes of a request

_END = b"\r\n\r\n"


class _Client(Struct, eq=False):
    """A connection: the request received so far, and the remaining answer to send."""

    connection: socket.socket
    since: float
    asked: bytes = b""
    answer: bytes | None = None


class Exporter:
    """Publishes metrics as configured. Mutable: stores the connections and the content.

    Raises ``UsageError`` if the address or the directory cannot be used.
    """

    def __init__(self, metrics: MetricsConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._file: Path | None = None
        if metrics.textfile is not None:
            if not Path(metrics.textfile).is_dir():
                raise UsageError(
                    f"the directory for metrics, {metrics.textfile}, does not exist",
                    hint="use the directory of node_exporter's textfile collector",
                )
            self._file = Path(metrics.textfile, FILE_NAME)
        self._socket_file: Path | None = None
        self._clients: list[_Client] = []
        self._content = b""
        self._selector: selectors.EpollSelector | None = None
        self._paused = False
        if metrics.listen is not None:
            self._listener = self._listen(metrics.listen)
            self._selector = selectors.EpollSelector()
            self._selector.register(self._listener, selectors.EVENT_READ)

    def fileno(self) -> int | None:
        """Return the descriptor to poll before ``serve``, or None if nothing is served."""
        return None if self._selector is None else self._selector.fileno()

    def publish(self, content: bytes) -> None:
        """Publish new metrics; raise OSError if the file cannot be written."""
        self._content = content
        self._close_slow_clients()
        if self._paused and self._selector is not None:
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._paused = False
        if self._file is not None:
            files.publish(self._file, content, mode=0o644)

    def serve(self) -> None:
        """Serve clients as far as possible without waiting for any of them."""
        if self._selector is None:
            return
        for key, _ in self._selector.select(0):
            if key.data is None:
                self._accept_client()
            elif key.data in self._clients:  # not closed by an event just before
                self._serve_client(key.data)

    def close(self) -> None:
        """Close all connections and remove the file: old metrics must not look current."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
        if self._selector is None:
            return
        for client in tuple(self._clients):
            self._close_client(client)
        self._selector.close()
        self._listener.close()
        if self._socket_file is not None:
            self._socket_file.unlink(missing_ok=True)

    def _listen(self, address: str) -> socket.socket:
        try:
            if address.startswith("unix:"):
                self._socket_file = Path(address.removeprefix("unix:"))
                return _listen_unix(self._socket_file)
            host, _, port = address.rpartition(":")
            family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
            return _bind_socket(family, (host.strip("[]"), int(port)))
        except (OSError, OverflowError) as error:
            raise UsageError(f"metrics cannot be served on {address}: {error}") from error

    def _accept_client(self) -> None:
        assert self._selector is not None
        self._close_slow_clients()
        try:
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            client = _Client(connection, self._clock())
            self._selector.register(connection, selectors.EVENT_READ, client)
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client has disconnected
        except OSError:
            # Without descriptors or memory the connection stays in the queue, and the socket stays
            # readable (accept(2)): the daemon would spin. ``publish`` listens again.
            self._selector.unregister(self._listener)
            self._paused = True
            return
        if len(self._clients) >= MAX_CLIENTS:
            # The oldest is closed: otherwise silent clients would lock out the scraper.
            self._close_client(self._clients[0])
        self._clients.append(client)

    def _serve_client(self, client: _Client) -> None:
        assert self._selector is not None
        try:
            if client.answer is None:
                received = client.connection.recv(MAX_REQUEST_SIZE)
                client.asked += received
                if not received or len(client.asked) > MAX_REQUEST_SIZE:
                    self._close_client(client)
                    return
                if _END not in client.asked:
                    return
                # A copy: metrics published while a client is still reading must not mix with it.
                client.answer = make_http_answer(client.asked, self._content)
                self._selector.modify(client.connection, selectors.EVENT_WRITE, client)
            client.answer = client.answer[client.connection.send(client.answer) :]
        except BlockingIOError:
            return
        except OSError:
            # The client has disconnected, which is normal and no error of the daemon.
            client.answer = b""
        if not client.answer:
            self._close_client(client)

    def _close_slow_clients(self) -> None:
        oldest = self._clock() - CLIENT_TIMEOUT_S
        for client in tuple(self._clients):
            if client.since < oldest:
                self._close_client(client)

    def _close_client(self, client: _Client) -> None:
        assert self._selector is not None
        self._clients.remove(client)
        self._selector.unregister(client.connection)
        client.connection.close()


def make_http_answer(request: bytes, content: bytes) -> bytes:
    """Return the complete answer to a request: the metrics at /metrics, 404 elsewhere."""
    words = request.split(b"\r\n", 1)[0].split()
    status, body = HTTPStatus.OK, content
    if words[:1] != [b"GET"]:
        status, body = HTTPStatus.METHOD_NOT_ALLOWED, b""
    elif len(words) < 2 or words[1].split(b"?")[0] != b"/metrics":
        status, body = HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n"
    head = (
        f"HTTP/1.1 {status:d} {status.phrase}\r\n"
        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _listen_unix(path: Path) -> socket.socket:
    """Listen on a unix socket for root and its group; an old socket file is replaced."""
    # Only a socket is removed: any other file at this path is not hbatune's.
    if path.is_socket():
        path.unlink()
    # With umask, so the socket never has a wider mode, as it would before a chmod.
    umask = os.umask(0o117)
    try:
        return _bind_socket(socket.AF_UNIX, str(path))
    finally:
        os.umask(umask)


def _bind_socket(family: socket.AddressFamily, address: object) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        if family is not socket.AF_UNIX:
            # Without it a restart within a minute fails while old connections are in TIME_WAIT.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)  # type: ignore[arg-type]
        listener.listen(MAX_CLIENTS)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener
