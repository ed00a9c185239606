"""Whether somebody else is using an endpoint: its own I/O would be disturbed, and the figures too.

A few samples a tenth of a second apart; the judging is pure, the clock can be injected.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from hbatune.facts.meters import Activity, activity
from hbatune.facts.model import Attribute, Endpoint, Missing
from hbatune.probe.model import Load, Skip, Skipped, Subject

UTILISATION = 0.10  # busy above this share of time
SAMPLES = 4
INTERVAL = 0.1  # seconds between two samples

Reader = Callable[[str], Activity | Missing]


class Clock(Struct, frozen=True):
    """Time as the sampling sees it: seconds that never go back, and a way to let some pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def occupied(
    subjects: Sequence[Subject], *, read: Reader = activity, clock: Clock | None = None
) -> dict[str, Skipped]:
    """Sample all subjects at once, for 0.3 s; return those not to be probed, with the reason.

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
            samples.append(read(directory))
    seconds = clock.now() - started
    found: dict[str, Skipped] = {}
    for target, devices in counted.items():
        if refused := _judge(target, [series[one.sysfs] for one in devices], seconds):
            found[target] = refused
    return found


def load(samples: Sequence[Activity], seconds: float) -> Load:
    """Return the load over samples taken at even intervals in ``seconds``."""
    ticks = (samples[-1].io_ticks_ms - samples[0].io_ticks_ms) / 1000
    return Load(
        utilisation=min(1.0, max(0.0, ticks / seconds)) if seconds > 0 else 0.0,
        in_flight=max(sample.in_flight for sample in samples),
    )


def busy(samples: Sequence[Activity], seconds: float) -> bool:
    """Whether the device was in use over 10 % of the time, or had I/O in flight half the times.

    The second catches what the first cannot: the kernel adds up the time when an I/O completes,
    and a hung one does not.
    """
    waiting = sum(sample.in_flight > 0 for sample in samples)
    return load(samples, seconds).utilisation > UTILISATION or 2 * waiting >= len(samples)


def _judge(
    target: str, series: Iterable[Sequence[Activity | Missing]], seconds: float
) -> Skipped | None:
    everything = list(series)
    if not everything:
        return Skipped(target, Skip.NOT_COUNTED)
    for mixed in everything:
        samples = [sample for sample in mixed if isinstance(sample, Activity)]
        if len(samples) < len(mixed):
            return Skipped(target, Skip.UNREADABLE)
        if busy(samples, seconds):
            return Skipped(target, Skip.BUSY, load=load(samples, seconds))
    return None


def _devices(subject: Subject) -> tuple[Endpoint, ...]:
    return (subject.endpoint, *subject.paths)


def _counts(endpoint: Endpoint) -> bool:
    iostats = endpoint.attributes.get("queue/iostats")
    return not (isinstance(iostats, Attribute) and iostats.text == "0")
