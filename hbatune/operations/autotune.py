"""Find the best depth and settings of disks by search, and keep nothing unless asked.

Searches the best depth and the best candidate settings of one disk.

What is asked next, and what the answer is, `search` decides; `disk_probes` sets the values and
makes the probes.

Finds the best depth and the best settings of disks by search, and keeps nothing unless asked.

One disk for each adapter, medium and model is searched, and stands for the others. Everything goes
through the journal, under the lock; whatever happens, the values that were there come back. With
``write``, what is better becomes a rule of the site, which `apply` then follows.
"""

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import lock, rollback_record
from hbatune.act.executor import Means
from hbatune.act.trial import Experiment
from hbatune.errors import UsageError
from hbatune.facts.model import Adapter, Attribute, Endpoint
from hbatune.operations.context import (
    Context,
    InterruptedRuns,
    Phase,
    SearchesAhead,
    Stop,
    UnmatchedNames,
)
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
from hbatune.operations.measured_rules import MeasuredRules, require_writable, write_rules
from hbatune.operations.probe import keep_records
from hbatune.operations.situation import Situation, resolved, survey
from hbatune.operations.verify import mount_point
from hbatune.plan.rows import Row
from hbatune.policy.chosen import configuration, configuration_file
from hbatune.policy.match import SiteNames, objective, traits
from hbatune.probe import run as running
from hbatune.probe.guard import scratch_file
from hbatune.probe.history import Record, ValueChange, record
from hbatune.probe.result import (
    Doubt,
    Figures,
    ProbeOutcome,
    ProbeResult,
    Skip,
    Skipped,
    Subject,
    Workload,
)
from hbatune.probe.selection import prefer, probe_refusal, subjects_of
from hbatune.probe.workloads import short_form
from hbatune.search import depth as depths
from hbatune.search import tournament as tournaments
from hbatune.search.curve import measurement
from hbatune.search.depth import DepthConclusion, DepthSearch
from hbatune.search.tournament import (
    SEEN_BESIDE_WRITES,
    SEEN_BY_READS,
    Candidate,
    DiskSearchResult,
    End,
    FoundDepth,
    FoundSettings,
    NotJudged,
    NotRestored,
    Tournament,
    TournamentAnswer,
    TournamentConclusion,
    Unjudged,
    rate_score,
    searched,
    seen_beside_writes,
    seen_by_reads,
)
from hbatune.settings.limits import SCHEDULER_FILE, scheduler_of
from hbatune.settings.resolve import resolve_endpoint
from hbatune.settings.setting import Fixed, Value, choices
from hbatune.settings.table import MAX_QUEUE_DEPTH, NR_REQUESTS, QUEUE_DEPTH, SETTINGS
from hbatune.workers import WorkerPool

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
    TournamentConclusion.BEST: DepthConclusion.BEST,
    TournamentConclusion.AS_GOOD: DepthConclusion.AS_GOOD,
    TournamentConclusion.CANNOT_TELL: DepthConclusion.CANNOT_TELL,
}


class DepthRange(Struct, frozen=True):
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


def depth_room(endpoint: Endpoint) -> DepthRange | Fixed:
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
    return DepthRange(own, min(own, deepest), deepest)


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
            answer = replace(answer, word=DepthConclusion.CANNOT_TELL)
        if answer.word is DepthConclusion.BEST and answer.chance < depths.LIKELY:
            compared = self._compare_depths(room, answer.depth)
            answer = replace(answer, word=_DEPTH_WORDS[compared.word])
            found.depth = replace(found.depth, compared=compared)
        found.depth = replace(found.depth, answer=answer)
        nearest = min(by_depth, key=lambda depth: abs(math.log(depth / answer.depth)))
        found.result = by_depth[nearest]
        if answer.word in (DepthConclusion.BEST, DepthConclusion.AS_GOOD):
            self._load = answer.depth
        if answer.word is DepthConclusion.BEST:
            self._depth, self._deeper = {QUEUE_DEPTH: answer.depth}, answer.depth > room.own
            change = ValueChange(found.target, QUEUE_DEPTH, room.own, answer.depth)
            found.better.append(change)

    def _compare_depths(self, room: DepthRange, depth: int) -> TournamentAnswer:
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
        if answer.word is TournamentConclusion.BEST:
            found.result = results[answer.leader][-1]
            for name, value in candidates[answer.leader].values.items():
                change = ValueChange(found.target, name, self._current(name), value)
                found.better.append(change)
        written = tuple(_written(results.get(each, ())) for each in range(len(candidates)))
        workload = results[0][0].workload
        names = dict.fromkeys(name for candidate in candidates for name in candidate.values)
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
    rates = [result.figures.written_beside or 0.0 for result in results]
    return sum(rates) / len(rates) if rates else 0.0


def _number(endpoint: Endpoint, name: str) -> int | None:
    found = endpoint.attributes.get(SETTINGS[name].path)
    text = found.text if isinstance(found, Attribute) else ""
    return int(text) if text.isdecimal() else None


COMMAND = "autotune"


