"""The daemon's datagrams to systemd and its journal."""

import math
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hbatune.agent import service as module
from hbatune.agent.service import ServiceManager, Systemd, detect_manager


def listen(address: str | Path) -> socket.socket:
    """Return a bound socket as systemd has one."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bound.settimeout(5)
    bound.bind(str(address))
    return bound


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket on which systemd takes notifications."""
    with closing(listen(tmp_path / "notify")) as bound:
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield bound


def decode_entry(data: bytes) -> dict[str, str]:
    """Return the fields of an entry, as the protocol's description reads them."""
    fields = {}
    while data:
        name, _, data = data.partition(b"\n")
        length = int.from_bytes(data[:8], "little")
        fields[name.decode()] = data[8 : 8 + length].decode()
        assert data[8 + length : 9 + length] == b"\n"
        data = data[9 + length :]
    return fields


def test_terminal_prints_entries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    by = detect_manager()
    assert type(by) is ServiceManager
    by.notify("READY=1")
    by.log("ready", 6, {})
    assert capsys.readouterr().out == "ready\n"


def test_notification_reaches_socket(manager: socket.socket) -> None:
    detect_manager().notify("READY=1")
    assert manager.recv(100) == b"READY=1"


def test_notification_reaches_abstract_socket() -> None:
    name = f"hbatune-test-{os.getpid()}"
    with closing(listen(f"\0{name}")) as bound:
        Systemd(f"@{name}").notify("WATCHDOG=1")
        assert bound.recv(100) == b"WATCHDOG=1"


def test_entry_reaches_journal(manager: socket.socket, tmp_path: Path) -> None:
    with closing(listen(tmp_path / "journal")) as bound:
        by = Systemd(str(tmp_path / "notify"), str(tmp_path / "journal"))
        by.log("two\nlines", 4, {"MESSAGE_ID": "abc", "HBATUNE_TARGET": "sdä"})
        assert decode_entry(bound.recv(1000)) == {
            "MESSAGE": "two\nlines",
            "PRIORITY": "4",
            "SYSLOG_IDENTIFIER": "hbatune",
            "MESSAGE_ID": "abc",
            "HBATUNE_TARGET": "sdä",
        }


def test_missing_journal_becomes_status(manager: socket.socket, tmp_path: Path) -> None:
    Systemd(str(tmp_path / "notify"), str(tmp_path / "none")).log("drift", 4, {})
    assert manager.recv(100) == b"STATUS=drift"


def test_undecodable_name_is_escaped(manager: socket.socket, tmp_path: Path) -> None:
    with closing(listen(tmp_path / "journal")) as bound:
        Systemd(str(tmp_path / "notify"), str(tmp_path / "journal")).log("sd\ud800", 4, {})
        assert decode_entry(bound.recv(1000))["MESSAGE"] == "sd\\ud800"
    detect_manager().notify("STATUS=sd\udcff")
    assert manager.recv(100) == b"STATUS=sd\\udcff"


def test_hung_journal_does_not_block(
    manager: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SEND_S", 0.01)
    manager.setblocking(False)
    with closing(listen(tmp_path / "journal")):  # it never receives
        by = Systemd(str(tmp_path / "notify"), str(tmp_path / "journal"))
        for number in range(1000):
            by.log(f"entry {number}", 6, {})
            try:
                message = manager.recv(100)
            except BlockingIOError:
                continue
            assert message == f"STATUS=entry {number}".encode()
            return
    raise AssertionError("the journal's queue was never full")


def test_missing_manager_is_ignored(tmp_path: Path) -> None:
    Systemd(str(tmp_path / "none")).notify("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        ("60000000", None, 60.0),
        ("60000000", "1", math.inf),
        ("", None, math.inf),
        ("x", None, math.inf),
    ],
)
def test_watchdog_belongs_to_process(
    monkeypatch: pytest.MonkeyPatch, usec: str, pid: str | None, seconds: float
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid or str(os.getpid()))
    assert Systemd("/run/none").watchdog == seconds
