"""The watch: from one sample after another to readings, alerts and what became of them. Pure.

``WatchConfig`` holds what it remembers; all of its time is that of the samples.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.sampler import LinkSample, Sample
from hbatune.policy.config import WatchConfig as Config
from hbatune.watch import alarm, alerts
from hbatune.watch.alarm import Alarm, Change
from hbatune.watch.alerts import Condition, Key, Signal
from hbatune.watch.latency import Interval
from hbatune.watch.readings import Reading, Readings, ServerReading, readings
from hbatune.watch.subjects import Subjects


class Alert(Struct, frozen=True):
    """An alert that is raised, with the value that raised it.

    ``raised`` is in seconds since the epoch. ``value``, ``limit`` and ``detail`` are as in
    ``alerts.Signal``, ``source`` is the id of what it stands on.
    """

    condition: Condition
    id: str
    target: str
    adapter: str | None
    value: float | None
    limit: float
    detail: str | None
    raised: float
    source: str

    @property
    def key(self) -> Key:
        """Which alarm it is of."""
        counter = self.detail if self.condition is Condition.COUNTERS else None
        return Key(self.condition, self.id, counter)


class Event(Struct, frozen=True):
    """What became of an alert at ``time``; ``value`` is the one that cleared it.

    None where what it was about is gone.
    """

    change: Change
    alert: Alert
    time: float
    value: float | None


class State(Struct, frozen=True):
    """How things stand: for the status file, the metrics and the terminal.

    ``lowered`` counts by endpoint id how often the kernel was seen to lower a queue depth, and
    ``raised`` by condition how many alerts there were, both since the watch began.
    """

    time: float
    disks: tuple[Reading, ...] = ()
    servers: tuple[ServerReading, ...] = ()
    alerts: tuple[Alert, ...] = ()
    lowered: dict[str, int] = {}
    raised: dict[str, int] = {}


_Rises = tuple[tuple[float, int], ...]


class _Memory(Struct, frozen=True):
    """What must be known of the past: ``rises`` are those of counters within the window."""

    sample: Sample | None = None
    alarms: dict[Key, Alarm] = {}
    raised: dict[Key, Alert] = {}
    links: dict[str, LinkSample] = {}
    rises: dict[tuple[str, str], _Rises] = {}


class Watch:
    """Takes samples, and tells what goes on and what became of the alerts.

    ``subjects`` may be set anew whenever disks came or went or a profile changed. ``standing`` are
    the alerts that an earlier watch has left raised: they are not raised again.
    """

    def __init__(
        self, config: Config, subjects: Subjects, *, standing: Iterable[Alert] = ()
    ) -> None:
        self.config = config
        self.subjects = subjects
        raised = {alert.key: alert for alert in standing}
        alarms = {key: Alarm(raised=True) for key in raised}
        self._memory = _Memory(alarms=alarms, raised=raised)
        self._state = State(0.0, alerts=tuple(raised.values()))

    @property
    def standing(self) -> tuple[Alert, ...]:
        """The alerts that are raised."""
        return tuple(self._memory.raised.values())

    def tick(
        self, sample: Sample, intervals: Sequence[Interval] = ()
    ) -> tuple[State, tuple[Event, ...]]:
        """Return how things stand, and which alerts this sample has raised or cleared.

        The first sample raises none. One that is not later than the last is passed over.
        """
        before = self._memory.sample
        if before is not None and sample.at <= before.at:
            return self._state, ()
        found = Readings()
        if before is not None:
            found = readings(self.subjects, before, sample, intervals)
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

    def _looked(self, sample: Sample, found: Readings) -> tuple[Event, ...]:
        alarms, raised = dict(self._memory.alarms), dict(self._memory.raised)
        events = []
        for signal in self._signals(found):
            key = signal.key
            pace = alerts.pace(key.condition, self.config)
            now, change = alarm.look(alarms.pop(key, Alarm()), signal.stand, sample.at, pace)
            if now.worth_keeping:
                alarms[key] = now
            if change is Change.RAISED:
                raised[key] = _alert(signal, sample.time)
                events.append(Event(change, raised[key], sample.time, signal.value))
            elif change is Change.CLEARED:
                events.append(Event(change, raised.pop(key), sample.time, signal.value))
        self._memory = replace(self._memory, alarms=alarms, raised=raised)
        return tuple(events)

    def _signals(self, found: Readings) -> Iterator[Signal]:
        disks = {disk.id: disk for disk in self.subjects.disks}
        rises = self._rises()
        for reading in found.disks:
            disk = disks[reading.id]
            yield from alerts.of_disk(disk, reading, self.config)
            risen = rises.get(disk.id, {})
            yield from alerts.of_counters(disk.id, disk.target, disk.adapter, risen, self.config)
        for server in found.servers:
            target = server.target
            best = self._memory.links.get(target)
            yield from alerts.of_server(server, best, self.config)
            risen = rises.get(target, {})
            yield from alerts.of_counters(target, target, target, risen, self.config)

    def _rises(self) -> dict[str, dict[str, int]]:
        """Return how much counters rose within the window, and 0 for those of raised alerts."""
        found: dict[str, dict[str, int]] = {}
        for key in self._memory.raised:
            if key.counter is not None:
                found.setdefault(key.id, {})[key.counter] = 0
        for (target, counter), each in self._memory.rises.items():
            found.setdefault(target, {})[counter] = sum(count for _, count in each)
        return found

    def _gone(self, sample: Sample) -> tuple[Event, ...]:
        """Clear the alerts about what is not watched any more, and forget the rest of it."""
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
        return tuple(Event(Change.CLEARED, alert, sample.time, None) for alert in gone)

    def _now(self, sample: Sample, found: Readings, events: Iterable[Event]) -> State:
        lowered, raised = dict(self._state.lowered), dict(self._state.raised)
        for reading in found.disks:
            if reading.lowered:
                lowered[reading.id] = lowered.get(reading.id, 0) + 1
        for event in events:
            if event.change is Change.RAISED:
                condition = str(event.alert.condition)
                raised[condition] = raised.get(condition, 0) + 1
        standing = tuple(self._memory.raised.values())
        return State(sample.time, found.disks, found.servers, standing, lowered, raised)


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
