"""Sets values on one disk and probes it with them, as a search asks.

A depth beyond the one in force is set for its probe; below it, fewer I/Os in flight are the same
to the device, and nothing is set. Probes only read, but for those beside a bulk writer, which judge
schedulers where a file or an empty disk was given for that.
"""

import time
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.trial import Experiment
from hbatune.facts.model import Endpoint
from hbatune.loader import Count, Figure
from hbatune.plan.rows import DONE, Outcome
from hbatune.policy.profile import Share
from hbatune.probe import run as running
from hbatune.probe.result import (
    BulkWriter,
    Doubt,
    Failed,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.selection import with_value
from hbatune.search.tournament import End
from hbatune.settings.limits import scheduler_of
from hbatune.settings.setting import Value
from hbatune.settings.table import SCHEDULER

RAMP = 0.3
"""Seconds at the start of each probe that do not count: the settings have just been switched."""
BESIDE = Workload(depth=4, writer=BulkWriter())
"""The reader whose p99 a scheduler is judged by, and the bulk writer beside it."""
LONGER = 2.0
"""So many times longer is a probe beside a writer: a reader that waits does few I/Os."""
BFQ = "bfq"
PREFERRED = {True: 8.0, False: 3.0}
"""Seconds for which bfq prefers a process whose I/O is new, on a rotating disk and on another
(block/bfq-iosched.c: bfq_init). A probe is made of new processes, a database and a backup are not:
on a disk of 200 MB/s a reader's p99 beside a writer was 1 to 25 ms meanwhile, and 125 after it."""
TRIES = 5
"""So many times a probe is tried before a search gives it up."""
PAUSE = 0.5
"""Seconds to wait where a disk is in use for a moment, twice as many each time: together more than
the five between two commits of a filesystem (ext4(5): commit)."""


class SearchMeans(Struct, frozen=True):
    """What a search on one disk needs besides the disk.

    ``end`` returns why a probe of so many seconds must not be made any more, None if it may.
    ``advance`` is called after each probe. ``beside`` makes a probe with a bulk writer, None where
    nothing may be written.
    """

    workload: Workload
    objective_us: Figure | None
    tolerance: Share
    seed: Count
    end: Callable[[float], End | None]
    advance: Callable[[str], None]
    beside: Callable[[Subject, Workload], ProbeOutcome] | None = None


class SearchEndedError(Exception):
    """The search cannot go on."""

    def __init__(
        self,
        end: End | None,
        outcome: Skipped | Failed | None = None,
        doubtful: ProbeResult | None = None,
    ) -> None:
        super().__init__(end)
        self.end, self.outcome, self.doubtful = end, outcome, doubtful


class NotWritableError(Exception):
    """Nothing may be written to the disk."""

    def __init__(self, outcome: Skipped) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class DiskProbes:
    """One disk, the experiment with it, and its probes; ``first`` is the first one that reads."""

    def __init__(self, subject: Subject, experiment: Experiment, means: SearchMeans) -> None:
        self.first: ProbeResult | None = None
        self._subject, self._experiment, self._means = subject, experiment, means
        self._taken: dict[str, Value] = {}

    @property
    def beside(self) -> bool:
        """Whether it can be probed beside a bulk writer."""
        return self._means.beside is not None

    def takes(self, values: Mapping[str, Value]) -> bool:
        """Set these values, and whether the device took them all.

        A stuck write ends the search, and so does a value that others have changed.
        """
        if values == self._taken:
            return True
        results = self._experiment.take(values)
        self._taken = dict(values)
        if self._experiment.has_conflict:
            raise SearchEndedError(End.CONFLICT)
        if any(result.outcome is Outcome.STUCK for result in results.values()):
            raise SearchEndedError(End.STUCK)
        done = all(
            each.outcome in DONE and each.found == values[name] for name, each in results.items()
        )
        if not done:
            self._taken = {"": ""}  # unlike any values, so that the next ones are set for certain
        return done

    def probe(self, depth: int, seconds: float) -> ProbeResult:
        """Make one probe that reads, with what was taken; raise where the search has to end."""
        workload = replace(timed(self._means.workload, seconds), depth=depth, jobs=1)

        def read(ready: Subject) -> ProbeOutcome:
            return running.probe([ready], workload, look=self.first is None)[0]

        found = self._trusted(read, workload)
        self.first = self.first or found
        return found

    def probe_beside(self, seconds: float) -> ProbeResult:
        """Make one probe beside a bulk writer, with what was taken.

        Raises NotWritableError where nothing may be written.
        """
        endpoint = self._subject.endpoint
        scheduler = self._taken.get(SCHEDULER, scheduler_of(endpoint.attributes))
        ramp = RAMP + (preferred_seconds(endpoint) if scheduler == BFQ else 0.0)
        workload = replace(BESIDE, ramp=ramp, runtime=LONGER * seconds)
        make = self._means.beside
        assert make is not None

        def beside(ready: Subject) -> ProbeOutcome:
            outcome = make(ready, workload)
            if isinstance(outcome, Skipped) and outcome.reason is not Skip.BUSY:
                raise NotWritableError(outcome)
            return outcome

        return self._trusted(beside, workload)

    def _trusted(self, make: Callable[[Subject], ProbeOutcome], workload: Workload) -> ProbeResult:
        """Make a probe, and again where the disk is busy or the figures cannot be true (D3-6)."""
        doubtful = None
        for number in range(TRIES):
            outcome = make(self._ready(workload))
            self._means.advance(self._subject.target)
            if not isinstance(outcome, ProbeResult):
                # What comes and goes, as the commits of a filesystem do, is waited for; a disk that
                # is in use at the beginning is left alone.
                busy = isinstance(outcome, Skipped) and outcome.reason is Skip.BUSY
                if busy and self.first is not None and number < TRIES - 1:
                    time.sleep(PAUSE * 2**number)
                    continue
                raise SearchEndedError(None, outcome)
            something = min(outcome.figures.iops, outcome.figures.p99_us) > 0
            if something and outcome.doubt is not Doubt.TOO_MANY:
                return outcome
            doubtful = outcome
        raise SearchEndedError(End.UNTRUSTED, doubtful=doubtful)

    def _ready(self, workload: Workload) -> Subject:
        """Return the disk with the values that were taken, if there is time for a probe."""
        if (end := self._means.end(running.estimate_seconds(1, workload))) is not None:
            raise SearchEndedError(end)
        settings = self._subject.settings
        for name, value in self._taken.items():
            settings = with_value(settings, self._subject.target, name, value)
        return replace(self._subject, settings=settings)


def preferred_seconds(endpoint: Endpoint) -> float:
    """Return for how long bfq prefers new processes on a disk; as on a rotating one if unknown."""
    return PREFERRED[endpoint.rotational is not False]


def timed(workload: Workload, seconds: float) -> Workload:
    """Return the workload for a probe of so many seconds."""
    return replace(workload, ramp=RAMP, runtime=seconds)
