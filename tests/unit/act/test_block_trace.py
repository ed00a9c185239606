"""Events of the block layer as tracefs prints them, and the I/Os that they make."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act.block_trace import (
    CPU_FILTERS,
    LATENCY_EVENTS,
    STAGE_EVENTS,
    BlockTrace,
    pair_requests,
    parse_events,
    trace_requests,
)
from hbatune.facts import sampler


def lines(*events: str) -> list[bytes]:
    """Return lines of a trace with these events, ten microseconds apart."""
    return [
        f"             fio-312     [001] d..1. 77.{10 * number:06}: block_{event}\n".encode()
        for number, event in enumerate(events)
    ]


def pair(*events: str) -> list[tuple[str, int]]:
    requests = pair_requests(parse_events(lines(*events)))
    return [(request.device, request.completed - request.queued) for request in requests]


@pytest.mark.parametrize("completion", ["() 2048 + 8 [0]", "() 2048 + 8 none,0,0 [0]"])
def test_completed_io_has_latency(completion: str) -> None:
    """Linux 6.10 and newer print the I/O priority as well."""
    begun = "bio_queue: 8,16 RA 2048 + 8 [fio]"
    assert pair(begun, f"rq_complete: 8,16 RA {completion}") == [("8,16", 10)]


@pytest.mark.parametrize(
    ("event", "operation", "sectors"),
    [
        ("rq_issue: 8,16 WS 4096 () 2048 + 8 [fio]", "WS", 8),
        ("rq_issue: 8,16 WS 4096 () 2048 + 8 none,0,0 [fio]", "WS", 8),
        ("rq_insert: 8,16 FWFS 4096 (ff 00 1) 2048 + 8 [fio]", "FWFS", 8),
        ("split: 8,16 R 2048 / 3072 [fio]", "R", 3072),
    ],
)
def test_requests_are_parsed(event: str, operation: str, sectors: int) -> None:
    [parsed] = parse_events(lines(event))
    assert parsed.name == "block_" + event.partition(":")[0]
    assert (parsed.time_us, parsed.position) == (77_000_000, ("8,16", 2048))
    assert (parsed.operation, parsed.sectors, parsed.source) == (operation, sectors, None)


def test_remapped_io_counts_below() -> None:
    moved = "bio_remap: 8,0 R 4096 + 8 <- (253,3) 2048"
    assert pair(
        "bio_queue: 253,3 R 2048 + 8 [fio]",
        moved,
        "bio_queue: 8,16 R 2048 + 8 [fio]",
        "rq_complete: 8,0 R () 4096 + 8 [0]",
        "rq_complete: 8,16 R () 2048 + 8 [0]",
    ) == [("8,0", 30), ("8,16", 20)]


def test_merged_io_counts_once_with_first_start() -> None:
    assert pair(
        "bio_queue: 8,0 W 16 + 8 [fio]",
        "bio_queue: 8,0 W 8 + 8 [fio]",
        "bio_frontmerge: 8,0 W 8 + 8 [fio]",
        "bio_queue: 8,0 W 24 + 8 [fio]",
        "bio_backmerge: 8,0 W 24 + 8 [fio]",
        "bio_queue: 8,0 W 32 + 8 [fio]",
        "rq_merge: 8,0 W 4096 () 32 + 8 [fio]",
        "rq_complete: 8,0 W () 8 + 32 [0]",
        "rq_complete: 8,0 W () 24 + 8 [0]",
        "rq_complete: 8,0 W () 32 + 8 [0]",
    ) == [("8,0", 70)]


def test_parts_of_split_io_have_its_start() -> None:
    assert pair(
        "bio_queue: 8,0 R 0 + 64 [fio]",
        "split: 8,0 R 0 / 32 [fio]",
        "rq_complete: 8,0 R () 0 + 32 [0]",
        "rq_complete: 8,0 R () 32 + 32 [0]",
    ) == [("8,0", 20), ("8,0", 30)]


def test_stages_and_counts_of_requests() -> None:
    """The first complete event is of a request and a command from before the trace."""
    events = lines(
        "bio_queue: 8,0 R 16 + 8 [fio]",
        "getrq: 8,0 R 16 + 8 [fio]",
        "bio_queue: 8,0 R 64 + 8 [fio]",
        "rq_issue: 8,0 R 4096 () 16 + 8 be,0,4 [kworker/1:1H]",
        "rq_complete: 8,0 R () 1024 + 8 be,0,4 [0]",
        "getrq: 8,0 R 64 + 8 [fio]",
        "rq_complete: 8,0 R () 16 + 8 be,0,4 [0]",
        "rq_issue: 8,0 R 4096 () 64 + 8 be,0,4 [kworker/1:1H]",
        "rq_complete: 8,0 R () 64 + 8 be,0,4 [0]",
    )
    first, second = trace_requests(parse_events(events))
    assert (first.stages, first.allocated, first.issued) == ((10, 20, 30), 2, 2)
    assert (second.stages, second.allocated, second.issued) == ((30, 20, 10), 2, 1)


def test_requeued_command_is_issued_again() -> None:
    events = lines(
        "bio_queue: 8,0 R 16 + 8 [fio]",
        "getrq: 8,0 R 16 + 8 [fio]",
        "rq_issue: 8,0 R 4096 () 16 + 8 be,0,4 [fio]",
        "rq_requeue: 8,0 R () 16 + 8 be,0,4 [0]",
        "rq_requeue: 8,0 R () 16 + 8 be,0,4 [0]",  # not issued: its device was busy
        "rq_issue: 8,0 R 4096 () 16 + 8 be,0,4 [fio]",
        "rq_complete: 8,0 R () 16 + 8 be,0,4 [0]",
        "bio_queue: 8,0 R 64 + 8 [fio]",
        "getrq: 8,0 R 64 + 8 [fio]",
        "rq_issue: 8,0 R 4096 () 64 + 8 be,0,4 [fio]",
        "rq_complete: 8,0 R () 64 + 8 be,0,4 [0]",
    )
    first, second = trace_requests(parse_events(events))
    assert first.stages == (10, 40, 10)
    assert (first.issued, second.issued) == (1, 1)


def test_clocks_of_cpus_may_differ() -> None:
    """One CPU allocated a request, another one issued it, and its clock is 15 µs late."""
    events = lines(
        "bio_queue: 8,0 R 16 + 8 [fio]",
        "getrq: 8,0 R 16 + 8 [fio]",
        "rq_issue: 8,0 R 4096 () 16 + 8 be,0,4 [kworker/1:1H]",
        "rq_issue: 8,0 R 4096 () 64 + 8 be,0,4 [kworker/1:1H]",
        "rq_complete: 8,0 R () 16 + 8 be,0,4 [0]",
    )
    queued, allocated, issued, other, completed = parse_events(events)
    issued = replace(issued, time_us=allocated.time_us - 5)
    other = replace(other, time_us=allocated.time_us - 3)
    [request] = trace_requests([queued, allocated, issued, other, completed])
    assert (request.allocated, request.issued) == (1, 2)


def test_merged_request_is_counted_until_its_end() -> None:
    """A front merge moves a request and adds none. A merged request is freed."""
    events = lines(
        "bio_queue: 8,0 W 16 + 8 [fio]",
        "getrq: 8,0 W 16 + 8 [fio]",
        "bio_queue: 8,0 W 8 + 8 [fio]",
        "bio_frontmerge: 8,0 W 8 + 8 [fio]",
        "bio_queue: 8,0 W 24 + 8 [fio]",
        "getrq: 8,0 W 24 + 8 [fio]",
        "rq_merge: 8,0 W 4096 () 24 + 8 [fio]",
        "rq_issue: 8,0 W 12288 () 8 + 24 [fio]",
        "rq_complete: 8,0 W () 8 + 24 [0]",
        "bio_queue: 8,0 W 99 + 8 [fio]",
        "getrq: 8,0 W 99 + 8 [fio]",
        "rq_issue: 8,0 W 4096 () 99 + 8 [fio]",
        "rq_complete: 8,0 W () 99 + 8 [0]",
    )
    merged, single = trace_requests(parse_events(events))
    assert merged.stages == (10, 60, 10)
    assert (single.allocated, single.issued) == (1, 1)


ISSUED = """
             fio-336     [000] .....   226.832518: block_bio_queue: 8,16 RS 30944 + 8 [fio]
             fio-336     [000] .....   226.832547: block_getrq: 8,16 RS 30944 + 8 [fio]
             fio-336     [000] .....   226.832599: block_rq_issue: 8,16 RS 4096 () 30944 + 8 [fio]
