"""The watch: turn samples into readings, alerts and their changes. Pure: it reads no clock."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from hbatune.facts.sampler import LinkSample, Sample
from hbatune.loader import LongText, ShortText
from hbatune.policy.config import WatchConfig as Config
from hbatune.watch import alerts, readings
from hbatune.watch.alerts import Alarm, AlarmKey, AlertChange, AlertCondition, Level, Signal
from hbatune.watch.latency import Interval, select_intervals


class Alert(Struct, frozen=True):
    """An alert that is raised, with the value that raised it.

    ``raised`` is in seconds since the epoch. ``value``, ``limit`` and ``detail`` are as in
    ``alerts.Signal``, ``source`` is the id of the recommendation that it is based on.
    """

    condition: AlertCondition
    id: ShortText
    target: ShortText
    adapter: ShortText | None
    value: float | None
    limit: float
    detail: LongText | None
    raised: float
    source: ShortText

    @property
    def key(self) -> AlarmKey:
        """The key of its alarm."""
        counter = self.detail if self.condition is AlertCondition.COUNTERS else None
        return AlarmKey(self.condition, self.id, counter)


class AlertEvent(Struct, frozen=True):
    """An alert raised or cleared at ``time``; ``value`` is the value that caused it.

    ``value`` is None if the alert was cleared because its target or its limit no longer exists.
    """

    change: AlertChange
    alert: Alert
    time: float
    value: float | None


class WatchState(Struct, frozen=True):
    """The state of the watch, for the status file, the metrics and the terminal.

    ``lowered`` counts by endpoint id how often the kernel lowered a queue depth, and ``raised``
    counts the alerts by condition, both since the watch started.
    """

    time: float
    disks: tuple[readings.Reading, ...] = ()
    servers: tuple[readings.AdapterReading, ...] = ()
    alerts: tuple[Alert, ...] = ()
    lowered: dict[str, int] = {}
    raised: dict[str, int] = {}


class Watcher:
    """Takes samples, and returns the state and the changes of alerts. Mutable.

    ``subjects`` may be replaced when disks are added or removed or the profile changes.
    ``standing`` are the alerts that an earlier watch left raised: they are not raised again.
    """

    def __init__(
        self, config: Config, subjects: readings.Subjects, *, standing: Iterable[Alert] = ()
    ) -> None:
        self.config = config
        self.subjects = subjects
        self._sample: Sample | None = None
        self._raised = {alert.key: alert for alert in standing}
        self._alarms = {key: Alarm(raised=True) for key in self._raised}
        self._links: dict[str, LinkSample] = {}
        # By target and counter, the rises within the window with their times, the latest last.
        self._rises: dict[str, dict[str, list[tuple[float, int]]]] = {}
        for key in self._raised:
            if key.counter is not None:
                self._rises.setdefault(key.id, {})[key.counter] = []
        self._lowered: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._state = WatchState(0.0, alerts=self.standing)

    @property
    def standing(self) -> tuple[Alert, ...]:
        """The alerts that are raised."""
        return tuple(self._raised.values())

    def tick(
        self, sample: Sample, intervals: Sequence[Interval] = (), *, detailed: bool = True
    ) -> tuple[WatchState, tuple[AlertEvent, ...]]:
        """Return the state, and the alerts that this sample has raised or cleared.

        The first sample raises none. A sample that is not later than the last is ignored. Only a
        ``detailed`` state has the readings, which are as large as the machine.
        """
        before = self._sample
        if before is not None and sample.at <= before.at:
            return self._state, ()
        self._sample = sample
        for target, link in sample.links.items():
            # The best is stored: a link that trains down must be compared with its former state.
            best = self._links.get(target, link)
            speed, width = max(best.speed, link.speed), max(best.width, link.width)
            self._links[target] = LinkSample(speed, width)
        self._forget_rises(sample.at - self.config.window_seconds)
        events = self._clear_unwatched(sample)
        disks, servers = list[readings.Reading](), list[readings.AdapterReading]()
        if before is not None:
            config = self.config
            recent = select_intervals(intervals, before.at, sample.at)
            with_alarm = {key.id for key in self._alarms}
            # One at a time: the readings of thousands of disks would take megabytes.
            for disk in self.subjects.disks:
                reading = readings.read_disk(disk, before, sample, recent)
                if reading is None:
                    continue
                id, target, adapter = disk.id, disk.target, disk.adapter
                if reading.lowered:
                    self._lowered[id] += 1
                risen = self._update_rises(id, reading.risen, sample.at)
                has_alarm = id in with_alarm
                signals = list(alerts.list_disk_signals(disk, reading, config, has_alarm=has_alarm))
                signals += alerts.list_counter_signals(id, target, adapter, risen, config)
                events += self._apply_signals(signals, sample)
                # A disk may have a limit no more, such as its objective.
                limited = {signal.key for signal in signals}
                ended = (key for key in self._raised if key.id == id and key not in limited)
                events += self._clear(tuple(ended), sample)
                if detailed:
                    disks.append(reading)
            for subject in self.subjects.servers:
                target, server = subject.target, readings.read_adapter(subject, before, sample)
                risen = self._update_rises(target, server.risen, sample.at)
                signals = list(alerts.list_adapter_signals(server, self._links.get(target), config))
                signals += alerts.list_counter_signals(target, target, target, risen, config)
                events += self._apply_signals(signals, sample)
                if detailed:
                    servers.append(server)
        self._state = WatchState(
            time=sample.time,
            disks=tuple(disks),
            servers=tuple(servers),
            alerts=self.standing,
            lowered=dict(self._lowered),
            raised=dict(self._counts),
        )
        return self._state, tuple(events)

    def _apply_signals(self, signals: Iterable[Signal], sample: Sample) -> list[AlertEvent]:
        """Update the alarms, and return the alerts that these signals have raised or cleared."""
        events = []
        for signal in signals:
            key = signal.key
            before = self._alarms.pop(key, Alarm())
            updated, change = alerts.update_alarm(before, signal, sample.at, self.config)
            # Alarms in their initial state are not stored: most disks never have another one.
            if updated.raised or updated.level is Level.OVER:
                self._alarms[key] = updated
            if change is AlertChange.RAISED:
                where = (key.id, signal.target, signal.adapter, signal.value, signal.limit)
                details = (signal.detail, sample.time, key.condition.source)
                self._raised[key] = Alert(key.condition, *where, *details)
                self._counts[str(key.condition)] += 1
            if change is not None:
                events.append(AlertEvent(change, self._raised[key], sample.time, signal.value))
            if change is AlertChange.CLEARED:
                del self._raised[key]
        return events

    def _update_rises(
        self, target: str, risen: Mapping[str, int], time: float
    ) -> Mapping[str, int]:
        """Add the rises of a target's counters, and return their sums within the window."""
        for counter, count in risen.items():
            self._rises.setdefault(target, {}).setdefault(counter, []).append((time, count))
        totals = {}
        for counter, rises in self._rises.get(target, {}).items():
            totals[counter] = sum(count for _, count in rises)
        return totals

    def _forget_rises(self, oldest: float) -> None:
        """Forget old rises. A raised alert keeps its counter, whose sum of 0 lets it clear."""
        raised = {(key.id, key.counter) for key in self._raised}
        for target, counters in list(self._rises.items()):
            for counter, rises in list(counters.items()):
                while rises and rises[0][0] <= oldest:
                    del rises[0]
                if not rises and (target, counter) not in raised:
                    del counters[counter]
            if not counters:
                del self._rises[target]

    def _clear_unwatched(self, sample: Sample) -> list[AlertEvent]:
        """Clear the alerts on targets that are no longer watched, and forget these targets."""
        # Few ids are stored, but a set of all disks may have thousands.
        gone = {key.id for key in (*self._alarms, *self._raised)}
        gone |= self._links.keys() | self._rises.keys()
        gone.difference_update(disk.id for disk in self.subjects.disks)
        gone.difference_update(server.target for server in self.subjects.servers)
        self._alarms = {key: alarm for key, alarm in self._alarms.items() if key.id not in gone}
        self._links = {name: link for name, link in self._links.items() if name not in gone}
        self._rises = {id: rises for id, rises in self._rises.items() if id not in gone}
        return self._clear([key for key in self._raised if key.id in gone], sample)

    def _clear(self, keys: Iterable[AlarmKey], sample: Sample) -> list[AlertEvent]:
        events = []
        for key in keys:
            self._alarms.pop(key, None)
            alert = self._raised.pop(key)
            events.append(AlertEvent(AlertChange.CLEARED, alert, sample.time, None))
        return events
