"""Find the best depth and settings of disks by search; save them only on request.

One disk is searched for each adapter, medium and model, and represents the others. `search` chooses
each probe and the answer. `disk_probes` sets the values and makes the probes. All writes use the
journal, under the lock, and the original values are always restored. With ``write``, better values
are saved as local rules, which `apply` then follows.
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
from hbatune.facts.model import Adapter, Attribute, Endpoint, Missing
from hbatune.operations.context import (
    Context,
    InterruptedRuns,
    Phase,
    SearchesAhead,
    Stop,
    UnmatchedNames,
)
from hbatune.operations.disk_probes import (
    BFQ,
    MAX_TRIES,
    WRITER_TIME_FACTOR,
    WRITER_WORKLOAD,
    DiskProbes,
    NotWritableError,
    SearchEndedError,
    SearchMeans,
    get_preferred_seconds,
    with_duration,
)
from hbatune.operations.measured_rules import MeasuredRules, require_writable, write_rules
from hbatune.operations.probe import keep_records
from hbatune.operations.situation import ScanMeans, Situation, resolve_target_name, survey_machine
from hbatune.operations.verify import find_mount_point
from hbatune.plan.rows import Row
from hbatune.policy.chosen import find_configuration_file, load_configuration
from hbatune.policy.match import SiteNames, build_traits, find_objective
from hbatune.probe import run as running
from hbatune.probe.guard import make_scratch_file
from hbatune.probe.history import Record, ValueChange, make_record
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
from hbatune.probe.selection import find_probe_refusal, list_subjects, prefer_subject
from hbatune.probe.workloads import shorten_workload
from hbatune.search import depth as depths
from hbatune.search import tournament as tournaments
from hbatune.search.curve import make_measurement
from hbatune.search.depth import DepthConclusion, DepthSearch
from hbatune.search.tournament import (
    READ_SETTINGS,
    WRITE_SETTINGS,
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
    compute_score,
    list_read_candidates,
    list_write_candidates,
    make_stored_search,
)
from hbatune.settings.limits import SCHEDULER_FILE, find_scheduler, make_device, resolve_value
from hbatune.settings.setting import FixedSetting, Value, parse_choices
from hbatune.settings.table import MAX_QUEUE_DEPTH, NR_REQUESTS, QUEUE_DEPTH, SETTINGS
from hbatune.text.limit_text import describe_limit
from hbatune.workers import WorkerPool

MAX_DEPTH = 1024
"""The number of I/Os in flight beyond which no measured drive or volume has gained."""
TOURNAMENT_PROBES = tournaments.MAX_ROUND_PROBES + 2 * tournaments.COMPARISON_PAIRS[0]
"""The approximate number of probes in a tournament."""
SEARCHED_SETTINGS = (QUEUE_DEPTH, *WRITE_SETTINGS, *READ_SETTINGS)
"""All settings that a search may set."""


_Probe = Callable[[int, float], ProbeResult]
"""Makes a probe of a candidate, which is set, for the given number of seconds."""
_Score = Callable[[Figures], float]
_DEPTH_WORDS = {
    TournamentConclusion.BEST: DepthConclusion.BEST,
    TournamentConclusion.AS_GOOD: DepthConclusion.AS_GOOD,
    TournamentConclusion.CANNOT_TELL: DepthConclusion.CANNOT_TELL,
}


class DepthRange(Struct, frozen=True):
    """The depths of a disk: its own, the current effective depth, and the deepest to try."""

    own: int
    current: int
    deepest: int


def estimate_seconds(workload: Workload, endpoint: Endpoint, *, with_writer: bool) -> float:
    """Estimate the seconds of a search on one disk. It may take less, or half as long again."""
    probe_seconds = running.estimate_seconds(1, with_duration(workload, tournaments.PROBE_S))
    seconds = (depths.REFINING_PROBES + TOURNAMENT_PROBES) * probe_seconds
    if with_writer:
        writer_seconds = running.estimate_seconds(
            1, with_duration(WRITER_WORKLOAD, WRITER_TIME_FACTOR * tournaments.PROBE_S)
        )
        attribute = endpoint.attributes.get(SCHEDULER_FILE)
        if isinstance(attribute, Attribute) and BFQ in parse_choices(attribute.text):
            writer_seconds += (
                get_preferred_seconds(endpoint) / 2
            )  # about half of the probes are with it
        seconds += TOURNAMENT_PROBES * writer_seconds
    return seconds


def estimate_probes(*, with_writer: bool) -> int:
    """Estimate the number of probes in a search on one disk."""
    return depths.REFINING_PROBES + TOURNAMENT_PROBES * (2 if with_writer else 1)


def find_depth_range(endpoint: Endpoint) -> DepthRange | FixedSetting:
    """Return the depths of a disk, or the reason why its own depth cannot be set."""
    depth = _read_number(endpoint, QUEUE_DEPTH)
    if depth is None:
        return FixedSetting("it has none that can be set")
    device = make_device(endpoint, find_scheduler(endpoint.attributes))
    highest = resolve_value(SETTINGS[QUEUE_DEPTH], MAX_QUEUE_DEPTH, depth, device)
    if isinstance(highest, FixedSetting):
        return highest
    assert isinstance(highest.value, int)
    # The number of requests limits the I/Os in flight.
    requests = _read_number(endpoint, NR_REQUESTS) or MAX_DEPTH
    deepest = min(highest.value, requests, MAX_DEPTH)
    return DepthRange(depth, min(depth, deepest), deepest)


class DiskSearch:
    """The search on one disk; ``rows`` are its rows in the profile's plan.

    The ``experiment`` has all ``SEARCHED_SETTINGS`` settings. ``found`` is filled in during the
    search.
    """

    def __init__(
        self, subject: Subject, rows: Sequence[Row], experiment: Experiment, means: SearchMeans
    ) -> None:
        self.found = DiskSearchResult(subject.target, subject.endpoint.id, means.objective_us)
        self._subject, self._rows = subject, rows
        self._probes, self._means = DiskProbes(subject, experiment, means), means
        # The best depth, and whether it has to be set for a load of that depth.
        self._depth: dict[str, Value] = {}
        self._deeper = False
        self._load = means.workload.issued

    def run(self) -> DiskSearchResult:
        """Search the depth first, then the settings at that depth, and return the result."""
        search = self.found
        try:
            self._search_depth()
            self._search_settings()
            self._search_schedulers()
        except SearchEndedError as error:
            search.ended, search.outcome, search.doubtful = error.end, error.outcome, error.doubtful
            answered = search.depth is not None and search.depth.answer is not None
            self._note_unjudged((QUEUE_DEPTH,), Unjudged.ENDED, unless=answered)
            self._note_unjudged(READ_SETTINGS, Unjudged.ENDED, unless=search.settings is not None)
            self._note_unjudged(WRITE_SETTINGS, Unjudged.ENDED)
        if (first := self._probes.first) is not None:
            search.blank, search.result = first.blank, search.result or first
        return search

    def _note_unjudged(
        self,
        settings: Collection[str],
        reason: Unjudged,
        detail: str | None = None,
        *,
        outcome: Skipped | None = None,
        unless: bool = False,
    ) -> None:
        """Note settings as not evaluated, unless they were, or are noted already."""
        noted = {name for entry in self.found.not_judged for name in entry.settings}
        if not unless and not noted & set(settings):
            self.found.not_judged.append(NotJudged(tuple(settings), reason, detail, outcome))

    def _search_depth(self) -> None:
        result, room = self.found, find_depth_range(self._subject.endpoint)
        if isinstance(room, FixedSetting):
            self._note_unjudged((QUEUE_DEPTH,), Unjudged.FIXED, describe_limit(room.limit))
            return
        result.depth = FoundDepth(room.current, room.deepest, ())
        search = DepthSearch(room.current, room.deepest, self._means.objective_us)
        by_depth: dict[int, ProbeResult] = {}
        missed = 0
        while (wanted := depths.choose_next_probe(search)) is not None:
            deeper = wanted.depth > room.own
            probe = None
            if self._probes.takes({QUEUE_DEPTH: wanted.depth} if deeper else {}):
                probe = self._probes.probe(wanted.depth, wanted.seconds)
            if probe is None or probe.doubt is Doubt.TOO_FEW:
                # Not reached, because of the driver's limit or a lack of CPU for fio.
                reached = max((probe.depth for probe in search.measured), default=0)
                missed += 1
                if not reached and missed == MAX_TRIES:
                    end = End.NOT_SET if probe is None else End.UNTRUSTED
                    raise SearchEndedError(end, doubtful=probe)
                if 0 < wanted.depth <= reached:
                    break  # answer from the measurements so far
                # The search continues below it, or tries the first depth again.
                search = _limit_search(search, reached) if reached else search
                continue
            by_depth[wanted.depth] = probe
            search = depths.add_measurement(search, make_measurement(probe))
            result.depth = FoundDepth(room.current, search.deepest, search.measured)
        answer = depths.answer_depth(search)
        if answer.depth == search.current < room.current:
            # The current depth could not be measured, and may be better still.
            answer = replace(answer, word=DepthConclusion.CANNOT_TELL)
        if answer.word is DepthConclusion.BEST and answer.chance < depths.SUFFICIENT_CHANCE:
            compared = self._compare_depths(room, answer.depth)
            answer = replace(answer, word=_DEPTH_WORDS[compared.word])
            result.depth = replace(result.depth, compared=compared)
        result.depth = replace(result.depth, answer=answer)
        nearest = min(by_depth, key=lambda depth: abs(math.log(depth / answer.depth)))
        result.result = by_depth[nearest]
        if answer.word in (DepthConclusion.BEST, DepthConclusion.AS_GOOD):
            self._load = answer.depth
        if answer.word is DepthConclusion.BEST:
            self._depth, self._deeper = {QUEUE_DEPTH: answer.depth}, answer.depth > room.own
            change = ValueChange(result.target, QUEUE_DEPTH, room.own, answer.depth)
            result.better.append(change)

    def _compare_depths(self, room: DepthRange, depth: int) -> TournamentAnswer:
        """Compare a depth with the current one in pairs, each with its number of I/Os in flight."""
        loads = (room.current, depth)
        deeper: dict[str, Value] = {QUEUE_DEPTH: depth} if depth > room.own else {}
        candidates = (Candidate({}), Candidate(deeper))

        def probe(candidate: int, seconds: float) -> ProbeResult:
            return self._probes.probe(loads[candidate], seconds)

        played, _ = self._run_tournament(candidates, {}, probe, self._score_rate)
        return tournaments.answer_tournament(played)

    def _score_rate(self, figures: Figures) -> float:
        return compute_score(figures.iops, figures.p99_us, self._means.objective_us)

    def _search_settings(self) -> None:
        """Compare the settings whose effect a single reader's rate shows, at the best depth."""
        deeper = self._depth if self._deeper else {}
        tried = list_read_candidates(self._subject.endpoint, self._rows)

        def probe(candidate: int, seconds: float) -> ProbeResult:
            return self._probes.probe(self._load, seconds)

        settings = self._play_tournament(tried, deeper, probe, self._score_rate)
        if settings is None:
            self._note_unjudged(READ_SETTINGS, Unjudged.NO_CHOICE)
        self.found.settings = settings

    def _search_schedulers(self) -> None:
        """Compare the settings that affect a reader's p99 with a bulk writer, at the best depth."""
        if not self._probes.beside:
            self._note_unjudged(WRITE_SETTINGS, Unjudged.NEEDS_WRITES)
            return
        tried = list_write_candidates(self._subject.endpoint, self._rows)

        def score(figures: Figures) -> float:
            return 1e6 / figures.p99_us

        def probe(candidate: int, seconds: float) -> ProbeResult:
            return self._probes.probe_beside(seconds)

        try:
            schedulers = self._play_tournament(tried, self._depth, probe, score)
        except NotWritableError as error:
            self._note_unjudged(WRITE_SETTINGS, Unjudged.NOT_WRITABLE, outcome=error.outcome)
            return
        if schedulers is None:
            self._note_unjudged(WRITE_SETTINGS, Unjudged.NO_CHOICE)
        self.found.schedulers = schedulers

    def _play_tournament(
        self,
        tried: Sequence[Candidate],
        base: Mapping[str, Value],
        probe: _Probe,
        score: _Score,
    ) -> FoundSettings | None:
        """Play a tournament of the values that the device accepts; return None without a choice."""
        # A value that the device does not accept is not a candidate. Check before the rounds.
        candidates = [
            candidate for candidate in tried if self._probes.takes({**base, **candidate.values})
        ]
        if len(candidates) < 2:
            return None
        played, results = self._run_tournament(candidates, base, probe, score)
        names = dict.fromkeys(name for candidate in candidates for name in candidate.values)
        attributes = self._subject.endpoint.attributes
        readings = {name: SETTINGS[name].read(attributes) for name in names}
        current = {
            name: reading for name, reading in readings.items() if not isinstance(reading, Missing)
        }
        answer, search = tournaments.answer_tournament(played), self.found
        if answer.word is TournamentConclusion.BEST:
            search.result = results[answer.leader][-1]
            for name, value in candidates[answer.leader].values.items():
                change = ValueChange(search.target, name, current.get(name), value)
                search.better.append(change)
        rates = tuple(
            _average_written(results.get(number, ())) for number in range(len(candidates))
        )
        workload = results[0][0].workload
        return FoundSettings(
            *(tuple(candidates), workload.issued, played.scores, answer),
            in_force=current,
            interference=workload.writer is not None,
            written=rates if workload.writer is not None else (),
        )

    def _run_tournament(
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
        while (number := tournaments.choose_next_candidate(played)) is not None:
            if not self._probes.takes({**base, **candidates[number].values}):
                raise SearchEndedError(End.NOT_SET)
            result = probe(number, tournaments.PROBE_S)
            played = tournaments.add_score(played, score(result.figures))
            results.setdefault(number, []).append(result)
        return played, results


def _limit_search(search: DepthSearch, depth: int) -> DepthSearch:
    """Limit the search to this depth; a deeper current depth is then represented by it."""
    return replace(search, deepest=depth, current=min(search.current, depth))


def _average_written(results: Sequence[ProbeResult]) -> float:
    """Return the average bytes/s of the writer in these probes, or 0 without a writer."""
    rates = [result.figures.written_beside or 0.0 for result in results]
    return sum(rates) / len(rates) if rates else 0.0


def _read_number(endpoint: Endpoint, name: str) -> int | None:
    number = SETTINGS[name].read(endpoint.attributes)
    return number if isinstance(number, int) else None


COMMAND = "autotune"


class AutotuneRequest(Struct, frozen=True, kw_only=True):
    """The request: disks, or names that include disks, and the profile with the objective.

    ``minutes`` is the time limit, or None. Schedulers are compared with a bulk writer: on a file in
    ``folder``, or with ``destructive`` on the named disks, which have to be empty.
    """

    targets: tuple[str, ...]
    profile: str | None = None
    minutes: float | None = None
    write: bool = False
    folder: Path | None = None
    destructive: bool = False


class AutotuneResult(Struct, frozen=True):
    """The result: the search on each disk, and the written rules.

    ``rules`` is None if no rules were requested.
    """

    situation: Situation
    disks: tuple[DiskSearchResult, ...]
    rules: MeasuredRules | None = None

    @property
    def complete(self) -> bool:
        """Whether every search is complete, and all requested rules were written."""
        saved = self.rules is None or self.rules.saved
        return saved and bool(self.disks) and all(disk.whole for disk in self.disks)


def search_disks(context: Context, request: AutotuneRequest) -> AutotuneResult:
    """Search the disks, under the lock, and restore every value at the end.

    Raises LockedError, UsageError for an unknown name or profile, and JournalError and HoldError
    as an experiment does. Nothing has been changed then.
    """
    load_configuration()  # an error in it is reported before any wait for the lock
    folder = find_configuration_file().parent / "rules.d"
    if request.write:
        require_writable(folder)
    with context.lock(), WorkerPool() as worker_pool:
        stuck = lock.settle_claims(context.paths.claims, patience=context.patience)
        means = ScanMeans(context.paths, tuple(stuck), worker_pool)
        situation = survey_machine(
            request.profile, request.targets, means=means, extra_settings=SEARCHED_SETTINGS
        )
        context.reporter.note(
            InterruptedRuns(
                situation.journal, situation.rollbacks, situation.machine, situation.stuck
            )
        )
        context.reporter.note(UnmatchedNames(situation.unmatched))
        if not situation.chosen:
            raise UsageError(
                f"there is no disk to search at {', '.join(request.targets)}",
                hint="name a disk: `hbatune list` shows them",
            )
        subjects, skipped = _choose_disks(situation, request.targets, request.folder)
        results = _search(context, situation, request, subjects, worker_pool)
    refused = (
        DiskSearchResult(skip.target, _find_id(situation, skip), outcome=skip) for skip in skipped
    )
    done = AutotuneResult(situation, (*results, *refused))
    if request.write:
        done = replace(done, rules=write_rules(context, situation, done.disks, folder))
    keep_records(context, _make_records(context, done))
    return done


def _choose_disks(
    situation: Situation, names: Sequence[str], folder: Path | None
) -> tuple[tuple[Subject, ...], list[Skipped]]:
    """Return the disks to search, and the disks that must not be probed, with the reasons."""
    machine = situation.machine
    excluded = SiteNames(machine).meant(situation.site.exclude)
    usable: set[str] = set()
    skipped: list[Skipped] = []
    for subject in list_subjects(machine, {endpoint.target for endpoint in situation.chosen}):
        aliases = {subject.target, subject.endpoint.id}
        # Other hosts share an array: its disks are probed only by their own names.
        is_named = any(resolve_target_name(name).removeprefix("/dev/") in aliases for name in names)
        refused = find_probe_refusal(subject, shared=is_named)
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
        mount = find_mount_point(folder)
        for subject in list_subjects(machine, usable):
            # Prefer the disk that can be written to over one that only represents it.
            chosen = prefer_subject(chosen, subject) if mount in subject.endpoint.mounts else chosen
    return chosen.subjects, [*skipped, *chosen.skipped]


def _find_id(situation: Situation, skipped: Skipped) -> str:
    ids = (
        endpoint.id for endpoint in situation.machine.endpoints if endpoint.target == skipped.target
    )
    return next(ids, skipped.target)


def _search(
    context: Context,
    situation: Situation,
    request: AutotuneRequest,
    subjects: Sequence[Subject],
    worker_pool: WorkerPool,
) -> list[DiskSearchResult]:
    """Note the duration, then search one disk after the other."""
    if not subjects:
        return []
    filed = _find_disk(request.folder, subjects) if request.folder is not None else None
    workload = shorten_workload(situation.profile.probe, float(situation.config.probe.seconds))
    limit = None if request.minutes is None else 60 * request.minutes
    written = [subject for subject in subjects if request.destructive or subject is filed]
    with_writer = [subject in written for subject in subjects]
    seconds = sum(
        estimate_seconds(workload, subject.endpoint, with_writer=writes)
        for subject, writes in zip(subjects, with_writer, strict=True)
    )
    emptied = tuple(subject.target for subject in written if subject is not filed)
    context.reporter.note(SearchesAhead(len(subjects), seconds, limit, request.folder, emptied))
    ends = None if limit is None else time.monotonic() + limit
    plan = situation.plan(named=True)
    probes = sum(estimate_probes(with_writer=writes) for writes in with_writer)
    results = []
    with ExitStack() as opened:
        stop = opened.enter_context(context.stoppable())
        scratch = None if filed is None else _make_file(context, request.folder, filed, opened)
        advance = opened.enter_context(context.reporter.progress(Phase.SEARCHING, probes))
        for subject in subjects:
            adapter = _find_adapter(situation, subject.endpoint)
            goal = find_objective(situation.profile, build_traits(subject.endpoint, adapter))
            means = SearchMeans(
                workload=workload,
                objective_us=None if goal is None else 1000 * goal.p99_ms,
                tolerance=situation.profile.tolerance.iops,
                seed=int(context.clock()),
                end=lambda seconds: _find_end(stop, ends, seconds),
                advance=advance,
                beside=_make_writing_probe(subject, filed, scratch, request),
            )
            id = subject.endpoint.id
            rows = [row for row in plan.rows if row.id == id]
            with _make_experiment(context, situation, id, worker_pool) as experiment:
                result = DiskSearch(subject, rows, experiment, means).run()
            result.not_restored = tuple(_list_not_restored(subject, experiment))
            result.alike = _find_represented(situation, subject)
            results.append(result)
    return results


def _list_not_restored(subject: Subject, experiment: Experiment) -> Iterator[NotRestored]:
    before = {setting.setting: setting.value for setting in subject.settings}
    for name, result in experiment.failed.items():
        yield NotRestored(name, before.get(name), result.outcome, result.errno, result.found)


def _make_experiment(
    context: Context, situation: Situation, id: str, worker_pool: WorkerPool
) -> Experiment:
    paths, act = context.paths, situation.config.act
    means = Means(
        *(paths.journal, paths.claims, paths.spent, 1, act.deadline_seconds),
        worker_pool=worker_pool,
        guard=rollback_record.load(paths).guard(paths, named=True),
    )
    return Experiment(situation.machine, id, SEARCHED_SETTINGS, COMMAND, means, holds=paths.holds)


def _find_disk(folder: Path, subjects: Sequence[Subject]) -> Subject:
    """Return the disk of a directory; UsageError if this disk is not searched."""
    mount = find_mount_point(folder)
    disk = next((subject for subject in subjects if mount in subject.endpoint.mounts), None)
    if disk is None:
        raise UsageError(
            f"{str(folder)!r} is on no disk that is searched",
            hint="name a folder on one of those, or leave --file out",
        )
    return disk


def _make_file(context: Context, folder: Path | None, filed: Subject, opened: ExitStack) -> Subject:
    """Make a file in the directory, and return the disk with this file as its device."""
    assert folder is not None
    with context.reporter.progress(Phase.WRITING_FILE, 1):
        file = opened.enter_context(make_scratch_file(folder))
    return replace(filed, endpoint=replace(filed.endpoint, device_node=file.path, size=file.size))


def _make_writing_probe(
    subject: Subject, filed: Subject | None, file: Subject | None, request: AutotuneRequest
) -> Callable[[Subject, Workload], ProbeOutcome] | None:
    """Return a function that probes with a bulk writer, or None if nothing may be written."""
    if file is not None and subject is filed:
        place = file.endpoint

        def on_file(ready: Subject, workload: Workload) -> ProbeOutcome:
            # Checked as the disk, and written to as the file.
            target = replace(ready, endpoint=place)
            busy = running.find_disturbance(ready)
            return busy or running.probe_subjects([target], workload, write=True, idle=True)[0]

        return on_file
    if request.destructive:
        # A link's target counts as named if it is a disk, not if it is a partition.
        linked = (name for name in request.targets if name.startswith("/dev/"))
        names = (*request.targets, *map(os.path.realpath, linked))
        return lambda ready, workload: running.probe_guarded(ready, workload, names)
    return None


def _find_end(stop: Stop, ends: float | None, seconds: float) -> End | None:
    """Return the reason why a probe of this duration must not start, or None if it may."""
    if stop():
        return End.STOPPED
    return End.NO_TIME if ends is not None and time.monotonic() + seconds > ends else None


def _find_represented(situation: Situation, subject: Subject) -> tuple[str, ...]:
    """Return the other requested disks that this one represents."""
    disk = subject.endpoint
    return tuple(
        represented.target
        for represented in situation.chosen
        if represented.target != disk.target
        and (represented.adapter, represented.medium, represented.model)
        == (disk.adapter, disk.medium, disk.model)
    )


def _find_adapter(situation: Situation, endpoint: Endpoint) -> Adapter | None:
    adapters = (
        adapter for adapter in situation.machine.adapters if adapter.target == endpoint.adapter
    )
    return next(adapters, None)


def _make_records(context: Context, done: AutotuneResult) -> Iterator[Record]:
    """Yield a record of each measured disk, with the better values."""
    situation, timestamp = done.situation, context.clock()
    written = () if done.rules is None else done.rules.written
    rules = {rule.target: rule.file for rule in written}
    for disk in done.disks:
        if disk.result is not None and disk.counts:
            entry = make_record(
                situation.machine, situation.profile.name, COMMAND, disk.result, timestamp
            )
            yield replace(
                entry,
                settings=tuple(disk.better),
                rule=rules.get(disk.target),
                search=make_stored_search(disk),
            )