"""
"""Lines of a trace of Linux 6.12, as all below."""
RAISED = """
          <idle>-0       [001] dNH3.   226.832852: softirq_raise: vec=4 [action=BLOCK]
"""
IN_SOFTIRQ = """
   ksoftirqd/1-27      [001] ..s..   226.882852: block_rq_complete: 8,16 RS () 30944 + 8 be,0,4 [0]
"""
IN_HARD_INTERRUPT = IN_SOFTIRQ.replace("..s..", "d.h1.")
ON_OTHER_CPU = IN_SOFTIRQ.replace("[001]", "[000]")


def measure_wait(trace: str) -> tuple[int, int]:
    """Return the wait for a CPU of the only request, and the CPU."""
    [request] = trace_requests(parse_events(trace.encode().splitlines()))
    return request.waited, request.cpu


@pytest.mark.parametrize(
    ("trace", "wait"),
    [
        (ISSUED + RAISED + IN_SOFTIRQ, (50_000, 1)),
        (RAISED.replace("226.83", "226.81") + ISSUED + IN_SOFTIRQ, (50_253, 1)),  # from the issue
        (ISSUED + IN_SOFTIRQ, (0, 1)),
        (ISSUED + RAISED + ON_OTHER_CPU, (0, 0)),
        (ISSUED + RAISED + IN_HARD_INTERRUPT, (0, 1)),
    ],
)
def test_completion_waits_for_softirq_of_its_cpu(trace: str, wait: tuple[int, int]) -> None:
    assert measure_wait(trace) == wait


def test_only_first_completion_ends_wait_for_softirq() -> None:
    """Later ones without another softirq were not ready when it began."""
    later = (ISSUED + IN_SOFTIRQ).replace("226.8", "226.9").replace("30944", "64")
    trace = ISSUED + RAISED + IN_SOFTIRQ + later
    _, request = trace_requests(parse_events(trace.encode().splitlines()))
    assert request.waited == 0


TAKEN = """
          <idle>-0       [001] d..2.   226.840000: sched_switch: prev_comm=swapper/1 prev_pid=0 \