class AutotuneRequest(Struct, frozen=True, kw_only=True):
    """The request: disks, or what means disks, and the profile whose objective counts.

    ``minutes`` are the longest that it may take, None for as long as it needs. Schedulers are
    judged beside a bulk writer: on a file in ``folder``, or with ``destructive`` on the disks
    named, which have to be empty.
    """

    targets: tuple[str, ...]
    profile: str | None = None
    minutes: float | None = None
    write: bool = False
    folder: Path | None = None
    destructive: bool = False


class Autotuned(Struct, frozen=True):
    """The result: what was found on each disk, and the rules that were written.

    ``rules`` is None where none were asked for.
    """

    situation: Situation
    disks: tuple[DiskSearchResult, ...]
    rules: MeasuredRules | None = None

    @property
    def complete(self) -> bool:
        """Whether every search came to its end, and everything asked for was written."""
        saved = self.rules is None or self.rules.saved
        return saved and bool(self.disks) and all(disk.whole for disk in self.disks)


def autotune(context: Context, asked: AutotuneRequest) -> Autotuned:
    """Search the disks, under the lock, with every value back as it was at the end.

    Raises LockedError, UsageError for an unknown name or profile, and JournalError and HoldError
    as an experiment does: then nothing has been changed.
    """
    configuration()  # a mistake in it is reported before any wait for the lock
    folder = configuration_file().parent / "rules.d"
    if asked.write:
        require_writable(folder)
    with context.lock(), WorkerPool() as worker_pool:
        stuck = lock.settle_claims(context.paths.claims, patience=context.patience)
        situation = survey(
            *(asked.profile, asked.targets),
            stuck=stuck,
            worker_pool=worker_pool,
            paths=context.paths,
            more=TRIED,
        )
        context.reporter.note(
            InterruptedRuns(
                situation.journal, situation.rollbacks, situation.machine, situation.stuck
            )
        )
        context.reporter.note(UnmatchedNames(situation.unmatched))
        if not situation.chosen:
            raise UsageError(
                f"there is no disk to search at {', '.join(asked.targets)}",
                hint="name a disk: `hbatune list` shows them",
            )
        subjects, skipped = _choose(situation, asked.targets, asked.folder)
        found = _search(context, situation, asked, subjects, worker_pool)
    refused = (
        DiskSearchResult(each.target, _id(situation, each), outcome=each) for each in skipped
    )
    done = Autotuned(situation, (*found, *refused))
    if asked.write:
        done = replace(done, rules=write_rules(context, situation, done.disks, folder))
    keep_records(context, _records(context, done))
    return done


def _choose(
    situation: Situation, names: Sequence[str], folder: Path | None
) -> tuple[tuple[Subject, ...], list[Skipped]]:
    """Return the disks to search, and those that must not be probed, with the reasons."""
    machine = situation.machine
    excluded = SiteNames(machine).meant(situation.site.exclude)
    usable: set[str] = set()
    skipped: list[Skipped] = []
    for subject in subjects_of(machine, {each.target for each in situation.chosen}):
        own = {subject.target, subject.endpoint.id}
        # Other hosts share an array: its disks are probed only by their own names.
        named = any(resolved(name).removeprefix("/dev/") in own for name in names)
        refused = probe_refusal(subject, shared=named)
        if refused is None and subject.paths:
            refused = Skipped(subject.target, Skip.MULTIPATH, detail=subject.target)
        if refused is None and subject.endpoint.id in excluded:
            refused = Skipped(subject.target, Skip.EXCLUDED)
        if refused is None:
            usable.add(subject.target)
        else:
            skipped.append(refused)
    chosen = running.choose_subjects(machine, usable, shared=True)
    if folder is not None:
        mount = mount_point(folder)
        for subject in subjects_of(machine, usable):
            # The disk that can be written to, in place of one that only represents it.
            chosen = prefer(chosen, subject) if mount in subject.endpoint.mounts else chosen
    return chosen.subjects, [*skipped, *chosen.skipped]


def _id(situation: Situation, skipped: Skipped) -> str:
    known = (
        endpoint.id for endpoint in situation.machine.endpoints if endpoint.target == skipped.target
    )
    return next(known, skipped.target)


