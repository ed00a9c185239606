"""The watch as the daemon keeps it: a sample at each interval, alerts, and metrics where wanted."""

import time
from collections.abc import Callable, Iterable

from hbatune import __version__
from hbatune.act import paths
from hbatune.agent.orders import Report
from hbatune.agent.status import Status
from hbatune.errors import UsageError
from hbatune.facts.sampler import Sampler
from hbatune.policy.config import Config, MetricsConfig
from hbatune.policy.model import Profile
from hbatune.policy.references import load_yardsticks
from hbatune.shipped import shipped
from hbatune.watch import latency, metrics
from hbatune.watch.metrics import Keeping
from hbatune.watch.outlets import Outlets
from hbatune.watch.subjects import subjects
from hbatune.watch.watch import Alert, Event, State, Watch

NEVER = float("inf")


class Sentry:
    """Watches what the last pass has found. Mutable: the watch, and where its metrics go.

    ``standing`` are the alerts that an earlier daemon has left raised. ``problem`` is why there are
    no metrics although they are wanted.
    """

    def __init__(
        self, standing: Iterable[Alert] = (), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.due = NEVER
        self.problem: str | None = None
        self._standing = tuple(standing)
        self._clock = clock
        self._watch: Watch | None = None
        self._sampler: Sampler | None = None
        self._metrics = MetricsConfig()
        self._outlets: Outlets | None = None

    def look_at(self, report: Report, config: Config, profile: Profile) -> None:
        """Watch what a pass has found from now on."""
        if report.machine is None:
            return
        found = subjects(
            report.machine,
            profile,
            depths=report.depths,
            knees=report.knees,
            yardsticks=load_yardsticks(shipped("rules")),
        )
        self._sampler = Sampler(report.machine, every=config.watch.counters_seconds)
        if self._watch is None or self._watch.config != config.watch:
            standing = self._standing if self._watch is None else self._watch.standing
            self._watch = Watch(config.watch, found, standing=standing)
            self.due = self._clock()
        self._watch.subjects = found
        self._open(config.metrics)

    def rest(self) -> None:
        """Watch nothing: no profile is active."""
        self.due, self._watch, self._sampler, self._standing = NEVER, None, None, ()
        self.close()

    def tick(self, status: Status) -> tuple[State, tuple[Event, ...]]:
        """Take a sample; return how things stand and what became of alerts."""
        assert self._watch is not None
        assert self._sampler is not None
        now = self._clock()
        self.due = max(self.due + self._watch.config.interval_seconds, now)
        sample = self._sampler.sample(now, time.time())
        state, events = self._watch.tick(sample, latency.load(paths.LATENCY).intervals)
        if self._outlets is not None:
            try:
                self._outlets.publish(metrics.exposition(state, _keeping(status)))
                self.problem = None
            except OSError as error:
                self.problem = f"metrics cannot be written: {error.strerror}"
        return state, events

    def fileno(self) -> int | None:
        """Return what to wait on before ``serve``, None where no metrics are served."""
        return None if self._outlets is None else self._outlets.fileno()

    def serve(self) -> None:
        """Answer those who ask for metrics."""
        if self._outlets is not None:
            self._outlets.serve()

    def close(self) -> None:
        """Serve nobody any more."""
        self._metrics = MetricsConfig()
        if self._outlets is not None:
            self._outlets.close()
            self._outlets = None

    def _open(self, wanted: MetricsConfig) -> None:
        """Put metrics where they are wanted, and nowhere else."""
        if wanted == self._metrics:
            return
        self.close()
        self.problem = None
        if wanted != MetricsConfig():
            try:
                metrics.require()
                self._outlets = Outlets(wanted)
            except UsageError as error:
                self.problem = error.message  # the next pass tries again
                return
        self._metrics = wanted


def _keeping(status: Status) -> Keeping:
    return Keeping(
        version=__version__,
        profile=status.profile or "",
        endpoints=status.endpoints,
        drift=len(status.amiss),
        repaired=status.written,
        passed=None if status.last is None else status.last.time,
    )
