"""Simulated devices in a closed loop: so many I/Os are always in flight. Their truth is known.

A device is a number of stations with servers of their own and a queue in order of arrival; an I/O
goes to a station drawn by lot. One station with many servers is a drive or an array that spreads
its work well; many stations are a volume of spindles, or flash dies, that collide. Service times
are lognormal, some with a slow tail. A disk's service becomes shorter the more it can choose from,
and a device that is overloaded may serve all more slowly. Neighbours keep I/Os of their own in
flight on a shared array.
"""

import math
from bisect import bisect_right
from collections import deque
from functools import cache
from heapq import heappop, heappush
from random import Random

from msgspec import Struct

DEEPEST = 256
GRID = tuple(sorted({round(DEEPEST ** (step / 37)) for step in range(38)}))
"""The depths at which the truth is simulated; between them it is interpolated."""
_SORTABLE = 32
"""The I/Os that a disk can choose from: the depth of SATA's native command queueing."""


class Device(Struct, frozen=True):
    """A device; ``service_us`` is the mean service time of one I/O at depth 1.

    ``spread`` is the standard deviation of the service time's logarithm; a share ``tail`` of the
    I/Os takes ``slow`` times as long. ``sorting`` is the exponent by which the service shrinks
    with the depth. Beyond ``overload`` in flight it grows, with the exponent ``thrash``.
    ``neighbours`` are the I/Os that others keep in flight.
    """

    name: str
    stations: int
    servers: int
    service_us: float
    spread: float = 0.3
    tail: float = 0.0
    slow: float = 10.0
    sorting: float = 0.0
    overload: int = 1 << 20
    thrash: float = 0.0
    neighbours: int = 0

    def pace(self, depth: int) -> float:
        """Return how long a service takes at this depth, as a factor."""
        in_flight = depth + self.neighbours
        sorted_ = min(in_flight, _SORTABLE) ** -self.sorting
        return float(sorted_ * max(1.0, in_flight / self.overload) ** self.thrash)


class Behaviour(Struct, frozen=True):
    """Rate in I/Os per second and p99 in µs at one depth."""

    iops: float
    p99_us: float


ZOO = (
    Device("disk, sorting", 1, 1, 8_000, spread=0.4, sorting=0.3),
    Device("disk, not sorting", 1, 1, 8_000, spread=0.4),
    Device("drive of 2 servers, slow tail", 1, 2, 900, tail=0.015, slow=6),
    Device("SATA SSD of 8", 1, 8, 110, spread=0.35),
    Device("SATA SSD of 12, thrashing", 1, 12, 120, spread=0.4, overload=23, thrash=0.6),
    Device("SAS SSD of 24, slow tail", 1, 24, 130, tail=0.008, slow=12),
    Device("SAS SSD of 32 dies that collide", 32, 1, 100, spread=0.2),
    Device("NVMe of 64", 1, 64, 85, spread=0.25),
    Device("NVMe of 96, thrashing", 1, 96, 90, spread=0.5, overload=121, thrash=0.9),
    Device("NVMe of 48, uneven", 1, 48, 95, spread=0.8),
    Device("RAID volume of 6 disks", 6, 1, 6_000, spread=0.4, sorting=0.1),
    Device("RAID volume of 16 SSDs", 16, 2, 150, spread=0.35),
    Device("shared array of 40, 16 of neighbours", 1, 40, 450, spread=0.4, neighbours=16),
    Device("shared array of 20, thrashing", 1, 20, 500, overload=32, thrash=0.8, neighbours=8),
)


def simulate(device: Device, depth: int, ios: int, seed: int = 0) -> Behaviour:
    """Return a device's behaviour at a depth, measured over ``ios`` I/Os after a warm-up."""
    random = Random(f"{device.name} {depth} {seed}")
    mean = device.service_us * device.pace(depth)
    # A lognormal's mean is e^(mu + sigma²/2); the tail is part of the mean service time.
    mean /= 1 + device.tail * (device.slow - 1)
    mu = math.log(mean) - device.spread**2 / 2
    idle = [device.servers] * device.stations
    queues: list[deque[tuple[float, bool]]] = [deque() for _ in idle]
    running: list[tuple[float, int, float, bool]] = []

    def issue(time_us: float, ours: bool) -> None:
        station = int(random.random() * device.stations)
        queues[station].append((time_us, ours))
        start(time_us, station)

    def start(time_us: float, station: int) -> None:
        if not idle[station] or not queues[station]:
            return
        idle[station] -= 1
        since, ours = queues[station].popleft()
        service = random.lognormvariate(mu, device.spread)
        if device.tail and random.random() < device.tail:
            service *= device.slow
        heappush(running, (time_us + service, station, since, ours))

    for number in range(depth + device.neighbours):
        issue(0.0, number < depth)
    warm = 4 * (depth + device.neighbours)
    remaining, latencies, began, time_us = ios + warm, [], 0.0, 0.0
    while remaining:
        time_us, station, since, ours = heappop(running)
        idle[station] += 1
        issue(time_us, ours)
        start(time_us, station)
        remaining -= 1
        if remaining >= ios:
            began = time_us
        elif ours:
            latencies.append(time_us - since)
    latencies.sort()
    return Behaviour(
        len(latencies) / (time_us - began) * 1e6, latencies[math.ceil(0.99 * len(latencies)) - 1]
    )


@cache
def truth(device: Device, ios: int) -> tuple[Behaviour, ...]:
    """Return what a device does at each depth of the grid."""
    return tuple(simulate(device, depth, ios) for depth in GRID)


def at(device: Device, depth: int, ios: int) -> Behaviour:
    """Return a device's behaviour at any depth, interpolated logarithmically on the grid."""
    behaviours = truth(device, ios)
    upper = min(bisect_right(GRID, depth), len(GRID) - 1)
    lower = upper - 1
    share = math.log(depth / GRID[lower]) / math.log(GRID[upper] / GRID[lower])

    def between(low: float, high: float) -> float:
        return low * math.exp(share * math.log(high / low))

    return Behaviour(
        between(behaviours[lower].iops, behaviours[upper].iops),
        between(behaviours[lower].p99_us, behaviours[upper].p99_us),
    )