def _search(
    context: Context,
    situation: Situation,
    asked: AutotuneRequest,
    subjects: Sequence[Subject],
    worker_pool: WorkerPool,
) -> list[DiskSearchResult]:
    """Search one disk after the other, after a note of the time."""
    if not subjects:
        return []
    filed = _on_disk(asked.folder, subjects) if asked.folder is not None else None
    workload = short_form(situation.profile.probe, float(situation.config.probe.seconds))
    limit = None if asked.minutes is None else 60 * asked.minutes
    written = [each for each in subjects if asked.destructive or each is filed]
    places = [each in written for each in subjects]
    seconds = sum(
        estimate_seconds(workload, each.endpoint, beside=place)
        for each, place in zip(subjects, places, strict=True)
    )
    emptied = tuple(each.target for each in written if each is not filed)
    context.reporter.note(SearchesAhead(len(subjects), seconds, limit, asked.folder, emptied))
    ends = None if limit is None else time.monotonic() + limit
    plan = situation.plan(named=True)
    probes = sum(estimate_probes(beside=each) for each in places)
    found = []
    with ExitStack() as opened:
        stop = opened.enter_context(context.stoppable())
        there = None if filed is None else _file(context, asked.folder, filed, opened)
        advance = opened.enter_context(context.reporter.progress(Phase.SEARCHING, probes))
        for subject in subjects:
            adapter = _adapter(situation, subject.endpoint)
            wanted = objective(situation.profile, traits(subject.endpoint, adapter))
            means = SearchMeans(
                workload=workload,
                objective_us=None if wanted is None else 1000 * wanted.p99_ms,
                tolerance=situation.profile.tolerance.iops,
                seed=int(context.clock()),
                end=lambda seconds: _end(stop, ends, seconds),
                advance=advance,
                beside=_beside(subject, filed, there, asked),
            )
            id = subject.endpoint.id
            rows = [row for row in plan.rows if row.id == id]
            with _experiment(context, situation, id, worker_pool) as experiment:
                result = DiskSearch(subject, rows, experiment, means).run()
            result.not_restored = tuple(_not_restored(subject, experiment))
            result.alike = _alike(situation, subject)
            found.append(result)
    return found


def _not_restored(subject: Subject, experiment: Experiment) -> Iterator[NotRestored]:
    before = {setting.setting: setting.value for setting in subject.settings}
    for name, result in experiment.failed.items():
        yield NotRestored(name, before.get(name), result.outcome, result.errno, result.found)


def _experiment(
    context: Context, situation: Situation, id: str, worker_pool: WorkerPool
) -> Experiment:
    paths, act = context.paths, situation.config.act
    means = Means(
        *(paths.journal, paths.claims, paths.spent, 1, act.deadline_seconds),
        worker_pool=worker_pool,
        guard=rollback_record.load(paths).guard(paths, named=True),
    )
    return Experiment(situation.machine, id, TRIED, COMMAND, means, holds=paths.holds)


def _on_disk(folder: Path, subjects: Sequence[Subject]) -> Subject:
    """Return the disk that a folder is on; UsageError where it is none that is searched."""
    mount = mount_point(folder)
    on = next((subject for subject in subjects if mount in subject.endpoint.mounts), None)
    if on is None:
        raise UsageError(
            f"{str(folder)!r} is on no disk that is searched",
            hint="name a folder on one of those, or leave --file out",
        )
    return on


def _file(context: Context, folder: Path | None, filed: Subject, opened: ExitStack) -> Subject:
    """Make a file in the folder, and return the disk as it is through that file."""
    assert folder is not None
    with context.reporter.progress(Phase.WRITING_FILE, 1):
        file = opened.enter_context(scratch_file(folder))
    return replace(filed, endpoint=replace(filed.endpoint, device_node=file.path, size=file.size))


def _beside(
    subject: Subject, filed: Subject | None, file: Subject | None, asked: AutotuneRequest
) -> Callable[[Subject, Workload], ProbeOutcome] | None:
    """Return how to probe beside a bulk writer, None where nothing may be written."""
    if file is not None and subject is filed:
        place = file.endpoint

        def on_file(ready: Subject, workload: Workload) -> ProbeOutcome:
            # Looked at as the disk, and written to as the file.
            there = replace(ready, endpoint=place)
            busy = running.disturbed(ready)
            return busy or running.probe([there], workload, write=True, idle=True)[0]

        return on_file
    if asked.destructive:
        # Where a link leads is a disk by its own name as well; that to a partition is none.
        linked = (name for name in asked.targets if name.startswith("/dev/"))
        names = (*asked.targets, *map(os.path.realpath, linked))
        return lambda ready, workload: running.probe_guarded(ready, workload, names)
    return None


def _end(stop: Stop, ends: float | None, seconds: float) -> End | None:
    """Return why a probe of so many seconds must not be made any more, None if it may."""
    if stop():
        return End.STOPPED
    return End.NO_TIME if ends is not None and time.monotonic() + seconds > ends else None


def _alike(situation: Situation, subject: Subject) -> tuple[str, ...]:
    """Return the other disks that were asked for and that this one stands for."""
    own = subject.endpoint
    return tuple(
        each.target
        for each in situation.chosen
        if each.target != own.target
        and (each.adapter, each.medium, each.model) == (own.adapter, own.medium, own.model)
    )


def _adapter(situation: Situation, endpoint: Endpoint) -> Adapter | None:
    known = (
        adapter for adapter in situation.machine.adapters if adapter.target == endpoint.adapter
    )
    return next(known, None)


def _records(context: Context, done: Autotuned) -> Iterator[Record]:
    """Yield a record of each disk that was measured, with what was found to be better."""
    situation, now = done.situation, context.clock()
    written = () if done.rules is None else done.rules.written
    rules = {each.target: each.file for each in written}
    for disk in done.disks:
        if disk.result is not None and disk.counts:
            found = record(situation.machine, situation.profile.name, COMMAND, disk.result, now)
            yield replace(
                found,
                settings=tuple(disk.better),
                rule=rules.get(disk.target),
                search=searched(disk),
            )
