"""Finds the best depth and the best settings of disks by search, and keeps nothing unless asked.

One disk for each adapter, medium and model is searched, and stands for the others. Everything goes
through the journal, under the lock; whatever happens, the values that were there come back. With
``write``, what is better becomes a rule of the site, which `apply` then follows.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.act import claims, rollback_record
from hbatune.act.means import Means
from hbatune.act.trial import Experiment
from hbatune.errors import UsageError
from hbatune.facts.model import Adapter, Endpoint
from hbatune.operations.context import Context, Phase, Stop
from hbatune.operations.disk_probes import SearchMeans
from hbatune.operations.disk_search import (
    TRIED,
    DiskSearch,
    estimate_probes,
    estimate_seconds,
)
from hbatune.operations.measured_rules import MeasuredRules, require_writable, write_rules
from hbatune.operations.notes import Leftovers, SearchesAhead, UnmatchedNames
from hbatune.operations.probe import keep_records
from hbatune.operations.situation import Situation, resolved, survey
from hbatune.operations.verify import mount_point
from hbatune.policy.chosen import configuration, configuration_file
from hbatune.policy.match import SiteNames, objective, traits
from hbatune.probe import run as running
from hbatune.probe.history import Record, record
from hbatune.probe.model import ProbeOutcome, Skip, Skipped, Subject, Workload
from hbatune.probe.scratch import scratch_file
from hbatune.probe.selection import prefer, probe_refusal, subjects_of
from hbatune.probe.workloads import short_form
from hbatune.search.disk import DiskSearchResult, End, searched
from hbatune.workers import WorkerPool

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
        return saved and bool(self.disks) and all(each.whole for each in self.disks)


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
        stuck = claims.settle(context.paths.claims, patience=context.patience)
        situation = survey(
            *(asked.profile, asked.targets),
            stuck=stuck,
            worker_pool=worker_pool,
            paths=context.paths,
            more=TRIED,
        )
        context.reporter.note(
            Leftovers(situation.journal, situation.rollbacks, situation.machine, situation.stuck)
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
    known = (each.id for each in situation.machine.endpoints if each.target == skipped.target)
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
            result.alike = _alike(situation, subject)
            found.append(result)
    return found


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
    on = next((each for each in subjects if mount in each.endpoint.mounts), None)
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
    known = (each for each in situation.machine.adapters if each.target == endpoint.adapter)
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
