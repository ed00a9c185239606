"""The daemon's monitor: samples, alerts, metrics, and depths that a driver has reset.

Queue depths that a driver has put back without an event: found by a cheap look now and then.

The daemon's monitor: a sample at each interval, alerts, and metrics if they are configured.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hbatune import __version__
from hbatune.act import paths
from hbatune.agent.orders import PassReport, UnwrittenFile
from hbatune.agent.status import Status
from hbatune.errors import UsageError
from hbatune.facts.queue_depths import DepthFiles
from hbatune.facts.sampler import Sampler
from hbatune.policy.config import Config, MetricsConfig
from hbatune.settings.table import QUEUE_DEPTH
from hbatune.watch import latency
from hbatune.watch.readings import Subjects, WatchedDisk
from hbatune.watch.watch import Alert, AlertEvent, Watcher, WatchState

if TYPE_CHECKING:
    from hbatune.watch.exporter import Exporter
    from hbatune.watch.metrics import DaemonFigures

NEVER = float("inf")
EVERY = 5.0
"""Seconds between two looks: with the pass that follows, a depth is right again within 10 s."""
SOON = 0.25
"""Seconds between two looks while a controller comes back from a reset."""
RETURN = 15.0
"""Seconds of that. The driver lets commands through first, upon which the kernel tells of the
reset, and puts depths back half a second later or more (drivers/scsi/mpi3mr/mpi3mr_os.c:
mpi3mr_fwevt_bh waits for MPI3_EVENT_WAIT_FOR_DEVICES_TO_REFRESH)."""


class DepthWatch:
    """The disks whose driver puts depths back, and which of them were seen to be put back.

    ``due`` is the time of the next look on the daemon's clock. A depth that was found is found
    again only after a pass has set it anew: what a pass has left, it had a reason to leave.
    """

    def __init__(self, read: Callable[[Collection[str]], Mapping[str, int]] | None = None) -> None:
        self.due = NEVER
        self._read = DepthFiles().read if read is None else read
        self._own: dict[str, int] = {}
        self._found: set[str] = set()
        self._returned = 0.0

    def watch(self, report: PassReport, now: float) -> None:
        """Look at the disks of this pass from now on; one over a part leaves the others."""
        if report.subjects is None:
            return
        part = set() if report.whole else {disk.target for disk in report.subjects.disks}
        others = {} if report.whole else self._own
        kept = {target: own for target, own in others.items() if target not in part}
        self._own = {**kept, **report.resettable}
        self._found -= {each.target for each in report.written if each.setting == QUEUE_DEPTH}
        self._put_off(now)
        if self._own and now < self._returned:
            self.due = now  # the pass may have been too early, and may have taken a while

    def hurry(self, now: float) -> None:
        """Look more often for a while: a controller was reset."""
        self._returned = now + RETURN
        if self._own:
            self.due = now

    def stop(self) -> None:
        """Look at nothing any more."""
        self._own, self._found, self.due = {}, set(), NEVER

    def look(self, now: float) -> tuple[str, ...]:
        """Return the disks whose depth was put back since it was last set."""
        self._put_off(now)
        depths = self._read(self._own.keys())
        back = {target for target, depth in depths.items() if depth == self._own[target]}
        new = back - self._found
        self._found = back
        return tuple(sorted(new))

    def _put_off(self, now: float) -> None:
        pause = SOON if now < self._returned else EVERY
        self.due = now + pause if self._own else NEVER


class MetricsMonitor:
    """Samples the endpoints of the last pass. Mutable: the watcher, and the outlets of its metrics.

    ``raised`` are the alerts that an earlier daemon has left raised. ``problem`` is why there are
    no metrics although they are configured.
    """

    def __init__(
        self, raised: Iterable[Alert] = (), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.due = NEVER
        self.problem: str | None = None
        self._raised = tuple(raised)
        self._clock = clock
        self._watch: Watcher | None = None
        self._sampler: Sampler | None = None
        self._metrics = self._wanted = MetricsConfig()
        self._outlets: Exporter | None = None

    @property
    def disks(self) -> tuple[WatchedDisk, ...]:
        """What is watched."""
        return () if self._watch is None else self._watch.subjects.disks

    @property
    def unwritten(self) -> tuple[UnwrittenFile, ...]:
        """The file or socket of the metrics if they cannot be published."""
        if self.problem is None:
            return ()
        return (UnwrittenFile(self._wanted.textfile or self._wanted.listen or "", self.problem),)

    def watch(self, report: PassReport, config: Config) -> None:
        """Watch the endpoints of a pass from now on; one over a part leaves the others."""
        if report.subjects is None:
            return
        found, places = report.subjects, report.places
        if self._watch is not None and self._sampler is not None and not report.whole:
            self._sampler.update(places)
            self._watch.subjects = _with_part(self._watch.subjects, found)
            return
        if self._sampler is None:
            self._sampler = Sampler(places)
        self._sampler.sample_these(places)
        self._sampler.every = config.watch.counters_seconds
        if self._watch is None or self._watch.config != config.watch:
            # Alerts outlive a restart and a new configuration, so that none is raised twice.
            standing = self._raised if self._watch is None else self._watch.standing
            self._watch = Watcher(config.watch, found, standing=standing)
            self.due = self._clock()
        self._watch.subjects = found
        self._open(config.metrics)

    def stop_watching(self) -> None:
        """Stop watching: no profile is active."""
        self.due, self._watch, self._sampler, self._raised = NEVER, None, None, ()
        self.problem = None
        self.close()

    def tick(self, status: Status) -> tuple[WatchState, tuple[AlertEvent, ...]]:
        """Take a sample; return the state and the alerts that were raised or cleared."""
        assert self._watch is not None
        assert self._sampler is not None
        now = self._clock()
        # In step with the interval, but without a burst of samples after a delay.
        self.due = max(self.due + self._watch.config.interval_seconds, now)
        sample = self._sampler.sample(now, time.time())
        intervals = latency.load(paths.LATENCY).intervals
        published = self._outlets is not None
        state, events = self._watch.tick(sample, intervals, detailed=published)
        if self._outlets is not None:
            from hbatune.watch import metrics

            try:
                self._outlets.publish(metrics.exposition(state, _keeping(status)))
                self.problem = None
            except OSError as error:
                self.problem = f"metrics cannot be written: {error.strerror}"
        return state, events

    def fileno(self) -> int | None:
        """Return the descriptor to wait for before ``serve``, None where no metrics are served."""
        return None if self._outlets is None else self._outlets.fileno()

    def serve(self) -> None:
        """Answer waiting requests for metrics."""
        if self._outlets is not None:
            self._outlets.serve()

    def close(self) -> None:
        """Stop serving metrics."""
        self._metrics = MetricsConfig()
        if self._outlets is not None:
            self._outlets.close()
            self._outlets = None

    def _open(self, wanted: MetricsConfig) -> None:
        """Publish metrics where they are wanted, and nowhere else."""
        if wanted == self._metrics:
            return
        self.close()
        self.problem, self._wanted = None, wanted
        if wanted != MetricsConfig():
            # Most daemons publish none, and stay smaller without.
            from hbatune.watch import metrics
            from hbatune.watch.exporter import Exporter

            try:
                metrics.require()
                self._outlets = Exporter(wanted)
            except UsageError as error:
                self.problem = error.message  # ``_metrics`` stays unset: the next pass tries again
                return
        self._metrics = wanted


def _with_part(known: Subjects, part: Subjects) -> Subjects:
    """Return the subjects with those of a part in the place of the same disks."""
    disks = {disk.target: disk for disk in known.disks} | {disk.target: disk for disk in part.disks}
    return replace(known, disks=tuple(disks.values()))


def _keeping(status: Status) -> "DaemonFigures":
    from hbatune.watch.metrics import DaemonFigures

    return DaemonFigures(
        version=__version__,
        profile=status.profile or "",
        endpoints=status.endpoints,
        drift=len(status.amiss),
        repaired=status.written,
        passed=None if status.last is None else status.last.time,
    )
