"""`hbatune why` on described machines, with the trace of a simulated disk."""

import errno
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune.act.block_trace import MAX_EVENTS, BlockEvent
from hbatune.cli import main
from hbatune.facts.model import Attribute, Kind, Machine, Role
from hbatune.facts.sampler import Sample, SampledPlaces
from hbatune.operations import why
from tests.documented import validate
from tests.unit.command_runs import See
from tests.unit.machines import ABSENT, attributes, endpoint, machine, vector
from tests.unit.traced_disk import BEGIN_US, SimulatedDisk
from tests.unit.watch_samples import counted

Capture = pytest.CaptureFixture[str]
Windows = list[tuple[Sequence[BlockEvent], int]]


class FakeTrace:
    """Windows with their events and the number of lost events. The last one is repeated.

    The first event is at the start of its window, and reading all of them takes ``read_seconds``.
    """

    def __init__(
        self, windows: Windows, error: OSError | None = None, read_seconds: float = 0.0
    ) -> None:
        self.windows, self.error, self.read_seconds = windows, error, read_seconds
        self.clock: Clock | None = None
        self.started: list[float] = []
        self.current: tuple[Sequence[BlockEvent], int] = ((), 0)
        self.removed = 0
        self.device = ""

    def start(self) -> None:
        if self.error is not None:
            raise self.error
        self.current = self.windows.pop(0) if len(self.windows) > 1 else self.windows[0]
        assert self.clock is not None
        self.started.append(self.clock.now)

    def stop(self) -> Iterator[BlockEvent]:
        assert self.clock is not None
        self.clock.now += self.read_seconds
        later_us = round(1e6 * self.started[-1]) - BEGIN_US
        for event in self.current[0]:
            wait = tuple(time_us + later_us for time_us in event.wait)
            yield replace(event, time_us=event.time_us + later_us, wait=wait)

    def count_lost(self) -> int:
        return self.current[1]

    def remove(self) -> None:
        self.removed += 1


class FakeSampler:
    def __init__(self, places: SampledPlaces) -> None:
        self.ids = list(places.disks.values())

    in_flight = 16

    def sample(self, at: float, moment: float) -> Sample:
        disk = counted(device="8:16", in_flight=self.in_flight)
        return Sample(at, moment, dict.fromkeys(self.ids, disk))


class Clock:
    """A clock that only sleeping moves; ``slept`` are the lengths of all windows and pauses."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(round(seconds, 3))


Command = Callable[..., int]


def sdb(**texts: str) -> Any:
    texts = {"queue__nr_requests": "256", "device__queue_depth": "4", **texts}
    scheduler = "none [mq-deadline]"
    return endpoint(target="sdb", attributes=attributes(queue__scheduler=scheduler, **texts))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    own = SimpleNamespace(monotonic=lambda: clock.now, sleep=clock.sleep, time=time.time)
    monkeypatch.setattr(why, "time", own)
    return clock


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Command:
    """Return `hbatune why` as root, on a machine and with the windows of a trace."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(why, "Sampler", FakeSampler)
    monkeypatch.setattr(why, "read_io_limits", lambda device: ())
    monkeypatch.setattr(why, "IdleCpus", lambda: SimpleNamespace(found=lambda: False))

    def run(trace: FakeTrace, *words: str, on: Machine | None = None) -> int:
        described = machine(endpoint(), sdb()) if on is None else on
        monkeypatch.setattr(why, "gather_machine", lambda *a, **k: described)

        def make(name: str, events: object, device: str) -> FakeTrace:
            trace.device, trace.clock = device, clock
            return trace

        monkeypatch.setattr(why, "BlockTrace", make)
        return main(["why", *words])

    return run


def deep() -> FakeTrace:
    return FakeTrace([(SimulatedDisk(commands=4).trace(), 0)])


