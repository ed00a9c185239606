"""The watch: turns a series of samples into readings, alerts and their changes. Pure.

``Watcher`` holds the state; it reads no clock, since all times come with the samples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.sampler import LinkSample, Sample
from hbatune.policy.config import WatchConfig as Config
from hbatune.watch import alerts
from hbatune.watch import alerts as alarm
from hbatune.watch.alerts import Alarm, AlarmKey, AlertChange, AlertCondition, Signal
from hbatune.watch.latency import Interval
from hbatune.watch.readings import AdapterReading, Reading, Readings, Subjects, readings


class Alert(Struct, frozen=True):
    """An alert that is raised, with the value that raised it.

    ``raised`` is in seconds since the epoch. ``value``, ``limit`` and ``detail`` are as in
    ``alerts.Signal``, ``source`` is the id of the recommendation behind it.
    """

    condition: AlertCondition
    id: str
    target: str
    adapter: str | None
    value: float | None
    limit: float
    detail: str | None
    raised: float
    source: str

    @property
    def key(self) -> AlarmKey:
        """The key of its alarm."""
        counter = self.detail if self.condition is AlertCondition.COUNTERS else None
        return AlarmKey(self.condition, self.id, counter)


class AlertEvent(Struct, frozen=True):
    """An alert raised or cleared at ``time``; ``value`` is the one that did it.

    None where the alert was cleared since its target is gone.
    """

    change: AlertChange
    alert: Alert
    time: float
    value: float | None


class WatchState(Struct, frozen=True):
    """The state of the watch, for the status file, the metrics and the terminal.

    ``lowered`` counts by endpoint id how often the kernel was seen to lower a queue depth, and
    ``raised`` by condition how many alerts there were, both since the watch began.
    """

    time: float
    disks: tuple[Reading, ...] = ()
    servers: tuple[AdapterReading, ...] = ()
    alerts: tuple[Alert, ...] = ()
    lowered: dict[str, int] = {}
    raised: dict[str, int] = {}


_Rises = tuple[tuple[float, int], ...]


class _Memory(Struct, frozen=True):
    """The memory of the watch: ``rises`` are the rises of counters within the window."""

    sample: Sample | None = None
    alarms: dict[AlarmKey, Alarm] = {}
    raised: dict[AlarmKey, Alert] = {}
    links: dict[str, LinkSample] = {}
    rises: dict[tuple[str, str], _Rises] = {}


class Watcher:
    """Takes samples, and returns the state and the changes of alerts.

    ``subjects`` may be replaced when disks come or go or the profile changes. ``standing`` are the
    alerts that an earlier watch left raised: they are not raised again.
    """

    def __init__(
        self, config: Config, subjects: Subjects, *, standing: Iterable[Alert] = ()
    ) -> None:
        self.config = config
        self.subjects = subjects
        raised = {alert.key: alert for alert in standing}
        alarms = {key: Alarm(raised=True) for key in raised}
        self._memory = _Memory(alarms=alarms, raised=raised)
        self._state = WatchState(0.0, alerts=tuple(raised.values()))

    @property
    def standing(self) -> tuple[Alert, ...]:
        """The alerts that are raised."""
        return tuple(self._memory.raised.values())

    def tick(
        self, sample: Sample, intervals: Sequence[Interval] = ()
    ) -> tuple[WatchState, tuple[AlertEvent, ...]]:
        """Return the state, and the alerts that this sample has raised or cleared.

        The first sample raises none. A sample that is not later than the last is ignored.
        """
        before = self._memory.sample
        if before is not None and sample.at <= before.at:
            return self._state, ()
        found = Readings()
        if before is not None:
            found = readings(self.subjects, before, sample, intervals)
        # Before looking: the signals use the rises and links of this very sample.
        self._remember(sample, found)
        events = (*self._gone(sample), *self._looked(sample, found))
        self._state = self._now(sample, found, events)
        return self._state, events

    def _remember(self, sample: Sample, found: Readings) -> None:
        memory = self._memory
        oldest = sample.at - self.config.window_seconds
        self._memory = replace(
            memory,
            sample=sample,
            links={**memory.links, **dict(_best(memory.links, sample.links))},
            rises=dict(_within(_risen(memory.rises, found, sample.at), oldest)),
        )

    def _looked(self, sample: Sample, found: Readings) -> tuple[AlertEvent, ...]:
        alarms, raised = dict(self._memory.alarms), dict(self._memory.raised)
        events = []
        for signal in self._signals(found):
            key = signal.key
            pace = alerts.alert_pace(key.condition, self.config)
            now, change = alarm.next_alarm(alarms.pop(key, Alarm()), signal.stand, sample.at, pace)
            # Alarms in their initial state need no memory: most disks never have another one.
            if now.worth_keeping:
                alarms[key] = now
            if change is AlertChange.RAISED:
                raised[key] = _alert(signal, sample.time)
                events.append(AlertEvent(change, raised[key], sample.time, signal.value))
            elif change is AlertChange.CLEARED:
                events.append(AlertEvent(change, raised.pop(key), sample.time, signal.value))
        self._memory = replace(self._memory, alarms=alarms, raised=raised)
        return tuple(events)

    def _signals(self, found: Readings) -> Iterator[Signal]:
        disks = {disk.id: disk for disk in self.subjects.disks}
        rises = self._rises()
        for reading in found.disks:
            disk = disks[reading.id]
            yield from alerts.disk_signals(disk, reading, self.config)
            risen = rises.get(disk.id, {})
            yield from alerts.counter_signals(
                disk.id, disk.target, disk.adapter, risen, self.config
            )
        for server in found.servers:
            target = server.target
            best = self._memory.links.get(target)
            yield from alerts.adapter_signals(server, best, self.config)
            risen = rises.get(target, {})
            yield from alerts.counter_signals(target, target, target, risen, self.config)

    def _rises(self) -> dict[str, dict[str, int]]:
        """Return the rises of counters within the window, and 0 for those of raised alerts.

        The zeros let an alert clear whose counter does not rise any more.
        """
        found: dict[str, dict[str, int]] = {}
        for key in self._memory.raised:
            if key.counter is not None:
                found.setdefault(key.id, {})[key.counter] = 0
        for (target, counter), each in self._memory.rises.items():
            found.setdefault(target, {})[counter] = sum(count for _, count in each)
        return found

    def _gone(self, sample: Sample) -> tuple[AlertEvent, ...]:
        """Clear the alerts on targets that are not watched any more, and forget these targets."""
        there = {disk.id for disk in self.subjects.disks}
        there |= {server.target for server in self.subjects.servers}
        memory = self._memory
        gone = [alert for key, alert in memory.raised.items() if key.id not in there]
        self._memory = replace(
            memory,
            alarms={key: each for key, each in memory.alarms.items() if key.id in there},
            raised={key: each for key, each in memory.raised.items() if key.id in there},
            links={target: each for target, each in memory.links.items() if target in there},
            rises={key: each for key, each in memory.rises.items() if key[0] in there},
        )
        return tuple(AlertEvent(AlertChange.CLEARED, alert, sample.time, None) for alert in gone)

    def _now(self, sample: Sample, found: Readings, events: Iterable[AlertEvent]) -> WatchState:
        lowered, raised = dict(self._state.lowered), dict(self._state.raised)
        for reading in found.disks:
            if reading.lowered:
                lowered[reading.id] = lowered.get(reading.id, 0) + 1
        for event in events:
            if event.change is AlertChange.RAISED:
                condition = str(event.alert.condition)
                raised[condition] = raised.get(condition, 0) + 1
        standing = tuple(self._memory.raised.values())
        return WatchState(sample.time, found.disks, found.servers, standing, lowered, raised)


def _alert(signal: Signal, time: float) -> Alert:
    return Alert(
        condition=signal.key.condition,
        id=signal.key.id,
        target=signal.target,
        adapter=signal.adapter,
        value=signal.value,
        limit=signal.limit,
        detail=signal.detail,
        raised=time,
        source=signal.key.condition.source,
    )


def _best(
    known: Mapping[str, LinkSample], links: Mapping[str, LinkSample]
) -> Iterator[tuple[str, LinkSample]]:
    for target, link in links.items():
        # The best is kept: a link that trains down must be compared with its former state.
        best = known.get(target, link)
        yield target, LinkSample(max(best.speed, link.speed), max(best.width, link.width))


def _risen(
    rises: Mapping[tuple[str, str], _Rises], found: Readings, now: float
) -> dict[tuple[str, str], _Rises]:
    """Return the rises with those of this reading."""
    total = dict(rises)
    targets = [(reading.id, reading.risen) for reading in found.disks]
    targets += [(server.target, server.risen) for server in found.servers]
    for target, risen in targets:
        for counter, count in risen.items():
            total[target, counter] = (*total.get((target, counter), ()), (now, count))
    return total


def _within(
    rises: Mapping[tuple[str, str], _Rises], oldest: float
) -> Iterator[tuple[tuple[str, str], _Rises]]:
    """Yield the rises that are not older than the window."""
    for key, each in rises.items():
        recent = tuple(rise for rise in each if rise[0] > oldest)
        if recent:
            yield key, recent
