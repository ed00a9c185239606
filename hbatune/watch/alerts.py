"""Alert conditions: compare each reading with its limits, and raise and clear alarms. Pure.

An alarm is raised when a value has stayed over its limit for a given time. It is cleared when the
value has stayed well below the limit for a given time. Times are of the monotonic clock.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.health import SERIOUS_COUNTERS, is_evidence
from hbatune.facts.sampler import LinkSample
from hbatune.policy.config import WatchConfig
from hbatune.watch.readings import AdapterReading, Measure, Reading, WatchedDisk

MAX_GAP_INTERVALS = 3  # intervals without a sample after which the time between counts as unknown


class AlertCondition(StrEnum):
    """The condition that an alert reports."""

    P99 = "p99"  # above the profile's objective
    UTILISATION = "utilisation"  # busy nearly all the time, or nearly all commands in flight
    DEPTH = "depth-past-knee"  # at this number in flight, more only adds latency
    QUEUE_FULL = "queue-full"  # the kernel lowered the queue depth, since the device was full
    COUNTERS = "counters-rising"
    LINK = "link-degraded"  # slower or narrower than it was
    CPU = "cpu-saturated"  # a CPU that serves the adapter's interrupts has almost no idle time

    @property
    def source(self) -> str:
        """The id of the recommendation that the condition is based on."""
        return _SOURCES.get(self, "D0-8")


_SOURCES = {
    AlertCondition.P99: "D0-7",
    AlertCondition.UTILISATION: "D0-7",
    AlertCondition.DEPTH: "D0-7",
    AlertCondition.QUEUE_FULL: "K-queue-ramp",
    AlertCondition.LINK: "D0-10",
}


class AlarmKey(Struct, frozen=True, gc=False):
    """The identity of an alarm: condition, the id of an endpoint or adapter, and the counter."""

    condition: AlertCondition
    id: str
    counter: str | None = None


class Level(StrEnum):
    """A value compared with its limit in one sample."""

    OVER = "over"
    BETWEEN = "between"  # in the band of the hysteresis
    CALM = "calm"
    UNKNOWN = "unknown"  # it could not be read


class Signal(Struct, frozen=True, gc=False):
    """One value compared with its limit, in one sample.

    ``value`` and ``limit`` are in milliseconds, fractions, commands, GT/s or lanes, depending on
    the condition. ``detail`` names the latency measure, the number of commands, the counter, the
    CPU, or the speed or width of a link.
    """

    key: AlarmKey
    target: str
    adapter: str | None
    stand: Level
    value: float | None
    limit: float
    detail: str | None = None


class AlertChange(StrEnum):
    """The change of an alarm by one sample."""

    RAISED = "raised"
    CLEARED = "cleared"


class Alarm(Struct, frozen=True, gc=False):
    """The state of one alarm, with the last known level of its value and the time since then."""

    raised: bool = False
    level: Level = Level.BETWEEN
    since: float = 0.0
    looked: float | None = None


def list_disk_signals(
    disk: WatchedDisk, reading: Reading, config: WatchConfig, *, has_alarm: bool
) -> Iterator[Signal]:
    """Yield one signal for each limit of an endpoint; without an alarm, only if it is exceeded."""
    for condition, value, limit, detail in _list_disk_values(disk, reading, config):
        stand = find_level(value, limit, config.hysteresis)
        if condition is AlertCondition.QUEUE_FULL and value is not None:
            stand = Level.OVER if value < limit else Level.CALM
        if has_alarm or stand is Level.OVER:
            text, key = None if detail is None else str(detail), AlarmKey(condition, disk.id)
            yield Signal(key, disk.target, disk.adapter, stand, value, limit, text)


def _list_disk_values(
    disk: WatchedDisk, reading: Reading, config: WatchConfig
) -> Iterator[tuple[AlertCondition, float | None, float, Measure | int | None]]:
    """Yield each limited value of an endpoint with its condition, limit and detail."""
    if disk.objective_ms is not None:
        # Without I/O the latency counts as 0, so an alert on an idle disk can clear.
        measure, latency = reading.latency or (Measure.MEAN, 0.0)
        yield AlertCondition.P99, latency, disk.objective_ms, measure
    if disk.by_busy_time:
        yield AlertCondition.UTILISATION, reading.utilisation, config.utilisation, None
    elif disk.commands:
        # Such a disk is busy once most of the commands that it may have are in flight.
        used = min(1.0, reading.in_flight / disk.commands)
        yield AlertCondition.UTILISATION, used, config.utilisation, disk.commands
    if disk.knee is not None:
        yield AlertCondition.DEPTH, reading.in_flight, float(disk.knee), None
    if disk.depth is not None:
        yield AlertCondition.QUEUE_FULL, reading.depth, disk.depth, None


def list_adapter_signals(
    reading: AdapterReading, best: LinkSample | None, config: WatchConfig
) -> Iterator[Signal]:
    """Yield the signals of an adapter; ``best`` is the best state of its link so far."""
    target = reading.target
    if reading.cpu_busy is not None:
        stand = find_level(reading.cpu_busy, config.cpu, config.hysteresis)
        key, detail = AlarmKey(AlertCondition.CPU, target), str(reading.cpu)
        yield Signal(key, target, target, stand, reading.cpu_busy, config.cpu, detail)
    if best is not None:
        key, link = AlarmKey(AlertCondition.LINK, target), reading.link
        if link is None:
            yield Signal(key, target, target, Level.UNKNOWN, None, best.speed, "speed")
        elif link.speed < best.speed:
            yield Signal(key, target, target, Level.OVER, link.speed, best.speed, "speed")
        else:
            stand = Level.OVER if link.width < best.width else Level.CALM
            yield Signal(key, target, target, stand, link.width, best.width, "width")


def list_counter_signals(
    id: str, target: str, adapter: str | None, risen: Mapping[str, int], config: WatchConfig
) -> Iterator[Signal]:
    """Yield one signal for each counter's rise within the window; calm if it is no evidence."""
    for counter, rise in risen.items():
        limit = 1 if counter in SERIOUS_COUNTERS else config.errors
        stand = Level.OVER if rise >= limit else Level.BETWEEN if rise else Level.CALM
        if not is_evidence(counter):
            stand = Level.CALM  # not omitted: an earlier version may have raised an alert
        key = AlarmKey(AlertCondition.COUNTERS, id, counter)
        yield Signal(key, target, adapter, stand, rise, limit, counter)


