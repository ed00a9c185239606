"""Looks at a disk before a probe: whether it is in use or holds only zeros. It only reads.

A disk in use is not probed: the probe would disturb its I/O, and the figures would be wrong. A disk
of zeros is probed with a remark: thin and trimmed ones answer without reading their medium.
"""

import mmap
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from hbatune.facts.model import Attribute, Endpoint, Missing
from hbatune.facts.sampler import Activity, activity
from hbatune.probe.model import Load, Skip, Skipped, Subject
from hbatune.workers import Pool, Replied

BLOCKS = 64
"""Places that are read, evenly over the disk; a disk in use shows data at one of them."""
_BLOCK = 4096
_DEADLINE = 5.0  # seconds for each read, after which the answer is "unknown"
UTILISATION = 0.10  # busy above this share of time
SAMPLES = 4
INTERVAL = 0.1  # seconds between two samples
Reader = Callable[[str], Activity | Missing]


class Clock(Struct, frozen=True):
    """Time as the sampling sees it: seconds that never go back, and a way to let some pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def is_blank(node: str, size: int, *, deadline: float = _DEADLINE) -> bool | None:
    """Return whether all places read of ``size`` bytes are zeros, None where they cannot be read.

    Reads past the page cache, in a worker: a disk that does not answer holds up only that.
    """
    replies: list[bool] = []
    with Pool(_zeros, size=1, deadline=deadline) as pool:
        for event in pool.run([_Place(node, size)]):
            if isinstance(event, Replied):
                replies.append(event.reply)
    if replies and not replies[-1]:
        return False
    # A worker that gave up early has seen zeros only so far, which proves nothing.
    return True if len(replies) == _count(size) else None


def busy_subjects(
    subjects: Sequence[Subject], *, read: Reader = activity, clock: Clock | None = None
) -> dict[str, Skipped]:
    """Sample all subjects together for 0.3 s; return those not to be probed, with the reason.

    A map is busy if one of its paths is: older kernels count nothing on an NVMe head.
    """
    clock = clock or Clock()
    counted = {s.target: [one for one in _devices(s) if _counts(one)] for s in subjects}
    directories = {one.sysfs for devices in counted.values() for one in devices}
    series: dict[str, list[Activity | Missing]] = {directory: [] for directory in directories}
    started = clock.now()
    for number in range(SAMPLES):
        if number:
            clock.sleep(INTERVAL)
        for directory, samples in series.items():
            # In turns rather than disk by disk: the whole set takes 0.3 s, however many disks.
            samples.append(read(directory))
    seconds = clock.now() - started
    found: dict[str, Skipped] = {}
    for target, devices in counted.items():
        if refused := _judge(target, [series[one.sysfs] for one in devices], seconds):
            found[target] = refused
    return found


def load_of(samples: Sequence[Activity], seconds: float) -> Load:
    """Return the load over samples taken at even intervals in ``seconds``."""
    ticks = (samples[-1].io_ticks_ms - samples[0].io_ticks_ms) / 1000
    return Load(
        utilisation=min(1.0, max(0.0, ticks / seconds)) if seconds > 0 else 0.0,
        in_flight=max(sample.in_flight for sample in samples),
    )


def is_busy(samples: Sequence[Activity], seconds: float) -> bool:
    """Whether the device was in use over 10 % of the time, or had I/O in half of the samples.

    The second finds hung I/O, which the first cannot see: the kernel adds up the time of an I/O
    when it completes.
    """
    waiting = sum(sample.in_flight > 0 for sample in samples)
    return load_of(samples, seconds).utilisation > UTILISATION or 2 * waiting >= len(samples)


class _Place(Struct, frozen=True):
    node: str
    size: int


def _count(size: int) -> int:
    return max(1, min(BLOCKS, size // _BLOCK))


def _zeros(place: _Place) -> Iterator[bool]:  # pragma: no cover  (runs in the worker)
    """Yield for each place whether it holds zeros; stop at the first that does not."""
    nothing, count = bytes(_BLOCK), _count(place.size)
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        descriptor = os.open(place.node, flags | os.O_DIRECT)
    except OSError:
        # No reply at all means "unknown" to the caller, which is the truth.
        return
    with mmap.mmap(-1, _BLOCK) as block:  # O_DIRECT wants memory that is aligned
        for number in range(count):
            try:
                os.preadv(descriptor, [block], number * (place.size // count) // _BLOCK * _BLOCK)
            except OSError:
                return
            empty = block[:] == nothing
            yield empty
            if not empty:
                return


def _judge(
    target: str, series: Iterable[Sequence[Activity | Missing]], seconds: float
) -> Skipped | None:
    everything = list(series)
    if not everything:
        # With iostats off the counters stand still (6.1 and 6.12), which looks like an idle disk.
        return Skipped(target, Skip.NOT_COUNTED)
    for mixed in everything:
        samples = [sample for sample in mixed if isinstance(sample, Activity)]
        if len(samples) < len(mixed):
            return Skipped(target, Skip.UNREADABLE)
        if is_busy(samples, seconds):
            return Skipped(target, Skip.BUSY, load=load_of(samples, seconds))
    return None


def _devices(subject: Subject) -> tuple[Endpoint, ...]:
    return (subject.endpoint, *subject.paths)


def _counts(endpoint: Endpoint) -> bool:
    iostats = endpoint.attributes.get("queue/iostats")
    return not (isinstance(iostats, Attribute) and iostats.text == "0")
