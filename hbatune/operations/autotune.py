"""Find the best depth and settings of disks by search; save them only on request.

One disk is searched for each adapter, medium and model, and represents the others. `search` chooses
each probe and the answer. `disk_probes` sets the values and makes the probes. All writes use the
journal, under the lock, and the original values are always restored. With ``write``, better values
are saved as local rules, which `apply` then follows.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act.trial import Experiment
from hbatune.errors import UsageError
from hbatune.operations import disk_probes
from hbatune.operations.context import Context, Phase, SearchesAhead
from hbatune.operations.measured_rules import MeasuredRules, require_writable, write_rules
from hbatune.operations.probe import is_named, keep_records
from hbatune.operations.situation import Situation, SituationRequest, locked_means, read_situation
from hbatune.operations.verify import find_disk, find_mount_point, make_file_subject
from hbatune.plan.rows import Row
from hbatune.policy.config import find_configuration_file, load_configuration
from hbatune.policy.match import SiteNames, build_traits, find_objective
from hbatune.probe import run as running
from hbatune.probe.history import Record, ValueChange
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
from hbatune.search.tournament import DiskSearchResult, End, NotJudged, Unjudged
from hbatune.settings.setting import FixedSetting, Value
from hbatune.settings.table import QUEUE_DEPTH
from hbatune.text.limit_text import describe_limit
from hbatune.workers import WorkerPool

SEARCHED_SETTINGS = (QUEUE_DEPTH, *tournaments.WRITE_SETTINGS, *tournaments.READ_SETTINGS)
"""All settings that a search may set."""


_Probe = Callable[[int, float], ProbeResult]
"""Makes a probe of a candidate, which is set, for the given number of seconds."""
_Score = Callable[[Figures], float]


class DiskSearch:
    """The search on one disk; ``rows`` are its rows in the profile's plan.

    The ``experiment`` has all ``SEARCHED_SETTINGS`` settings, and ``estimate`` the expected probes.
    ``found`` is filled in during the search.
    """

    def __init__(
        self,
        subject: Subject,
        rows: Sequence[Row],
        experiment: Experiment,
        means: disk_probes.SearchMeans,
        estimate: disk_probes.SearchEstimate,
    ) -> None:
        self.found = DiskSearchResult(subject.target, subject.endpoint.id, means.objective_us)
        self._subject, self._rows = subject, rows
        self._means = means
        self._probes = disk_probes.DiskProbes(subject, experiment, means, estimate.probes)
        self._depth: dict[str, Value] = {}  # the best one, to set
        self._estimate, self._later = estimate, 0  # the probes of the parts that follow

    def run(self) -> DiskSearchResult:
        """Search the depth first, then the settings with that depth, and return the result."""
        search = self.found
        try:
            self._search_depth()
            self._search_settings()
            self._search_schedulers()
        except disk_probes.SearchEndedError as error:
            search.ended, search.outcome, search.doubtful = error.end, error.outcome, error.doubtful
            if search.depth is None or search.depth.answer is None:
                self._note_unjudged(NotJudged((QUEUE_DEPTH,), Unjudged.ENDED))
            if search.settings is None:
                self._note_unjudged(NotJudged(tournaments.READ_SETTINGS, Unjudged.ENDED))
            self._note_unjudged(NotJudged(tournaments.WRITE_SETTINGS, Unjudged.ENDED))
        self._probes.expect(0)
        if (first := self._probes.first) is not None:
            search.blank, search.result = first.blank, search.result or first
        return search

    def _note_unjudged(self, unjudged: NotJudged) -> None:
        """Note settings that were not evaluated, unless they are noted already."""
        if all(entry.settings != unjudged.settings for entry in self.found.not_judged):
            self.found.not_judged.append(unjudged)

    def _search_depth(self) -> None:
        self._later = self._estimate.settings + self._estimate.schedulers
        result, room = self.found, disk_probes.find_depth_range(self._subject.endpoint)
        if isinstance(room, FixedSetting):
            detail = describe_limit(room.limit)
            self._note_unjudged(NotJudged((QUEUE_DEPTH,), Unjudged.FIXED, detail))
            return
        result.depth = tournaments.FoundDepth(room.current, room.deepest, ())
        search = DepthSearch(room.current, room.deepest, self._means.objective_us)
        by_depth: dict[int, ProbeResult] = {}
        missed = 0
        while (wanted := depths.choose_next_probe(search)) is not None:
            to_come = max(1, depths.REFINING_PROBES - len(search.measured))
            self._probes.expect(to_come + self._later)
            deeper = wanted.depth > room.own
            probe = None
            if self._probes.takes({QUEUE_DEPTH: wanted.depth} if deeper else {}):
                probe = self._probes.probe(wanted.depth, wanted.seconds)
            if probe is None or probe.doubt is Doubt.TOO_FEW:
                # Not reached, because of the driver's limit or a lack of CPU for fio.
                reached = max((probe.depth for probe in search.measured), default=0)
                missed += 1
                if not reached and missed == disk_probes.MAX_TRIES:
                    end = End.NOT_SET if probe is None else End.UNTRUSTED
                    raise disk_probes.SearchEndedError(end, doubtful=probe)
                if 0 < wanted.depth <= reached:
                    break  # answer from the measurements so far
                # The search continues below it, or tries the first depth again.
                if reached:
                    search = replace(search, deepest=reached, current=min(search.current, reached))
                continue
            by_depth[wanted.depth] = probe
            search = depths.add_measurement(search, make_measurement(probe))
            result.depth = tournaments.FoundDepth(room.current, search.deepest, search.measured)
        answer = depths.answer_depth(search)
        if answer.depth == search.current < room.current:
            # The current depth could not be measured, and may be better still.
            answer = replace(answer, word=DepthConclusion.CANNOT_TELL)
        if answer.word is DepthConclusion.BEST and answer.chance < depths.SUFFICIENT_CHANCE:
            compared = self._compare_depths(room, answer.depth)
            # The members have the same names.
            answer = replace(answer, word=DepthConclusion[compared.word.name])
            result.depth = replace(result.depth, compared=compared)
        result.depth = replace(result.depth, answer=answer)
        nearest = min(by_depth, key=lambda depth: abs(math.log(depth / answer.depth)))
        result.result = by_depth[nearest]
        if answer.word is DepthConclusion.BEST:
            self._depth = {QUEUE_DEPTH: answer.depth}
            result.better.append(ValueChange(result.target, QUEUE_DEPTH, room.own, answer.depth))

    def _compare_depths(
        self, room: disk_probes.DepthRange, depth: int
    ) -> tournaments.TournamentAnswer:
        """Compare a depth with the current one in pairs, each with its number of I/Os in flight."""
        loads = (room.current, depth)
        deeper: dict[str, Value] = {QUEUE_DEPTH: depth} if depth > room.own else {}
        played, _ = self._run_tournament(
            (tournaments.Candidate({}), tournaments.Candidate(deeper)),
            lambda candidate, seconds: self._probes.probe(loads[candidate], seconds),
            self._score_rate,
        )
        return tournaments.answer_tournament(played)

    def _score_rate(self, figures: Figures) -> float:
        return tournaments.compute_score(figures.iops, figures.p99_us, self._means.objective_us)

    def _search_settings(self) -> None:
        """Compare the settings whose effect a reader's rate shows, at the profile's load."""
        self._later = self._estimate.schedulers
        self.found.settings = self._play_tournament(
            tournaments.list_read_candidates(self._subject.endpoint, self._rows),
            lambda _, seconds: self._probes.probe(self._means.workload.issued, seconds),
            self._score_rate,
        )
        if self.found.settings is None:
            self._note_unjudged(NotJudged(tournaments.READ_SETTINGS, Unjudged.NO_CHOICE))

    def _search_schedulers(self) -> None:
        """Compare the settings that affect a reader's p99 with a bulk writer, at the best depth."""
        self._later = 0
        if self._means.beside is None:
            self._note_unjudged(NotJudged(tournaments.WRITE_SETTINGS, Unjudged.NEEDS_WRITES))
            return
        outcome: Skipped | None = None
        try:
            self.found.schedulers = self._play_tournament(
                tournaments.list_write_candidates(self._subject.endpoint, self._rows),
                lambda _, seconds: self._probes.probe_beside(seconds),
                lambda figures: 1e6 / figures.p99_us,
            )
        except disk_probes.SearchEndedError as error:
            # Nothing may be written to the disk, which ends only this part.
            if not isinstance(error.outcome, Skipped) or error.outcome.reason is Skip.BUSY:
                raise
            outcome = error.outcome
        if self.found.schedulers is None:
            reason = Unjudged.NO_CHOICE if outcome is None else Unjudged.NOT_WRITABLE
            self._note_unjudged(NotJudged(tournaments.WRITE_SETTINGS, reason, outcome=outcome))

    def _play_tournament(
        self, tried: Sequence[tournaments.Candidate], probe: _Probe, score: _Score
    ) -> tournaments.FoundSettings | None:
        """Play a tournament of the values that the device accepts; return None without a choice."""
        # A value that the device does not accept is not a candidate. Check before the rounds.
        candidates = []
        for candidate in tried:
            if self._probes.takes({**self._depth, **candidate.values}):
                candidates.append(candidate)
        if len(candidates) < 2:
            return None
        played, results = self._run_tournament(candidates, probe, score)
        names = chain.from_iterable(candidate.values for candidate in candidates)
        current = tournaments.read_current(self._subject.endpoint, names)
        answer, search = tournaments.answer_tournament(played), self.found
        if answer.word is tournaments.TournamentConclusion.BEST:
            search.result = results[answer.leader][-1]
            for name, value in candidates[answer.leader].values.items():
                search.better.append(ValueChange(search.target, name, current.get(name), value))
        workload, written = results[0][0].workload, []
        if workload.writer is not None:
            for number in range(len(candidates)):
                rates = [result.figures.written_beside or 0.0 for result in results.get(number, ())]
                written.append(sum(rates) / len(rates) if rates else 0.0)
        return tournaments.FoundSettings(
            tuple(candidates),
            workload.issued,
            played.scores,
            answer,
            in_force=current,
            interference=workload.writer is not None,
            written=tuple(written),
        )

    def _run_tournament(
        self, candidates: Sequence[tournaments.Candidate], probe: _Probe, score: _Score
    ) -> tuple[tournaments.Tournament, dict[int, list[ProbeResult]]]:
        """Play a tournament to its end, and return it with the probes of each candidate."""
        means = self._means
        count, tolerance = len(candidates), means.tolerance
        played = tournaments.Tournament(count, 0, tolerance=tolerance, seed=means.seed)
        results: dict[int, list[ProbeResult]] = {}
        while (number := tournaments.choose_next_candidate(played)) is not None:
            self._probes.expect(tournaments.estimate_probes(played) + self._later)
            if not self._probes.takes({**self._depth, **candidates[number].values}):
                raise disk_probes.SearchEndedError(End.NOT_SET)
            result = probe(number, tournaments.PROBE_S)
            played = tournaments.add_score(played, score(result.figures))
            results.setdefault(number, []).append(result)
        return played, results


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
    """The search on each disk, and the written rules, or None if no rules were requested."""

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
        wanted = SituationRequest(
            profile=request.profile,
            targets=request.targets,
            means=locked_means(context.paths, context.patience, worker_pool),
            extra_settings=SEARCHED_SETTINGS,
            probes=True,
        )
        situation = read_situation(wanted)
        context.note(situation.traces)
        if not situation.chosen.endpoints:
            problem = f"there is no disk to search at {', '.join(request.targets)}"
            raise UsageError(problem, hint="name a disk: `hbatune list` shows them")
        subjects, skipped = _choose_disks(situation, request.targets, request.folder)
        results = _search(context, situation, request, subjects, worker_pool)
    ids = {endpoint.target: endpoint.id for endpoint in situation.machine.endpoints}
    for skip in skipped:
        id = ids.get(skip.target, skip.target)
        results.append(DiskSearchResult(skip.target, id, outcome=skip))
    done = AutotuneResult(situation, tuple(results))
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
    targets = {endpoint.target for endpoint in situation.chosen.endpoints}
    for subject in list_subjects(machine, targets):
        # Other hosts share an array: its disks are probed only by their own names.
        refused = find_probe_refusal(subject, shared=is_named(names, subject))
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


