"""The cause of a p99, on simulated disks whose limits are known."""

import pytest
from msgspec.structs import replace

from hbatune.act.block_trace import TracedRequest, trace_requests
from hbatune.facts.cgroups import IoLimit
from hbatune.watch.causes import (
    MIN_REQUESTS,
    Diagnosis,
    LatencyCause,
    QueueLimits,
    find_cause,
    measure_stages,
    select_tail,
)
from tests.unit.traced_disk import SimulatedDisk

DEADLINE = QueueLimits(scheduler="mq-deadline", requests=256, depth=256, tags=1000)
NONE = QueueLimits(scheduler="none", requests=1000, depth=256, tags=1000)


def diagnose(disk: SimulatedDisk, limits: QueueLimits, skipped: int = 0) -> Diagnosis:
    """Return the cause for a trace that begins after some of the events."""
    return find_cause(trace_requests(disk.trace()[skipped:]), limits)


def limits(**overrides: object) -> QueueLimits:
    return replace(DEADLINE, **overrides)


@pytest.mark.parametrize("scheduler", ["mq-deadline", "none"])
@pytest.mark.parametrize("skipped", [0, 57])
def test_commands_at_depth_are_its_cause(scheduler: str, skipped: int) -> None:
    """Commands that were issued before the trace count, too."""
    found = diagnose(SimulatedDisk(commands=4), limits(scheduler=scheduler, depth=4), skipped)
    assert (found.cause, found.culprit) == (LatencyCause.QUEUE_DEPTH, None)
    assert found.gain == pytest.approx(0.75, abs=0.02)  # three of four rounds are waits


@pytest.mark.parametrize("skipped", [0, 57])
def test_used_requests_are_cause(skipped: int) -> None:
    found = diagnose(SimulatedDisk(requests=8), limits(requests=8), skipped)
    assert found.cause is LatencyCause.NR_REQUESTS
    assert found.gain == pytest.approx(0.5, abs=0.02)


def measure_p99(disk: SimulatedDisk) -> int:
    return sum(select_tail(trace_requests(disk.trace()))[0].stages)


@pytest.mark.parametrize(("threads", "gain"), [(200, 49 / 50), (64, 15 / 16), (20, 4 / 5)])
def test_depth_is_cause_before_requests(threads: int, gain: float) -> None:
    """Both limits are reached, but more requests would not help."""
    disk = SimulatedDisk(threads=threads, requests=16, commands=4)
    found = diagnose(disk, limits(requests=16, depth=4))
    assert found.cause is LatencyCause.QUEUE_DEPTH
    assert found.gain == pytest.approx(gain, abs=0.02)
    p99 = measure_p99(disk)
    assert measure_p99(replace(disk, requests=256)) == pytest.approx(p99, rel=0.02)
    assert measure_p99(replace(disk, commands=256)) <= 0.4 * p99


def test_equal_limits_mean_requests() -> None:
    """No request waits for its issue."""
    disk = SimulatedDisk(threads=64, requests=4, commands=4)
    assert diagnose(disk, limits(requests=4, depth=4)).cause is LatencyCause.NR_REQUESTS


def test_drive_has_no_lever() -> None:
    assert diagnose(SimulatedDisk(), DEADLINE) == Diagnosis(LatencyCause.DRIVE)


def test_requests_held_below_limits_are_schedulers() -> None:
    held = SimulatedDisk(held_us=3000)
    found = diagnose(held, DEADLINE)
    assert (found.cause, found.gain) == (LatencyCause.SCHEDULER, 0.75)
    assert diagnose(held, NONE) == Diagnosis(LatencyCause.UNKNOWN)


def test_used_tags_have_no_lever() -> None:
    """With a scheduler they delay the issue, without one the request."""
    found = diagnose(SimulatedDisk(commands=8), limits(tags=8, depth=64))
    assert found == Diagnosis(LatencyCause.TAGS)
    bare = QueueLimits(scheduler="none", requests=8, depth=64, tags=8)
    assert diagnose(SimulatedDisk(requests=8), bare) == Diagnosis(LatencyCause.TAGS)


def test_busiest_sibling_is_named() -> None:
    """Three disks use 24 tags: each gets 8. A disk with less than one command is idle."""
    siblings = {"sdb": 3.0, "sdc": 8.0, "sdd": 0.2}
    found = diagnose(SimulatedDisk(commands=8), limits(tags=24, depth=64, siblings=siblings))
    assert found == Diagnosis(LatencyCause.SIBLING, culprit="sdc")
    found = diagnose(SimulatedDisk(commands=8), limits(tags=48, depth=64, siblings=siblings))
    assert found.cause is LatencyCause.SCHEDULER, "its part of 16 tags was free"


def test_writes_have_fewer_requests() -> None:
    few = limits(requests=64, async_depth=8)
    assert diagnose(SimulatedDisk(requests=8, operation="W"), few).cause is LatencyCause.ASYNC_DEPTH
    assert diagnose(SimulatedDisk(requests=8), few).cause is LatencyCause.UNKNOWN