prev_prio=120 prev_state=R ==> next_comm=python3 next_pid=400 next_prio=19
"""
LEFT = """
         python3-400     [001] d..2.   226.860000: sched_switch: prev_comm=python3 prev_pid=400 \
prev_prio=19 prev_state=S ==> next_comm=irq/34-mpi3mr0- next_pid=207 next_prio=49
"""
IN_THREAD = """
irq/34-mpi3mr0--207     [001] .....   226.860100: block_rq_complete: 8,16 RS () 30944 + 8 be,0,4 [0]
"""


@pytest.mark.parametrize(
    ("trace", "waited"),
    [
        (ISSUED + TAKEN + LEFT + IN_THREAD, 20_000),
        (TAKEN.replace("226.84", "226.81") + ISSUED + LEFT + IN_THREAD, 27_401),
        (ISSUED + LEFT + IN_THREAD, 0),  # the task came before the trace
        (ISSUED + TAKEN + LEFT.replace("=207", "=300") + IN_THREAD, 0),
        (ISSUED + TAKEN + LEFT + IN_HARD_INTERRUPT, 0),
    ],
)
def test_completion_waits_until_its_thread_runs(trace: str, waited: int) -> None:
    """A real-time task takes the CPU, and the thread of the interrupt is next."""
    assert measure_wait(trace) == (waited, 1)


def test_softirq_of_waiting_thread_has_its_wait() -> None:
    thread = (
        " irq/34-mpi3mr0--207     [001] d....   226.860100: softirq_raise: vec=4 [action=BLOCK]"
    )
    completed = IN_SOFTIRQ.replace("226.882852", "226.861100")
    assert measure_wait(ISSUED + TAKEN + LEFT + thread + completed) == (21_000, 1)


def test_flushes_discards_and_halves_are_excluded() -> None:
    assert (
        pair(
            "bio_queue: 8,0 FWS 0 + 0 [fio]",
            "rq_complete: 8,0 FWS () 0 + 0 [0]",
            "bio_queue: 8,0 DS 8 + 64 [fstrim]",
            "rq_complete: 8,0 DS () 8 + 64 [0]",
            "rq_complete: 8,0 R () 2048 + 8 [0]",  # its start was not recorded
            "bio_queue: 8,0 R 4096 + 8 [fio]",
        )
        == []
    )


def test_process_names_are_not_events() -> None:
    """A process chooses its name, of up to 15 characters."""
    name = "1: block_x: 8,0"
    hostile = lines("bio_queue: 8,0 R 8 + 8 [x]")[0].replace(b"fio", name.encode())
    [event] = parse_events([b"CPU:1 [LOST 17 EVENTS]\n", b"\n", b"\xff\n", hostile])
    assert (event.name, event.position) == ("block_bio_queue", ("8,0", 8))


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an instance, as the kernel would make it."""
    monkeypatch.setattr(sampler, "TRACEFS", str(tmp_path))
    folder = tmp_path / "instances/hbatune"
    for event in {*LATENCY_EVENTS, *STAGE_EVENTS} - {*CPU_FILTERS}:
        (folder / "events/block" / event).mkdir(parents=True)
    for event in CPU_FILTERS:
        (folder / "events" / event).mkdir(parents=True)
    (folder / "options").mkdir()
    return folder