def test_answer_comes_first(command: Command, capsys: Capture) -> None:
    trace = deep()
    assert command(trace, "sdb", "--seconds", "2") == 0
    assert (trace.device, trace.removed) == ("8:16", 2)
    assert capsys.readouterr().out.splitlines() == [
        "Raise queue_depth: at most 75 % of the p99 can be won.",
        "",
        "A REQUEST                             MEAN  OF THE MEAN  OF THE P99",
        "waits for a request                0.00 µs          0 %         0 %",
        "waits for its issue to the driver  2.90 ms         74 %        75 %",
        "is executed by the drive           1.00 ms         26 %        25 %",
        "",
        "queue_depth is 4 now.",
        "sdb: 484 requests in 2 s, p99 4.00 ms; 6 % of the time was traced.",
    ]


def test_answer_is_shown_at_its_setting(command: Command, see: See, capsys: Capture) -> None:
    see(machine(endpoint(), sdb()))
    newer = replace(machine(endpoint(), sdb()), kernel="7.3.4")
    assert command(deep(), "sdb") == 0
    capsys.readouterr()
    main(["history", "sdb"])
    sentence = "`why` traced a p99 of 4.00 ms: queue_depth can win at most 75 % of it"
    assert sentence in " ".join(capsys.readouterr().out.split())
    main(["diff", "--profile", "oltp"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "`why`" in line] == [f"sdb: {sentence}."]
    for other in (machine(endpoint(), sdb(device__queue_depth="32")), newer):
        see(other)
        main(["diff", "--profile", "oltp"])
        assert "`why`" not in capsys.readouterr().out, "the answer is of another depth or kernel"
    see(machine(endpoint(), sdb()))
    command(FakeTrace([(SimulatedDisk().trace(), 0)]), "sdb")
    capsys.readouterr()
    main(["diff", "--profile", "oltp"])
    assert "`why`" not in capsys.readouterr().out, "now the drive is the cause"
    main(["history", "sdb"])
    assert "no setting helps (drive)" in " ".join(capsys.readouterr().out.split())


def test_document_has_lever(command: Command, capsys: Capture) -> None:
    assert command(deep(), "sdb", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert (document["lever"], document["current"], document["wanted"]) == ("queue_depth", 4, None)
    assert document["gain"] == pytest.approx(0.75, abs=0.01)
    assert (document["requests"], document["seconds"]) == (2420, 10)
    assert document["traced"] == pytest.approx(0.061, abs=1e-4)
    command(FakeTrace([(SimulatedDisk().trace(), 0)]), "sda", "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["lever"], document["cause"], document["gain"]) == ("none", "drive", 0)


def test_small_load_has_no_answer(command: Command, capsys: Capture) -> None:
    assert command(FakeTrace([((), 0)]), "sda") == 1
    out = capsys.readouterr().out
    assert out.startswith("The load is too small to answer: 0 requests, 100 are needed.\n")
    assert command(FakeTrace([((), 0)]), "sda", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    validate(document)
    assert (document["lever"], document["cause"]) == ("none", None)


def test_windows_with_losses_are_not_counted(
    command: Command, clock: Clock, capsys: Capture
) -> None:
    events = SimulatedDisk(commands=4).trace()
    trace = FakeTrace([(events, 30_000), (events, 0)])
    assert command(trace, "sdb", "--seconds", "2", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["lost"], document["requests"]) == (30_000, 242)
    assert clock.slept[::2] == [0.1, 0.015], "the next window is shorter"
    assert document["traced"] == pytest.approx(0.0305, abs=1e-4)
    command(FakeTrace([(events, 30_000), (events, 0)]), "sdb", "--seconds", "2")
    assert "30,000 events did not fit" in capsys.readouterr().out


def test_lost_window_needs_no_rest(command: Command) -> None:
    events = SimulatedDisk(commands=4).trace()
    trace = FakeTrace([(events, 30_000), (events, 0)], read_seconds=0.1)
    assert command(trace, "sdb", "--seconds", "3") == 0
    assert [round(started - 1000) for started in trace.started] == [0, 1]


def test_busy_disk_has_short_windows(command: Command, clock: Clock, capsys: Capture) -> None:
    """A window ends with the last event that is read."""
    events = SimulatedDisk(commands=4).trace(MAX_EVENTS)
    assert command(FakeTrace([(events, 0)]), "sdb", "--seconds", "3", "--json") == 0
    assert clock.slept[::2] == [0.1, 0.061, 0.061]
    document = json.loads(capsys.readouterr().out)
    assert document["traced"] == pytest.approx(0.061, abs=0.001)


def test_deep_load_has_long_windows(
    command: Command, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """A short window would only have the fast ones of many requests in flight."""
    monkeypatch.setattr(FakeSampler, "in_flight", 100)
    events = SimulatedDisk(commands=4).trace(MAX_EVENTS)
    command(FakeTrace([(events, 0)]), "sdb", "--seconds", "2")
    assert clock.slept[::2] == [0.1, 0.248]


def test_slow_reader_rests(command: Command) -> None:
    """Reading a window may take a fortieth of the time."""
    trace = FakeTrace([(SimulatedDisk(commands=4).trace(), 0)], read_seconds=0.1)
    assert command(trace, "sdb", "--seconds", "10") == 0
    assert [round(started - 1000) for started in trace.started] == [0, 5]
    few = FakeTrace([(SimulatedDisk(commands=4).trace(100), 0)], read_seconds=0.1)
    assert command(few, "sdb", "--seconds", "10") == 0
    assert [round(started - few.started[0]) for started in few.started] == [0, 1, 2, 7]


def test_idle_cpu_reads_without_rest(
    command: Command, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(why, "IdleCpus", lambda: SimpleNamespace(found=lambda: True))
    trace = FakeTrace([(SimulatedDisk(commands=4).trace(MAX_EVENTS), 0)], read_seconds=0.1)
    assert command(trace, "sdb", "--seconds", "3") == 0
    assert [round(started - 1000) for started in trace.started] == [0, 1, 2]
    assert clock.slept[::2] == [0.1, 0.248, 0.248]


def test_value_of_profile_is_shown(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    other = SimpleNamespace(key=(sdb().id, "nr_requests"), value=1024)
    elsewhere = SimpleNamespace(key=(endpoint().id, "queue_depth"), value=32)
    row = SimpleNamespace(key=(sdb().id, "queue_depth"), value=64)
    compared = SimpleNamespace(plan=SimpleNamespace(drift=(other, elsewhere, row)))
    monkeypatch.setattr(why, "find_differences", lambda request: compared)
    assert command(deep(), "sdb") == 0
    text = "queue_depth is 4 now, and the active profile sets 64: `hbatune apply`.\n"
    assert text in capsys.readouterr().out


def test_limited_cgroup_is_noted(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(why, "find_limited_cgroup", lambda *_: "/backup")
    disk = sdb(queue__nr_requests="16")
    trace = FakeTrace([(SimulatedDisk(threads=20, requests=16, commands=4).trace(), 0)])
    assert command(trace, "sdb", on=machine(disk)) == 0
    out = capsys.readouterr().out
    assert out.startswith("Raise queue_depth: at most 80 % of the p99 can be won.")
    assert "The cgroup /backup is at its limit in io.max" in out
    assert command(FakeTrace([(SimulatedDisk().trace(), 0)]), "sdb") == 0
    out = capsys.readouterr().out
    assert out.startswith("No setting helps: the cgroup /backup is at its limit.")
    assert out.count("/backup") == 1, "the answer needs no note"


@pytest.mark.parametrize(
    ("cpu", "answer", "note"),
    [
        (
            0,
            "Move irq31 to another CPU (irq_affinity): at most 80 % of the p99 can be won.",
            "irq_affinity is 0-3 now.",
        ),
        (2, "No setting helps: completions wait for cpu2, which other work keeps busy.", None),
        (5, "No setting helps: completions wait for cpu5, which other work keeps busy.", None),
    ],
)
def test_interrupt_to_move_is_named(
    command: Command, capsys: Capture, cpu: int, answer: str, note: str | None
) -> None:
    """CPU 0 serves an interrupt of another adapter, too, and CPU 2 one that cannot be moved."""
    vectors = (
        vector(irq=31, affinity=Attribute("0-3", True)),
        vector(irq=32, adapter="0000:02:00.0", names=("eth0",)),
        vector(irq=33, effective="2", managed=True),
        vector(irq=34, effective="5", role=Role.ADMIN),
    )
    events = []
    for event in SimulatedDisk().trace():
        wait = (event.time_us - 800, event.time_us)
        events.append(replace(event, cpu=cpu, wait=wait))
    host = replace(machine(endpoint(), sdb()), vectors=vectors)
    assert command(FakeTrace([(events, 0)]), "sdb", on=host) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == answer
    assert note is None or note in out


def test_interrupt_shows_its_answer(command: Command, see: See, capsys: Capture) -> None:
    busy = vector(irq=31, affinity=Attribute("0-3", True))
    host = replace(machine(endpoint(), sdb()), vectors=(busy,))
    events = []
    for event in SimulatedDisk().trace():
        events.append(replace(event, wait=(event.time_us - 800, event.time_us)))
    sentence = "irq31: `why` traced a p99 of 1.00 ms: irq_affinity can win at most 80 % of it."
    see(host)
    assert command(FakeTrace([(events, 0)]), "sdb", on=host) == 0
    capsys.readouterr()
    main(["diff", "--profile", "oltp"])
    assert sentence in " ".join(capsys.readouterr().out.split())
    moved = replace(busy, affinity=Attribute("2", True))
    see(replace(host, vectors=(moved,)))
    main(["diff", "--profile", "oltp"])
    assert "`why`" not in capsys.readouterr().out


def test_path_means_its_map(command: Command, capsys: Capture) -> None:
    """Its depth is the depth of all its paths."""
    paths = [
        endpoint(target=name, kind=Kind.PATH, map="dm-0", attributes=sdb().attributes)
        for name in ("sda", "sdb")
    ]
    above = endpoint(
        target="dm-0",
        kind=Kind.MAP,
        adapter=None,
        paths=("sda", "sdb"),
        attributes=attributes(queue__scheduler="[mq-deadline] none", queue__nr_requests="256"),
    )
    trace = FakeTrace([(SimulatedDisk(commands=8).trace(), 0)])
    assert command(trace, "sda", "--json", on=machine(*paths, above)) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["target"], document["lever"]) == ("dm-0", "queue_depth")


def test_bad_requests_are_usage_errors(
    command: Command, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert command(deep(), "0000:01:00.0") == 2
    message = capsys.readouterr().err
    assert "0000:01:00.0 means 2 disks, and only one is traced" in message
    assert "start with `sudo hbatune why sda`" in message
    head = endpoint(target="nvme0n1", kind=Kind.MAP, adapter=None, tags=ABSENT)
    assert command(deep(), "nvme0n1", on=machine(head)) == 2
    assert "its I/O goes to hidden paths" in capsys.readouterr().err
    assert command(deep(), "sdz") == 2
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert command(deep(), "sda") == 2
    assert "`why` reads the kernel's trace and needs root" in capsys.readouterr().err


def test_forbidden_trace_is_reported(command: Command, capsys: Capture) -> None:
    denied = OSError(errno.EPERM, "Operation not permitted")
    trace = FakeTrace([((), 0)], denied)
    assert command(trace, "sda") == 1
    err = capsys.readouterr().err
    assert "sda cannot be traced: Operation not permitted" in err
    assert "lockdown" in err
    assert trace.removed == 2, "what it may have made is removed"
