"""Set values on one disk and probe it with them, as a search requests.

A depth above the current one is set for its probe. A lower depth needs no write: fewer I/Os in
flight have the same effect on the device. Probes only read, except the probes with a bulk writer.
These compare schedulers, and need a file or an empty disk that the user has given.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.trial import Experiment
from hbatune.facts.model import Attribute, Endpoint
from hbatune.loader import Count, Figure, Seconds
from hbatune.operations.context import Advance, Note, SearchLonger
from hbatune.plan.rows import DONE_OUTCOMES, Outcome, Row
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
from hbatune.probe.selection import replace_values
from hbatune.search import tournament as tournaments
from hbatune.search.depth import REFINING_PROBES
from hbatune.search.tournament import PROBE_S, End
from hbatune.settings import limits, setting, table
from hbatune.text.limit_text import Limit, LimitReason

RAMP_S = 0.3
"""Seconds at the start of each probe that do not count, since settings have just changed."""
WRITER_WORKLOAD = Workload(depth=4, writer=BulkWriter())
"""The reader whose p99 shows the effect of a scheduler, and the concurrent bulk writer."""
WRITER_TIME_FACTOR = 2.0
"""The relative duration of a probe with a writer: a waiting reader does few I/Os."""
PREFERRED_S = {True: 8.0, False: 3.0}
"""Seconds for which bfq prefers a process with new I/O, by whether the disk is rotational
(block/bfq-iosched.c: bfq_init). The processes of a probe are new, unlike a database or a backup. On
a disk of 200 MB/s with a writer, a reader's p99 was 1 to 25 ms in this time, and 125 ms later."""
MAX_DEPTH = 1024
"""The number of I/Os in flight beyond which no measured drive or volume has gained."""
MAX_TRIES = 5
"""The number of attempts at a probe before the search ends."""
ANNOUNCED_PROBES = 5
"""The minimum number of unexpected probes for a note that the search takes longer."""
BUSY_PAUSE_S = 0.5
"""Seconds to wait if a disk is in use briefly, doubled each time. In total this is longer than the
five seconds between two commits of a filesystem (ext4(5): commit)."""


class DepthRange(Struct, frozen=True):
    """The depths of a disk: its own, the current effective depth, and the deepest to try."""

    own: int
    current: int
    deepest: int


def find_depth_range(endpoint: Endpoint) -> DepthRange | setting.FixedSetting:
    """Return the depths of a disk, or the reason why its own depth cannot be set."""
    queue_depth = table.SETTINGS[table.QUEUE_DEPTH]
    depth = queue_depth.read_number(endpoint.attributes)
    if depth is None:
        return setting.FixedSetting(LimitReason(Limit.NO_DEPTH))
    device = limits.make_device(endpoint, limits.find_scheduler(endpoint.attributes))
    highest = limits.resolve_value(queue_depth, table.MAX_QUEUE_DEPTH, depth, device)
    if isinstance(highest, setting.FixedSetting):
        return highest
    assert isinstance(highest.value, int)
    # The number of requests limits the I/Os in flight.
    requests = table.SETTINGS[table.NR_REQUESTS].read_number(endpoint.attributes) or MAX_DEPTH
    deepest = min(highest.value, requests, MAX_DEPTH)
    return DepthRange(depth, min(depth, deepest), deepest)


class SearchEstimate(Struct, frozen=True):
    """The expected probes of a disk's search: for its depth, with a reader, and with a writer."""

    depth: Count
    settings: Count
    schedulers: Count
    seconds: Seconds

    @property
    def probes(self) -> int:
        """All probes."""
        return self.depth + self.settings + self.schedulers


class SearchMeans(Struct, frozen=True):
    """The parameters of a search on one disk.

    ``end`` returns the reason why a probe of this number of seconds must not start, or None if it
    may. ``advance`` is called after each probe, and ``note`` if the search takes longer. ``beside``
    makes a probe with a bulk writer; it is None if nothing may be written.
    """

    workload: Workload
    objective_us: Figure | None
    tolerance: Share
    seed: Count
    end: Callable[[float], End | None]
    advance: Advance
    note: Callable[[Note], None]
    beside: Callable[[Subject, Workload], ProbeOutcome] | None = None


class SearchEndedError(Exception):
    """The search cannot continue."""

    def __init__(
        self,
        end: End | None,
        outcome: Skipped | Failed | None = None,
        doubtful: ProbeResult | None = None,
    ) -> None:
        super().__init__(end)
        self.end, self.outcome, self.doubtful = end, outcome, doubtful


