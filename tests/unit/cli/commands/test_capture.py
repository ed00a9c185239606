"""`hbatune capture` on a described machine, with the trace of a simulated disk."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from hbatune.act.block_trace import BlockEvent
from hbatune.cli import main
from hbatune.facts.model import Missing, Reason
from hbatune.operations import capture
from hbatune.probe import trace_file
from hbatune.probe.trace_file import load_trace
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.traced_disk import BEGIN_US, SimulatedDisk

Capture = pytest.CaptureFixture[str]
IOS = 400
EVENTS = [
    event
    for event in SimulatedDisk().trace(IOS)
    if event.name in ("block_bio_queue", "block_rq_complete")
]


class FakeTrace:
    """The events that the kernel's buffers have, and the number of events that they lost."""

    def __init__(self, events: Sequence[BlockEvent] = EVENTS, lost: int = 0) -> None:
        self.events, self.lost = list(events), lost
        self.unread = list(events)
        self.started = self.removed = 0

    def start(self) -> None:
        self.started += 1

    def read(self) -> Iterator[BlockEvent]:
        unread, self.unread = self.unread, []
        yield from unread

    def count_read(self) -> int:
        return len(self.events)

    def count_lost(self) -> int:
        return self.lost

    def remove(self) -> None:
        self.removed += 1


Command = Callable[..., int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Return `hbatune capture sda db.trace` as root, with a clock that only sleeping moves."""
    seconds = BEGIN_US / 1e6

    def sleep(pause: float) -> None:
        nonlocal seconds
        seconds += pause

    clock = SimpleNamespace(monotonic=lambda: seconds, sleep=sleep, time=lambda: 1.0)
    monkeypatch.setattr(capture, "time", clock)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    disk = endpoint(attributes=attributes(dev="8:0"))
    monkeypatch.setattr(capture, "gather_machine", lambda *arguments: machine(disk))
    monkeypatch.chdir(tmp_path)

    def run(trace: FakeTrace, *words: str) -> int:
        monkeypatch.setattr(capture, "BlockTrace", lambda name, events, device: trace)
        return main(["capture", "sda", "db.trace", *words])

    return run


def test_file_has_each_io(command: Command, capsys: Capture) -> None:
    trace = FakeTrace()
    assert command(trace, "--seconds", "2") == 0
    assert (trace.started, trace.removed) == (1, 2)
    captured = load_trace(Path("db.trace"))
    header = captured.header
    assert (header.target, header.seconds, header.ios, header.lost) == ("sda", 2.0, IOS, 0)
    assert list(captured.arrivals_us)[:3] == [0, 1, 2]
    assert set(captured.latencies_us) == {1000}
    assert sorted(captured.sectors) == sorted(
        event.position[1] for event in EVENTS if event.name == "block_rq_complete"
    )
    assert captured.write_fraction == 0
    size = Path("db.trace").stat().st_size
    line = f"db.trace: 400 I/Os in 2 s, 0 % of them writes, {size} bytes."
    assert capsys.readouterr().out.splitlines() == [line]


@pytest.mark.parametrize(("operation", "writes"), [("RA", [0]), ("FWS", [1]), ("N", [])])
def test_io_has_its_direction(command: Command, operation: str, writes: list[int]) -> None:
    assert command(FakeTrace(SimulatedDisk(operation=operation).trace(1))) == 0
    assert list(load_trace(Path("db.trace")).writes) == writes


def test_full_file_ends_early(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(trace_file, "MAX_IOS", 100)
    assert command(FakeTrace()) == 1
    header = load_trace(Path("db.trace")).header
    assert (header.ios, header.seconds < 0.1) == (100, True)
    assert "The file is full, so the capture ended early." in capsys.readouterr().out


@pytest.mark.parametrize(("lost", "code"), [(8, 0), (9, 1)])
def test_lost_events_are_reported(command: Command, lost: int, code: int, capsys: Capture) -> None:
    assert command(FakeTrace(lost=lost)) == code
    out = capsys.readouterr().out
    assert "of the kernel's events were lost" in out
    assert ("`apply --verify` refuses the" in out) == bool(code)
    assert load_trace(Path("db.trace")).header.lost == lost


def test_existing_file_is_kept(command: Command, capsys: Capture) -> None:
    Path("db.trace").write_text("precious")
    trace = FakeTrace()
    assert command(trace) == 2
    assert trace.started == 0
    assert Path("db.trace").read_text() == "precious"
    assert command(trace, "--force") == 0
    assert load_trace(Path("db.trace")).header.ios == IOS


def test_removed_disk_has_no_file(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    disk = endpoint(attributes=attributes(dev="8:0"), size=Missing(Reason.VANISHED))
    monkeypatch.setattr(capture, "gather_machine", lambda *arguments: machine(disk))
    trace = FakeTrace()
    assert command(trace) == 1
    assert "sda was removed" in capsys.readouterr().err
    assert (trace.started, Path("db.trace").exists()) == (0, False)


def test_anonymous_file_names_no_disk(command: Command) -> None:
    assert command(FakeTrace(), "--anonymous") == 0
    assert b"sda" not in Path("db.trace").read_bytes()
    assert load_trace(Path("db.trace")).header.ios == IOS