def test_trace_records_between_start_and_stop(instance: Path) -> None:
    trace = BlockTrace("hbatune", LATENCY_EVENTS)
    (instance / "trace").write_text("an earlier trace")
    trace.start()
    assert (instance / "trace").read_text() == ""
    assert (instance / "tracing_on").read_text() == "1"
    for event in LATENCY_EVENTS:
        assert (instance / "events/block" / event / "enable").read_text() == "1"
    (instance / "trace_pipe").write_bytes(b"".join(lines("bio_queue: 8,0 R 8 + 8 [fio]")))
    [recorded] = trace.stop()
    assert recorded.position == ("8,0", 8)
    assert (instance / "tracing_on").read_text() == "0"
    assert (instance / "events/enable").read_text() == "0"


def test_trace_of_disk_has_filter_and_losses(instance: Path) -> None:
    trace = BlockTrace("hbatune", STAGE_EVENTS, "8:16")
    trace.start()
    for event, event_filter in CPU_FILTERS.items():
        assert (instance / f"events/{event}/filter").read_text() == event_filter
        assert (instance / f"events/{event}/enable").read_text() == "1"
    for event in {*STAGE_EVENTS} - {*CPU_FILTERS}:
        # include/linux/kdev_t.h: 12 bits of the major number above 20 of the minor one.
        assert (instance / f"events/block/{event}/filter").read_text() == "dev == 8388624"
    for cpu, lost in enumerate((0, 17, 25)):
        (instance / f"per_cpu/cpu{cpu}").mkdir(parents=True)
        text = f"entries: 9\noverrun: 3\nnow ts:    38.98\ndropped events: {lost}\nread events: 4\n"
        (instance / f"per_cpu/cpu{cpu}/stats").write_text(text)
    assert trace.count_lost() == 42


def test_forbidden_trace_is_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "TRACEFS", str(tmp_path))
    trace = BlockTrace("hbatune", LATENCY_EVENTS)
    with pytest.raises(OSError, match="No such file"):
        trace.start()
    trace.remove()
