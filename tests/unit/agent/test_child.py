"""The process that makes one pass after another: it answers, and rests once nothing is asked."""

import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from hbatune.agent import child
from hbatune.agent.child import Server


def answer(server: Server, request: bytes) -> bytes:
    server.ask(request)
    while True:
        select.select([server], [], [])
        if (message := server.read()) is not None:
            return message


@pytest.fixture
def rested(tmp_path: Path) -> Path:
    """A pipe that is written to at each rest: whoever reads it waits for one."""
    path = tmp_path / "rested"
    os.mkfifo(path)
    return path


def resting(rested: Path) -> tuple[Callable[[bytes], bytes], Callable[[], None]]:
    """Return a server that reports the number of rests, and a function that counts a rest."""
    rests = 0

    def serve(request: bytes) -> bytes:
        return b"%s after %d" % (request, rests)

    def record_rest() -> None:
        nonlocal rests
        rests += 1
        rested.write_bytes(b"rested")

    return serve, record_rest


def test_idle_server_keeps_state(rested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "IDLE_AFTER_S", 0.0)
    serve, record_rest = resting(rested)
    server = Server(serve, record_rest)
    try:
        assert answer(server, b"one") == b"one after 0"
        assert rested.read_bytes() == b"rested"
        assert answer(server, b"two") == b"two after 1"
    finally:
        server.kill()


def test_consecutive_requests_skip_idling(rested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "IDLE_AFTER_S", 3600.0)
    serve, record_rest = resting(rested)
    server = Server(serve, record_rest)
    try:
        assert [answer(server, b"now") for _ in range(3)] == [b"now after 0"] * 3
    finally:
        server.kill()
