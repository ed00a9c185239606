"""Searches the best depth and the best candidate settings of one disk.

What is asked next, and what the answer is, `search` decides; `disk_probes` sets the values and
makes the probes.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.trial import Experiment
from hbatune.facts.model import Attribute, Endpoint
from hbatune.operations.disk_probes import (
    BESIDE,
    BFQ,
    LONGER,
    TRIES,
    DiskProbes,
    NotWritableError,
    SearchEndedError,
    SearchMeans,
    preferred_seconds,
    timed,
)
from hbatune.plan.rows import Row
from hbatune.probe import run as running
from hbatune.probe.history import ValueChange
from hbatune.probe.model import (
    Doubt,
    Figures,
    ProbeResult,
    Skipped,
    Subject,
    Workload,
)
from hbatune.search import depth as depths
from hbatune.search import tournament as tournaments
from hbatune.search.candidates import (
    SEEN_BESIDE_WRITES,
    SEEN_BY_READS,
    Candidate,
    rate_score,
    seen_beside_writes,
    seen_by_reads,
)
from hbatune.search.curve import measurement
from hbatune.search.depth import DepthSearch, DepthWord
from hbatune.search.disk import (
    DiskSearchResult,
    End,
    FoundDepth,
    FoundSettings,
    NotJudged,
    Unjudged,
)
from hbatune.search.tournament import Tournament, TournamentAnswer, TournamentWord
from hbatune.settings.limits import SCHEDULER_FILE, scheduler_of
from hbatune.settings.resolve import resolve_endpoint
from hbatune.settings.setting import Fixed, Value, choices
from hbatune.settings.table import MAX_QUEUE_DEPTH, NR_REQUESTS, QUEUE_DEPTH, SETTINGS

DEEPEST = 1024
"""I/Os in flight beyond which no drive and no volume was seen to gain."""
ROUNDS = tournaments.MOST_PROBES + 2 * tournaments.LOOKS[0]
"""Probes of a tournament, about."""
TRIED = (QUEUE_DEPTH, *SEEN_BESIDE_WRITES, *SEEN_BY_READS)
"""All settings that a search may set."""


_Probe = Callable[[int, float], ProbeResult]
"""Makes a probe of a candidate, which is set, of so many seconds."""
_Score = Callable[[Figures], float]
_DEPTH_WORDS = {
    TournamentWord.BEST: DepthWord.BEST,
    TournamentWord.AS_GOOD: DepthWord.AS_GOOD,
    TournamentWord.CANNOT_TELL: DepthWord.CANNOT_TELL,
}


class Room(Struct, frozen=True):
    """The depths of a disk: its own, the one that it takes now, and the deepest to try."""

    own: int
    current: int
    deepest: int


def estimate_seconds(workload: Workload, endpoint: Endpoint, *, beside: bool) -> float:
    """Return about how many seconds a search on one disk takes: less, or half as much again."""
    one = running.estimate_seconds(1, timed(workload, tournaments.SECONDS))
    seconds = (depths.REFINED + ROUNDS) * one
    if beside:
        more = running.estimate_seconds(1, timed(BESIDE, LONGER * tournaments.SECONDS))
        found = endpoint.attributes.get(SCHEDULER_FILE)
        if isinstance(found, Attribute) and BFQ in choices(found.text):
            more += preferred_seconds(endpoint) / 2  # about half of the probes are with it
        seconds += ROUNDS * more
    return seconds


def estimate_probes(*, beside: bool) -> int:
    """Return about how many probes a search on one disk takes."""
    return depths.REFINED + ROUNDS * (2 if beside else 1)


def depth_room(endpoint: Endpoint) -> Room | Fixed:
    """Return the depths of a disk, or why its own depth cannot be set."""
    own = _number(endpoint, QUEUE_DEPTH)
    if own is None:
        return Fixed("it has none that can be set")
    scheduler = scheduler_of(endpoint.attributes)
    most = resolve_endpoint(endpoint, QUEUE_DEPTH, MAX_QUEUE_DEPTH, own, scheduler)
    if isinstance(most, Fixed):
        return most
    assert isinstance(most.value, int)
    # More than there are requests cannot be in flight.
    requests = _number(endpoint, NR_REQUESTS) or DEEPEST
    deepest = min(most.value, requests, DEEPEST)
    return Room(own, min(own, deepest), deepest)


class DiskSearch:
    """The search on one disk; ``rows`` are what the profile's plan says of it.

    The ``experiment`` is one with all ``TRIED`` settings. ``found`` grows as the search goes on.
    """

    def __init__(
        self, subject: Subject, rows: Sequence[Row], experiment: Experiment, means: SearchMeans
    ) -> None:
        self.found = DiskSearchResult(subject.target, subject.endpoint.id, means.objective_us)
        self._subject, self._rows = subject, rows
        self._probes, self._means = DiskProbes(subject, experiment, means), means
        # The depth that was found, and whether it has to be set for a load of that depth.
        self._depth: dict[str, Value] = {}
        self._deeper = False
        self._load = means.workload.issued

    def run(self) -> DiskSearchResult:
        """Search the depth first, then the settings at that depth, and return what was found."""
        found = self.found
        try:
            self._search_depth()
            self._search_settings()
            self._search_schedulers()
        except SearchEndedError as error:
            found.ended, found.outcome, found.doubtful = error.end, error.outcome, error.doubtful
            answered = found.depth is not None and found.depth.answer is not None
            self._note((QUEUE_DEPTH,), Unjudged.ENDED, unless=answered)
            self._note(SEEN_BY_READS, Unjudged.ENDED, unless=found.settings is not None)
            self._note(SEEN_BESIDE_WRITES, Unjudged.ENDED)
        if (first := self._probes.first) is not None:
            found.blank, found.result = first.blank, found.result or first
        return found

    def _note(
        self,
        settings: Collection[str],
        reason: Unjudged,
        detail: str | None = None,
        *,
        outcome: Skipped | None = None,
        unless: bool = False,
    ) -> None:
        """Note settings as not judged, unless they were or are noted already."""
        known = {name for each in self.found.not_judged for name in each.settings}
        if not unless and not known & set(settings):
            self.found.not_judged.append(NotJudged(tuple(settings), reason, detail, outcome))

    def _search_depth(self) -> None:
        found, room = self.found, depth_room(self._subject.endpoint)
        if isinstance(room, Fixed):
            self._note((QUEUE_DEPTH,), Unjudged.FIXED, room.limit)
            return
        found.depth = FoundDepth(room.current, room.deepest, ())
        search = DepthSearch(room.current, room.deepest, self._means.objective_us)
        by_depth: dict[int, ProbeResult] = {}
        missed = 0
        while (wanted := depths.next_probe(search)) is not None:
            deeper = wanted.depth > room.own
            result = None
            if self._probes.takes({QUEUE_DEPTH: wanted.depth} if deeper else {}):
                result = self._probes.probe(wanted.depth, wanted.seconds)
            if result is None or result.doubt is Doubt.TOO_FEW:
                # Not reached: by the driver's limit, or by fio, which may be short of CPU.
                reached = max((each.depth for each in search.measured), default=0)
                missed += 1
                if not reached and missed == TRIES:
                    end = End.NOT_SET if result is None else End.UNTRUSTED
                    raise SearchEndedError(end, doubtful=result)
                if 0 < wanted.depth <= reached:
                    break  # what there is has to do
                # The search goes on below it, or tries the first once more.
                search = _below(search, reached) if reached else search
                continue
            by_depth[wanted.depth] = result
            search = depths.add_measurement(search, measurement(result))
            found.depth = FoundDepth(room.current, search.deepest, search.measured)
        answer = depths.answer_depth(search)
        if answer.depth == search.current < room.current:
            # The depth in force could not be measured, and may be better still.
            answer = replace(answer, word=DepthWord.CANNOT_TELL)
        if answer.word is DepthWord.BEST and answer.chance < depths.LIKELY:
            compared = self._compare_depths(room, answer.depth)
            answer = replace(answer, word=_DEPTH_WORDS[compared.word])
            found.depth = replace(found.depth, compared=compared)
        found.depth = replace(found.depth, answer=answer)
        nearest = min(by_depth, key=lambda depth: abs(math.log(depth / answer.depth)))
        found.result = by_depth[nearest]
        if answer.word in (DepthWord.BEST, DepthWord.AS_GOOD):
            self._load = answer.depth
        if answer.word is DepthWord.BEST:
            self._depth, self._deeper = {QUEUE_DEPTH: answer.depth}, answer.depth > room.own
            change = ValueChange(found.target, QUEUE_DEPTH, room.own, answer.depth)
            found.better.append(change)

    def _compare_depths(self, room: Room, depth: int) -> TournamentAnswer:
        """Compare a depth with the one in force in pairs, each with as many I/Os in flight."""
        loads = (room.current, depth)
        deeper: dict[str, Value] = {QUEUE_DEPTH: depth} if depth > room.own else {}
        candidates = (Candidate({}), Candidate(deeper))

        def probe(candidate: int, seconds: float) -> ProbeResult:
            return self._probes.probe(loads[candidate], seconds)

        played, _ = self._tournament(candidates, {}, probe, self._rate)
        return tournaments.answer_tournament(played)

    def _rate(self, figures: Figures) -> float:
        return rate_score(figures.iops, figures.p99_us, self._means.objective_us)

    def _search_settings(self) -> None:
        """Compare what a lone reader's rate shows, at the depth that was found."""
        deeper = {name: each for name, each in self._depth.items() if self._deeper}
        tried = seen_by_reads(self._subject.endpoint, self._rows)

        def probe(candidate: int, seconds: float) -> ProbeResult:
            return self._probes.probe(self._load, seconds)

        found = self._play(tried, deeper, probe, self._rate)
        if found is None:
            self._note(SEEN_BY_READS, Unjudged.NO_CHOICE)
        self.found.settings = found

    def _search_schedulers(self) -> None:
        """Compare what a reader's p99 beside a bulk writer shows, with the depth that was found."""
        if not self._probes.beside:
            self._note(SEEN_BESIDE_WRITES, Unjudged.NEEDS_WRITES)
            return
        tried = seen_beside_writes(self._subject.endpoint, self._rows)

        def score(figures: Figures) -> float:
            return 1e6 / figures.p99_us

        def probe(candidate: int, seconds: float) -> ProbeResult:
            return self._probes.probe_beside(seconds)

        try:
            found = self._play(tried, self._depth, probe, score)
        except NotWritableError as error:
            self._note(SEEN_BESIDE_WRITES, Unjudged.NOT_WRITABLE, outcome=error.outcome)
            return
        if found is None:
            self._note(SEEN_BESIDE_WRITES, Unjudged.NO_CHOICE)
        self.found.schedulers = found

    def _play(
        self,
        tried: Sequence[Candidate],
        base: Mapping[str, Value],
        probe: _Probe,
        score: _Score,
    ) -> FoundSettings | None:
        """Play a tournament of what the device takes; return None where there is no choice."""
        # What a device does not take is no candidate: seen before the rounds begin.
        candidates = [each for each in tried if self._probes.takes({**base, **each.values})]
        if len(candidates) < 2:
            return None
        played, results = self._tournament(candidates, base, probe, score)
        answer, found = tournaments.answer_tournament(played), self.found
        if answer.word is TournamentWord.BEST:
            found.result = results[answer.leader][-1]
            for name, value in candidates[answer.leader].values.items():
                change = ValueChange(found.target, name, self._current(name), value)
                found.better.append(change)
        written = tuple(_written(results.get(each, ())) for each in range(len(candidates)))
        workload = results[0][0].workload
        names = dict.fromkeys(name for each in candidates for name in each.values)
        current = {name: self._current(name) for name in names}
        return FoundSettings(
            *(tuple(candidates), workload.issued, played.scores, answer),
            in_force={name: each for name, each in current.items() if each is not None},
            interference=workload.writer is not None,
            written=written if workload.writer is not None else (),
        )

    def _tournament(
        self,
        candidates: Sequence[Candidate],
        base: Mapping[str, Value],
        probe: _Probe,
        score: _Score,
    ) -> tuple[Tournament, dict[int, list[ProbeResult]]]:
        """Play a tournament to its end, and return it with the probes of each candidate."""
        means = self._means
        played = Tournament(len(candidates), 0, tolerance=means.tolerance, seed=means.seed)
        results: dict[int, list[ProbeResult]] = {}
        while (wanted := tournaments.next_candidate(played)) is not None:
            if not self._probes.takes({**base, **candidates[wanted.candidate].values}):
                raise SearchEndedError(End.NOT_SET)
            result = probe(wanted.candidate, wanted.seconds)
            played = tournaments.add_score(played, score(result.figures))
            results.setdefault(wanted.candidate, []).append(result)
        return played, results

    def _current(self, name: str) -> Value | None:
        """Return the value in force when the facts were gathered."""
        found = self._subject.endpoint.attributes.get(SETTINGS[name].path)
        return SETTINGS[name].parse(found.text) if isinstance(found, Attribute) else None


def _below(search: DepthSearch, depth: int) -> DepthSearch:
    """Return the search with nothing beyond this depth, which then stands for the one in force."""
    return replace(search, deepest=depth, current=min(search.current, depth))


def _written(results: Sequence[ProbeResult]) -> float:
    """Return the bytes/s of the writer beside these probes on average, 0 where there is none."""
    rates = [each.figures.written_beside or 0.0 for each in results]
    return sum(rates) / len(rates) if rates else 0.0


def _number(endpoint: Endpoint, name: str) -> int | None:
    found = endpoint.attributes.get(SETTINGS[name].path)
    text = found.text if isinstance(found, Attribute) else ""
    return int(text) if text.isdecimal() else None
