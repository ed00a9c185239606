"""What alerts are about, and how each reading stands to its limits. Pure."""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.sampler import LinkSample
from hbatune.policy.config import WatchConfig
from hbatune.watch.alarm import Pace, Stand, stands
from hbatune.watch.readings import Measure, Reading, ServerReading
from hbatune.watch.subjects import Disk

GAPS = 3
"""So many intervals without a look, and what was in between is not known."""

_GRAVE = frozenset({"timeouts", "nonfatal", "fatal"})


class Condition(StrEnum):
    """What an alert is about."""

    P99 = "p99"  # above the profile's objective
    UTILISATION = "utilisation"  # busy nearly all the time
    DEPTH = "depth-past-knee"  # more in flight than makes it faster
    QUEUE_FULL = "queue-full"  # the kernel lowered the queue depth, since the device was full
    COUNTERS = "counters-rising"
    LINK = "link-degraded"  # slower or narrower than it was
    CPU = "cpu-saturated"  # a CPU that serves the adapter's interrupts has no time to spare

    @property
    def source(self) -> str:
        """The id of the recommendation that it stands on."""
        return _SOURCES.get(self, "D0-8")


_SOURCES = {
    Condition.P99: "D0-7",
    Condition.UTILISATION: "D0-7",
    Condition.DEPTH: "D0-7",
    Condition.QUEUE_FULL: "K-queue-ramp",
    Condition.LINK: "D0-10",
}


class Key(Struct, frozen=True):
    """Which alarm it is: what about, of which endpoint's id or adapter, and which counter."""

    condition: Condition
    id: str
    counter: str | None = None


class Signal(Struct, frozen=True):
    """How things stand at one look.

    ``value`` and ``limit`` are in milliseconds, shares, commands, GT/s or lanes, as the condition
    has it. ``detail`` is which latency it is, which counter, which CPU, or which of speed and
    width of a link.
    """

    key: Key
    target: str
    adapter: str | None
    stand: Stand
    value: float | None
    limit: float
    detail: str | None = None


def pace(condition: Condition, config: WatchConfig) -> Pace:
    """Return how long things are so before that is worth an alert.

    Counters are summed over the window as it is, and a link does not flicker by itself.
    """
    window, gap = config.window_seconds, GAPS * config.interval_seconds
    match condition:
        case Condition.COUNTERS:
            return Pace(0.0, 0.0, gap)
        case Condition.LINK:
            return Pace(0.0, window, gap)
        case _:
            return Pace(window, window, gap)


def of_disk(disk: Disk, reading: Reading, config: WatchConfig) -> Iterator[Signal]:
    """Yield how an endpoint stands to each limit that it has."""

    def signal(condition: Condition, value: float | None, limit: float, **more: str) -> Signal:
        stand = stands(value, limit, config.hysteresis)
        key = Key(condition, disk.id)
        return Signal(key, disk.target, disk.adapter, stand, value, limit, **more)

    if disk.objective_ms is not None:
        measure, latency = reading.latency or (Measure.P99, 0.0)
        yield signal(Condition.P99, latency, disk.objective_ms, detail=str(measure))
    if disk.by_busy_time:
        yield signal(Condition.UTILISATION, reading.utilisation, config.utilisation)
    if disk.knee is not None:
        yield signal(Condition.DEPTH, reading.in_flight, float(disk.knee))
    if disk.depth is not None:
        yield _queue_full(disk, disk.depth, reading.depth)


def _queue_full(disk: Disk, wanted: int, depth: int | None) -> Signal:
    stand = Stand.UNKNOWN
    if depth is not None:
        stand = Stand.OVER if depth < wanted else Stand.CALM
    key = Key(Condition.QUEUE_FULL, disk.id)
    return Signal(key, disk.target, disk.adapter, stand, depth, wanted)


def of_server(
    reading: ServerReading, best: LinkSample | None, config: WatchConfig
) -> Iterator[Signal]:
    """Yield how an adapter stands; ``best`` is the best that its link has been."""
    target = reading.target
    if reading.cpu_busy is not None:
        stand = stands(reading.cpu_busy, config.cpu, config.hysteresis)
        key, detail = Key(Condition.CPU, target), str(reading.cpu)
        yield Signal(key, target, target, stand, reading.cpu_busy, config.cpu, detail)
    if best is not None:
        yield _link(target, reading.link, best)


def _link(target: str, link: LinkSample | None, best: LinkSample) -> Signal:
    key = Key(Condition.LINK, target)
    if link is None:
        return Signal(key, target, target, Stand.UNKNOWN, None, best.speed, "speed")
    if link.speed < best.speed:
        return Signal(key, target, target, Stand.OVER, link.speed, best.speed, "speed")
    stand = Stand.OVER if link.width < best.width else Stand.CALM
    return Signal(key, target, target, stand, link.width, best.width, "width")


def of_counters(
    id: str, target: str, adapter: str | None, risen: Mapping[str, int], config: WatchConfig
) -> Iterator[Signal]:
    """Yield how the counters stand of which ``risen`` says how much they rose in the window."""
    for counter, rise in risen.items():
        least = 1 if counter in _GRAVE else config.errors
        stand = Stand.OVER if rise >= least else Stand.BETWEEN if rise else Stand.CALM
        key = Key(Condition.COUNTERS, id, counter)
        yield Signal(key, target, adapter, stand, rise, least, counter)