class DiskProbes:
    """One disk, the experiment with it, and its probes; ``first`` is the first one that reads.

    ``expected`` is the number of probes in the progress bar's total.
    """

    def __init__(
        self, subject: Subject, experiment: Experiment, means: SearchMeans, expected: int
    ) -> None:
        self.first: ProbeResult | None = None
        self._subject, self._experiment, self._means = subject, experiment, means
        self._made, self._expected = 0, expected
        self._probe_seconds = 0.0  # of the last one
        self._taken: dict[str, setting.Value] = {}

    def expect(self, to_come: int) -> None:
        """Correct the progress bar's total: this number of probes is to come."""
        more = self._made + to_come - self._expected
        if more:
            self._means.advance(self._subject.target, more)
            self._expected += more
        if more >= ANNOUNCED_PROBES:
            self._means.note(SearchLonger(self._subject.target, more * self._probe_seconds))

    def takes(self, values: Mapping[str, setting.Value]) -> bool:
        """Set these values, and return whether the device accepted them all.

        A stuck write ends the search, and so does a value that another process has changed.
        """
        if values == self._taken:
            return True
        results = self._experiment.take(values)
        self._taken = dict(values)
        if self._experiment.conflicts:
            raise SearchEndedError(End.CONFLICT)
        if any(result.outcome is Outcome.STUCK for result in results.values()):
            raise SearchEndedError(End.STUCK)
        for name, result in results.items():
            if result.outcome not in DONE_OUTCOMES or result.found != values[name]:
                self._taken = {"": ""}  # differs from any values, so the next ones are always set
                return False
        return True

    def probe(self, depth: int, seconds: float) -> ProbeResult:
        """Make one probe that reads, with the values set; raise if the search has to end."""
        workload = replace(self._means.workload, ramp=RAMP_S, runtime=seconds, depth=depth, jobs=1)
        result = self._probe_until_trusted(
            lambda ready: running.probe_subject(ready, workload, look=self.first is None), workload
        )
        self.first = self.first or result
        return result

    def probe_beside(self, seconds: float) -> ProbeResult:
        """Make one probe with a bulk writer and the values set; raise if the search has to end."""
        endpoint = self._subject.endpoint
        scheduler = self._taken.get(table.SCHEDULER, limits.find_scheduler(endpoint.attributes))
        ramp = RAMP_S + (get_preferred_seconds(endpoint) if scheduler == limits.BFQ else 0.0)
        workload = replace(WRITER_WORKLOAD, ramp=ramp, runtime=WRITER_TIME_FACTOR * seconds)
        make = self._means.beside
        assert make is not None
        return self._probe_until_trusted(lambda ready: make(ready, workload), workload)

    def _probe_until_trusted(
        self, make: Callable[[Subject], ProbeOutcome], workload: Workload
    ) -> ProbeResult:
        """Make a probe, and repeat it if the disk is busy or the figures are impossible (D3-6)."""
        doubtful = None
        for number in range(MAX_TRIES):
            outcome = make(self._prepare_subject(workload))
            self._means.advance(self._subject.target)
            self._made += 1
            if not isinstance(outcome, ProbeResult):
                # Brief I/O, such as a filesystem's commit, is waited for. A disk that is in use at
                # the beginning is skipped.
                busy = isinstance(outcome, Skipped) and outcome.reason is Skip.BUSY
                if busy and self.first is not None and number < MAX_TRIES - 1:
                    time.sleep(BUSY_PAUSE_S * 2**number)
                    continue
                raise SearchEndedError(None, outcome)
            something = min(outcome.figures.iops, outcome.figures.p99_us) > 0
            if something and outcome.doubt is not Doubt.TOO_MANY:
                return outcome
            doubtful = outcome
        raise SearchEndedError(End.UNTRUSTED, doubtful=doubtful)

    def _prepare_subject(self, workload: Workload) -> Subject:
        """Return the disk with the values set, if there is time for a probe."""
        self._probe_seconds = running.estimate_seconds(workload)
        if (end := self._means.end(self._probe_seconds)) is not None:
            raise SearchEndedError(end)
        new = {(self._subject.target, name): value for name, value in self._taken.items()}
        return replace(self._subject, settings=replace_values(self._subject.settings, new))


def get_preferred_seconds(endpoint: Endpoint) -> float:
    """Return the seconds for which bfq prefers new processes; an unknown disk counts as an HDD."""
    return PREFERRED_S[endpoint.rotational is not False]


def estimate_search(
    workload: Workload, endpoint: Endpoint, rows: Iterable[Row], *, with_writer: bool
) -> SearchEstimate:
    """Estimate a disk's search; ``rows`` are its rows in the profile's plan."""
    depth = REFINING_PROBES if isinstance(find_depth_range(endpoint), DepthRange) else 0
    settings = _estimate_tournament(tournaments.list_read_candidates(endpoint, rows))
    schedulers = 0
    probe = replace(workload, ramp=RAMP_S, runtime=PROBE_S)
    seconds = (depth + settings) * running.estimate_seconds(probe)
    if with_writer:
        schedulers = _estimate_tournament(tournaments.list_write_candidates(endpoint, rows))
        probe = replace(WRITER_WORKLOAD, ramp=RAMP_S, runtime=WRITER_TIME_FACTOR * PROBE_S)
        writer_seconds = running.estimate_seconds(probe)
        attribute = endpoint.attributes.get(limits.SCHEDULER_FILE)
        if isinstance(attribute, Attribute) and limits.BFQ in setting.parse_choices(attribute.text):
            # About half of the probes are with it.
            writer_seconds += get_preferred_seconds(endpoint) / 2
        seconds += schedulers * writer_seconds
    return SearchEstimate(depth, settings, schedulers, seconds)


def _estimate_tournament(candidates: Sequence[tournaments.Candidate]) -> int:
    if len(candidates) < 2:
        return 0
    return tournaments.estimate_probes(tournaments.Tournament(len(candidates), current=0))