def _search(
    context: Context,
    situation: Situation,
    request: AutotuneRequest,
    subjects: Sequence[Subject],
    worker_pool: WorkerPool,
) -> list[DiskSearchResult]:
    if not subjects:
        return []
    filed = None if request.folder is None else find_disk(request.folder, subjects)
    workload = shorten_workload(situation.profile.probe, float(situation.config.probe.seconds))
    limit = None if request.minutes is None else 60 * request.minutes
    written = [subject for subject in subjects if request.destructive or subject is filed]
    emptied = tuple(subject.target for subject in written if subject is not filed)
    plan, machine = situation.plan(named=True), situation.machine
    searches = []
    for subject in subjects:
        disk = subject.endpoint
        rows = [row for row in plan.rows if row.id == disk.id]
        with_writer = subject in written
        estimate = disk_probes.estimate_search(workload, disk, rows, with_writer=with_writer)
        searches.append((subject, rows, estimate))
    seconds = sum(estimate.seconds for _, _, estimate in searches)
    context.note(SearchesAhead(len(subjects), seconds, limit, request.folder, emptied))
    ends = math.inf if limit is None else time.monotonic() + limit
    adapters = machine.adapters_by_target
    results = []
    with ExitStack() as stack:
        stop = stack.enter_context(context.stoppable())
        scratch = None
        if filed is not None and request.folder is not None:
            scratch = stack.enter_context(make_file_subject(context, request.folder, filed))
        probes = sum(estimate.probes for _, _, estimate in searches)
        advance = stack.enter_context(context.progress(Phase.SEARCHING, probes))

        def find_end(seconds: float) -> End | None:
            if stop():
                return End.STOPPED
            return End.NO_TIME if time.monotonic() + seconds > ends else None

        for subject, rows, estimate in searches:
            disk = subject.endpoint
            adapter = adapters.get(disk.adapter or "")
            goal = find_objective(situation.profile, build_traits(disk, adapter))
            means = disk_probes.SearchMeans(
                workload=workload,
                objective_us=None if goal is None else 1000 * goal.p99_ms,
                tolerance=situation.profile.tolerance.iops,
                seed=int(context.clock()),
                end=find_end,
                advance=advance,
                note=context.note,
                beside=_make_writing_probe(scratch if subject is filed else None, request),
            )
            trial_means = context.make_trial_means(situation.config.act, worker_pool)
            holds = context.paths.holds
            with Experiment(
                machine, disk.id, SEARCHED_SETTINGS, COMMAND, trial_means, holds=holds
            ) as experiment:
                result = DiskSearch(subject, rows, experiment, means, estimate).run()
            before = {setting.setting: setting.value for setting in subject.settings}
            for name, failed in experiment.failed.items():
                value = (failed.outcome, failed.errno, failed.found)
                result.not_restored += (tournaments.NotRestored(name, before.get(name), *value),)
            for endpoint in situation.chosen.endpoints:
                model = (endpoint.adapter, endpoint.medium, endpoint.model)
                is_same_model = model == (disk.adapter, disk.medium, disk.model)
                if is_same_model and endpoint.target != disk.target:
                    result.alike += (endpoint.target,)
            results.append(result)
    return results