def update_alarm(
    alarm: Alarm, signal: Signal, time: float, config: WatchConfig
) -> tuple[Alarm, AlertChange | None]:
    """Return the alarm after one more sample, and its change if any.

    Rises of counters are already summed over the window and need no further time. The alarm of a
    link is raised immediately, since a link does not become slower by chance.
    """
    if alarm.looked is not None:
        if time <= alarm.looked:
            return alarm, None
        if time - alarm.looked > MAX_GAP_INTERVALS * config.interval_seconds:
            # The value is unknown during a gap: the time at its level starts again.
            alarm = replace(alarm, level=Level.BETWEEN)
    if signal.stand not in (Level.UNKNOWN, alarm.level):
        alarm = replace(alarm, level=signal.stand, since=time)
    alarm = replace(alarm, looked=time)
    level, immediate = Level.OVER, {AlertCondition.COUNTERS, AlertCondition.LINK}
    if alarm.raised:
        level, immediate = Level.CALM, {AlertCondition.COUNTERS}
    seconds = 0.0 if signal.key.condition in immediate else config.window_seconds
    if signal.stand is not level or time - alarm.since < seconds:
        return alarm, None
    change = AlertChange.CLEARED if alarm.raised else AlertChange.RAISED
    return replace(alarm, raised=not alarm.raised), change


def find_level(value: float | None, limit: float, hysteresis: float) -> Level:
    """Compare a value with its limit; calm is below the limit by the fraction ``hysteresis``."""
    if value is None:
        return Level.UNKNOWN
    if value > limit:
        return Level.OVER
    return Level.CALM if value <= limit * (1 - hysteresis) else Level.BETWEEN