def test_writes_that_wait_with_free_requests_are_throttled() -> None:
    throttled = SimulatedDisk(requests=8, operation="WS")
    found = diagnose(throttled, limits(wbt_us=2000))
    assert found.cause is LatencyCause.WRITEBACK
    assert found.gain == pytest.approx(0.5, abs=0.02)
    assert diagnose(throttled, limits(wbt_us=0)).cause is LatencyCause.UNKNOWN
    reads = SimulatedDisk(requests=8)
    assert diagnose(reads, limits(wbt_us=2000)).cause is LatencyCause.UNKNOWN


def test_writes_can_be_half_of_tail() -> None:
    """Two reads were late by chance."""
    times = {"got": 9000, "sent": 9010, "completed": 13_000}
    late = [TracedRequest("8,0", operation, 0, **times) for operation in ("WS", "RS") * 2]
    fast = [TracedRequest("8,0", "RS", 0, 10, 20, 4000) for _ in range(300)]
    assert find_cause(fast + late, limits(wbt_us=2000)).cause is LatencyCause.WRITEBACK


@pytest.mark.parametrize(
    ("file", "cause"),
    [
        ("io.latency", LatencyCause.IO_LATENCY),
        ("io.cost.qos", LatencyCause.IO_COST),
    ],
)
def test_cgroup_behind_wait_is_named(file: str, cause: LatencyCause) -> None:
    cgroup = IoLimit("/database", file, {"target": 1000}, {})
    held = limits(cgroups=(cgroup,), wbt_us=2000)
    found = diagnose(SimulatedDisk(requests=8, operation="W"), held)
    assert found == Diagnosis(cause, culprit="/database")
    assert diagnose(SimulatedDisk(), held).cause is LatencyCause.DRIVE, "nothing waited"


def test_short_unknown_wait_hides_no_drive() -> None:
    """On a busy host the tail waits a little for requests, although many are free."""
    disk = SimulatedDisk(held_us=200)
    assert diagnose(disk, limits(scheduler="none")).cause is LatencyCause.DRIVE
    disk = SimulatedDisk(held_us=2000)
    assert diagnose(disk, limits(scheduler="none")).cause is LatencyCause.UNKNOWN


def test_limited_cgroup_is_cause_without_other_waits() -> None:
    """Its I/O waits before the trace. It may be another process than the one that waits here."""
    capped = limits(limited="/backup", depth=4)
    assert diagnose(SimulatedDisk(), capped) == Diagnosis(LatencyCause.IO_MAX, culprit="/backup")
    assert diagnose(SimulatedDisk(commands=4), capped).cause is LatencyCause.QUEUE_DEPTH
    assert find_cause([], capped).cause is LatencyCause.IO_MAX
    bursts = limits(limited="/backup")  # a throttle lets I/Os pass in bursts
    assert diagnose(SimulatedDisk(commands=4), bursts).cause is LatencyCause.IO_MAX


def wait_for_cpu(disk: SimulatedDisk, waited_us: int, cpu: int = 3) -> list[TracedRequest]:
    """Return the requests of a disk whose completions waited for a CPU after the drive."""
    requests = trace_requests(disk.trace())
    for request in requests:
        request.completed += waited_us
        request.waited, request.cpu = waited_us, cpu
    return requests


def test_completions_that_wait_for_cpu_are_not_the_drive() -> None:
    requests = wait_for_cpu(SimulatedDisk(), 3000)
    found = find_cause(requests, limits(interrupts={2: "irq30", 3: "irq31"}))
    assert found == Diagnosis(LatencyCause.IRQ_AFFINITY, 0.75, "irq31")
    elsewhere = limits(interrupts={2: "irq30"})
    assert find_cause(requests, elsewhere) == Diagnosis(LatencyCause.INTERRUPT, culprit="cpu3")


def test_slow_drive_is_cause_although_a_cpu_is_busy() -> None:
    movable = limits(interrupts={3: "irq31"})
    slow = wait_for_cpu(SimulatedDisk(service_us=4000), 400)
    assert find_cause(slow, movable) == Diagnosis(LatencyCause.DRIVE)
    fast = wait_for_cpu(SimulatedDisk(), 400)
    assert find_cause(fast, movable).cause is LatencyCause.IRQ_AFFINITY


def test_longer_of_two_waits_is_cause() -> None:
    movable = limits(interrupts={3: "irq31"}, depth=4)
    requests = wait_for_cpu(SimulatedDisk(commands=4), 2000)
    assert find_cause(requests, movable).cause is LatencyCause.QUEUE_DEPTH
    requests = wait_for_cpu(SimulatedDisk(commands=4), 8000)
    assert find_cause(requests, movable).cause is LatencyCause.IRQ_AFFINITY


def test_too_few_requests_have_no_cause() -> None:
    requests = trace_requests(SimulatedDisk(commands=4).trace(MIN_REQUESTS))
    assert find_cause(requests[1:], limits(depth=4)) == Diagnosis()
    assert find_cause(requests, limits(depth=4)).cause is LatencyCause.QUEUE_DEPTH


def test_shares_are_of_mean_and_of_p99() -> None:
    requests = trace_requests(SimulatedDisk(threads=1).trace(200))
    for request in requests[:3]:  # at and above the p99
        request.queued -= 3000
    shares = [(time.mean_us, time.p99_share) for time in measure_stages(requests)]
    assert shares == [(45.0, 0.75), (0.0, 0.0), (1000.0, 0.25)]
    assert sum(time.mean_share for time in measure_stages(requests)) == pytest.approx(1)