def _make_writing_probe(
    file: Subject | None, request: AutotuneRequest
) -> Callable[[Subject, Workload], ProbeOutcome] | None:
    """Return a function that probes with a bulk writer, or None if nothing may be written.

    ``file`` is the disk with a scratch file as its device, if it has one.
    """
    if file is not None:
        place = file.endpoint

        def probe_file(ready: Subject, workload: Workload) -> ProbeOutcome:
            # Checked as the disk, and written to as the file.
            target = replace(ready, endpoint=place)
            check_idle = partial(running.find_disturbance, ready)
            return running.probe_subject(target, workload, write=True, prepare=check_idle)

        return probe_file
    if request.destructive:
        return lambda ready, workload: running.probe_guarded(ready, workload, request.targets)
    return None


def _make_records(context: Context, done: AutotuneResult) -> Iterator[Record]:
    machine, profile = done.situation.machine, done.situation.profile.name
    origin = (context.clock(), COMMAND, machine.kernel, machine.boot_id, profile)
    written = () if done.rules is None else done.rules.written
    rules = {rule.target: rule.file for rule in written}
    for disk in done.disks:
        if disk.result is not None and disk.counts:
            yield Record(
                *origin,
                disk.result.target,
                disk.result.id,
                disk.result,
                settings=tuple(disk.better),
                rule=rules.get(disk.target),
                search=tournaments.make_stored_search(disk),
            )
