"""The daemon's monitor: samples, alerts, metrics, and depths that a driver has reset."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from hbatune import __version__
from hbatune.act import files
from hbatune.agent.orders import PassReport, UnwrittenFile
from hbatune.agent.status import Status
from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.queue_depths import DepthFiles
from hbatune.facts.sampler import DiskSample, Sampler
from hbatune.policy.config import Config, MetricsConfig
from hbatune.settings.table import QUEUE_DEPTH, Value
from hbatune.watch import readings
from hbatune.watch.latency import LatencySampler
from hbatune.watch.watch import Alert, AlertEvent, Watcher, WatchState

NEVER = float("inf")
POLL_INTERVAL_S = 5.0
"""Seconds between two polls: with the pass that follows, a depth is correct within 10 s."""
FAST_POLL_INTERVAL_S = 0.25
"""Seconds between two polls while a controller recovers from a reset."""
FAST_POLL_DURATION_S = 15.0
"""Seconds of fast polling after a reset. The driver first lets commands through, and the kernel
then reports the reset. The driver resets depths half a second later or more
(drivers/scsi/mpi3mr/mpi3mr_os.c: mpi3mr_fwevt_bh waits for
MPI3_EVENT_WAIT_FOR_DEVICES_TO_REFRESH)."""


class DepthWatch:
    """The disks whose driver resets depths, and the disks with a reset depth."""

    def __init__(self, read: Callable[[Collection[str]], Mapping[str, int]] | None = None) -> None:
        self.due = NEVER  # the time of the next poll on the daemon's clock
        self._read = DepthFiles().read if read is None else read
        self._resettable: dict[str, tuple[Value, ...]] = {}
        self._reset: set[str] = set()
        self._hurry_until = 0.0

    def watch(self, report: PassReport, current_time: float) -> None:
        """Poll the disks of this pass from now on. A partial pass keeps the other disks."""
        if report.subjects is None:
            return
        retained = {} if report.whole else dict(self._resettable)
        for disk in report.subjects.disks:
            retained.pop(disk.target, None)
        self._resettable = retained | report.resettable
        self._reset -= {change.target for change in report.written if change.setting == QUEUE_DEPTH}
        self._schedule_next(current_time)
        if self._resettable and current_time < self._hurry_until:
            self.due = current_time  # the pass may have been too early, and may have taken a while

    def hurry(self, current_time: float) -> None:
        """Poll more often for a while: a controller was reset."""
        self._hurry_until = current_time + FAST_POLL_DURATION_S
        if self._resettable:
            self.due = current_time

    def stop(self) -> None:
        """Stop polling."""
        self._resettable, self._reset, self.due = {}, set(), NEVER

    def look(self, current_time: float) -> tuple[str, ...]:
        """Return the disks whose depth was reset since it was last set."""
        self._schedule_next(current_time)
        depths = self._read(self._resettable.keys())
        reset = {target for target, depth in depths.items() if depth in self._resettable[target]}
        # Reported again only after a pass has set it: if one skipped it, there was a reason.
        new = reset - self._reset
        self._reset = reset
        return tuple(sorted(new))

    def _schedule_next(self, current_time: float) -> None:
        pause = FAST_POLL_INTERVAL_S if current_time < self._hurry_until else POLL_INTERVAL_S
        self.due = current_time + pause if self._resettable else NEVER


class MetricsMonitor:
    """Samples the endpoints of the last pass. ``raised`` are the alerts of an earlier daemon."""

    def __init__(
        self,
        latencies: LatencySampler,
        raised: Iterable[Alert] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.due = NEVER
        self.problem: str | None = None  # why configured metrics are missing
        self.latencies = latencies
        self._raised = tuple(raised)
        self._clock = clock
        self._watch: Watcher | None = None
        self._sampler: Sampler | None = None
        self._disks: Mapping[str, DiskSample] = {}
        self._metrics = self._wanted = MetricsConfig()
        self._textfile: Path | None = None

    @property
    def disks(self) -> tuple[readings.WatchedDisk, ...]:
        """The watched disks."""
        return () if self._watch is None else self._watch.subjects.disks

    @property
    def standing(self) -> tuple[Alert, ...]:
        """The active alerts. Before the first pass, they are the alerts of an earlier daemon."""
        return self._raised if self._watch is None else self._watch.standing

    @property
    def unwritten(self) -> tuple[UnwrittenFile, ...]:
        """The file of the metrics if they cannot be published."""
        if self.problem is None:
            return ()
        return (UnwrittenFile(self._wanted.textfile or "", self.problem),)

    def watch(self, report: PassReport, config: Config) -> None:
        """Watch the endpoints of a pass from now on. A partial pass keeps the other endpoints."""
        if report.subjects is None:
            return
        subjects, places = report.subjects, report.places
        if self._watch is not None and self._sampler is not None and not report.whole:
            self._sampler.update(places)
            disks = {disk.target: disk for disk in (*self._watch.subjects.disks, *subjects.disks)}
            self._watch.subjects = replace(self._watch.subjects, disks=tuple(disks.values()))
            return
        every = config.watch.counters_seconds
        self._sampler = Sampler(places, every=every, last=self._disks)
        if self._watch is None or self._watch.config != config.watch:
            # Alerts survive a restart and a new configuration, so no alert is raised twice.
            self._watch = Watcher(config.watch, subjects, standing=self.standing)
            self.due = self._clock()
        self._watch.subjects = subjects
        self._open_textfile(config.metrics)

    def stop_watching(self) -> None:
        """Stop watching: no profile is active."""
        self.due, self._watch, self._sampler, self._raised = NEVER, None, None, ()
        self.problem = None
        self.close()

    def tick(self, status: Status) -> tuple[WatchState, tuple[AlertEvent, ...]]:
        """Take a sample. Return the state and the alerts that were raised or cleared."""
        assert self._watch is not None
        assert self._sampler is not None
        current_time = self._clock()
        # In step with the interval, but without a burst of samples after a delay.
        self.due = max(self.due + self._watch.config.interval_seconds, current_time)
        sample = self._sampler.sample(current_time, time.time())
        with_goal = (disk for disk in self.disks if disk.objective_ms is not None)
        ids = chain.from_iterable((disk.id, *disk.paths) for disk in with_goal)
        if any(self._disks.get(id) not in (None, sample.disks.get(id)) for id in ids):
            self.latencies.plan(current_time)
        self._disks = sample.disks
        published = self._textfile is not None
        state, events = self._watch.tick(sample, self.latencies.intervals, detailed=published)
        if self._textfile is not None:
            from hbatune.watch import metrics

            try:
                figures = metrics.DaemonFigures(
                    version=__version__,
                    profile=status.profile or "",
                    endpoints=status.endpoints,
                    drift=len(status.amiss),
                    repaired=status.written,
                    passed=None if status.last is None else status.last.time,
                )
                files.publish(self._textfile, metrics.format_metrics(state, figures), mode=0o644)
                self.problem = None
            except OSError as error:
                self.problem = HbatuneError(f"metrics cannot be written: {error.strerror}").message
        return state, events

    def close(self) -> None:
        """Stop publishing metrics and sampling latencies."""
        self._metrics = MetricsConfig()
        self.latencies.close()
        if self._textfile is not None:
            with suppress(OSError):  # old metrics must not look current
                files.remove(self._textfile)
            self._textfile = None

    def _open_textfile(self, wanted: MetricsConfig) -> None:
        if wanted == self._metrics:
            return
        self.close()
        self.problem, self._wanted = None, wanted
        if wanted.textfile is not None:
            # Most daemons publish no metrics, and need less memory without these modules.
            from hbatune.watch import metrics

            try:
                metrics.require_library()
                if not Path(wanted.textfile).is_dir():
                    problem = f"the directory for metrics, {wanted.textfile}, does not exist"
                    raise UsageError(problem)
            except UsageError as error:
                self.problem = error.message  # ``_metrics`` stays unset: the next pass tries again
                return
            self._textfile = Path(wanted.textfile, "hbatune.prom")
        self._metrics = wanted
