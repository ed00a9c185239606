"""Metrics reach node_exporter's folder and whoever asks on this machine, and nobody else."""

import os
import resource
import select
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from hbatune.errors import UsageError
from hbatune.policy.config import MetricsConfig, load_config
from hbatune.policy.toml_files import PolicyError
from hbatune.watch.exporter import CLIENT_TIMEOUT_S, MAX_CLIENTS, Exporter
from tests.unit.site_folder import SiteFolder

CONTENT = b"# TYPE hbatune_info gauge\nhbatune_info 1.0\n"
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Served:
    """Outlets on a unix socket with a clock of their own, and clients of them."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.now, self.path, self._stack = 0.0, path, stack
        self.outlets = Exporter(MetricsConfig(listen=f"unix:{path}"), clock=lambda: self.now)
        stack.callback(self.outlets.close)
        self.outlets.publish(CONTENT)

    def client(self) -> socket.socket:
        client = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        client.settimeout(5)
        client.connect(str(self.path))
        return client

    def serve(self) -> None:
        """Serve as the daemon does: whenever the descriptor says so."""
        descriptor = self.outlets.fileno()
        assert descriptor is not None
        while select.select([descriptor], [], [], 0)[0]:
            self.outlets.serve()

    def answer(self, request: bytes) -> bytes:
        client = self.client()
        client.sendall(request)
        self.serve()
        return everything(client)


def everything(client: socket.socket) -> bytes:
    data = b""
    while part := client.recv(65536):
        data += part
    return data


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with ExitStack() as stack:
        yield Served(tmp_path / "metrics.sock", stack)


def test_get_returns_metrics(served: Served) -> None:
    head, _, body = served.answer(GET).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Type: text/plain; version=0.0.4" in head
    assert f"Content-Length: {len(CONTENT)}".encode() in head
    assert body == CONTENT


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET\r\n\r\n", b"404"),
        (b"\r\n\r\n", b"405"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /metrics?name[]=x HTTP/1.0\r\n\r\n", b"200"),
        (b"\xff\xfe\x00 \xff\r\n\r\n", b"405"),
    ],
)
def test_request_gets_matching_status(served: Served, request_: bytes, status: bytes) -> None:
    assert served.answer(request_).split()[1] == status


def test_oversized_request_is_dropped(served: Served) -> None:
    assert served.answer(b"GET /" + b"a" * 5000) == b""


def test_silent_client_blocks_nobody(served: Served) -> None:
    silent = served.client()
    served.serve()
    assert served.answer(GET).endswith(CONTENT)
    served.now += CLIENT_TIMEOUT_S + 1
    served.outlets.publish(CONTENT)
    assert silent.recv(1) == b""


def test_oldest_silent_client_makes_room(served: Served) -> None:
    first = served.client()
    served.serve()
    for _ in range(MAX_CLIENTS):
        served.client()
        served.serve()
    assert first.recv(1) == b""  # it has waited the longest
    assert served.answer(GET).endswith(CONTENT)


@contextmanager
def without_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(map(int, os.listdir("/proc/self/fd")))
    descriptors = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, hard))
    try:
        with suppress(OSError):
            while True:
                descriptors.append(os.dup(0))
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_exhausted_descriptors_do_not_spin(served: Served) -> None:
    """accept(2) leaves the connection in the queue, so the socket would stay readable."""
    client = served.client()
    client.sendall(GET)
    descriptor = served.outlets.fileno()
    assert descriptor is not None
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    with without_descriptors():
        assert poll.poll(0)
        served.outlets.serve()
        assert not poll.poll(0)
    served.outlets.publish(CONTENT)
    served.serve()
    assert everything(client).endswith(CONTENT)


def test_large_response_goes_in_parts(served: Served) -> None:
    large = b"x" * (8 << 20)
    served.outlets.publish(large)
    client = served.client()
    client.sendall(GET)
    served.serve()
    received = b""
    while part := client.recv(1 << 20):
        received += part
        served.serve()
    assert received.endswith(large)


def test_midway_disconnect_is_survived(served: Served) -> None:
    served.outlets.publish(b"x" * (8 << 20))
    client = served.client()
    client.sendall(GET)
    served.serve()
    client.close()
    served.serve()
    served.outlets.publish(CONTENT)
    assert served.answer(GET).endswith(CONTENT)


def test_socket_is_private_and_removed(served: Served) -> None:
    assert stat.S_IMODE(served.path.stat().st_mode) == 0o660
    served.outlets.close()
    assert not served.path.exists()


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    Exporter(MetricsConfig(listen=f"unix:{path}")).close()


def test_loopback_tcp_serves_metrics() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    outlets = Exporter(MetricsConfig(listen=f"127.0.0.1:{port}"))
    outlets.publish(CONTENT)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(GET)
        descriptor = outlets.fileno()
        assert descriptor is not None
        while select.select([descriptor], [], [], 1)[0]:
            outlets.serve()
        assert everything(client).endswith(CONTENT)
    with pytest.raises(UsageError, match="cannot be served"):
        Exporter(MetricsConfig(listen=f"127.0.0.1:{port}"))
    outlets.close()


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:9925", "192.168.1.2:9925", "localhost:9925", ":9925", "[::]:9925", "unix:run/x", ""],
)
def test_nonlocal_addresses_are_refused(site: SiteFolder, address: str) -> None:
    site.put("hbatune.toml", f'[metrics]\nlisten = "{address}"\n')
    with pytest.raises(PolicyError) as caught:
        load_config(site.library)
    assert "a local address of this machine" in caught.value.message


@pytest.mark.parametrize(
    "address", ["127.0.0.1:9925", "127.1.2.3:1", "[::1]:9925", "unix:/run/hbatune/m.sock"]
)
def test_local_addresses_are_accepted(site: SiteFolder, address: str) -> None:
    site.put("hbatune.toml", f'[metrics]\nlisten = "{address}"\n')
    assert load_config(site.library).metrics.listen == address


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        directory = tmp_path / "textfile"
        directory.mkdir()
        return directory

    return make


def test_textfile_is_written_and_removed(folder: Callable[[], Path]) -> None:
    directory = folder()
    outlets = Exporter(MetricsConfig(textfile=str(directory)))
    assert outlets.fileno() is None
    for content in (b"first\n", CONTENT):
        outlets.publish(content)
    assert [path.name for path in directory.iterdir()] == ["hbatune.prom"]
    file = directory / "hbatune.prom"
    assert file.read_bytes() == CONTENT
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    outlets.close()
    assert not file.exists(), "a daemon that is gone says nothing of the present"


def test_textfile_symlink_is_not_followed(folder: Callable[[], Path], tmp_path: Path) -> None:
    """The folder may be another user's, who may put there what he likes."""
    directory, precious = folder(), tmp_path / "precious"
    precious.write_text("mine")
    for name in (".hbatune.prom.new", "hbatune.prom"):
        (directory / name).symlink_to(precious)
    Exporter(MetricsConfig(textfile=str(directory))).publish(CONTENT)
    assert precious.read_text() == "mine"
    assert (directory / "hbatune.prom").read_bytes() == CONTENT


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        Exporter(MetricsConfig(textfile=str(tmp_path / "none")))
