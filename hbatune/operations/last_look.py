"""The results of earlier passes, and partial scans that use them.

A partial scan reads only the disks of an event, and takes the other facts from earlier passes of
the same process.
"""

import gc
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from hbatune.act.files import Signature
from hbatune.act.kept_journal import KeptJournal
from hbatune.act.writer import list_baseline_files
from hbatune.facts.ids import is_former
from hbatune.facts.machine import Scope, gather_machine
from hbatune.facts.model import Endpoint, Machine
from hbatune.facts.part import InsufficientFactsError, KnownMachine
from hbatune.operations.situation import (
    PartialScan,
    ScanMeans,
    Situation,
    list_needed_settings,
    make_situation,
    map_stuck_disks,
)
from hbatune.plan.joint_limits import sum_beyond_defaults
from hbatune.plan.rows import Plan, Row, State
from hbatune.policy import budget
from hbatune.policy.config import Config, UnmatchedName
from hbatune.policy.match import Matcher
from hbatune.policy.profile import Profile
from hbatune.workers import WorkerPool


class MachineCache:
    """The machine's state after the last pass. Mutable, and empty before the first pass.

    ``journal`` is the journal at this path. ``configured`` is the signature of the latest
    configuration in which the profile was active. ``unmatched`` are the names in [site] that match
    nothing on the machine. A worker stays ready between two passes.
    """

    def __init__(self, journal: Path) -> None:
        self.machine: KnownMachine | None = None
        self.journal = KeptJournal(journal)
        self.configured: Signature = None
        self.unmatched: tuple[UnmatchedName, ...] = ()
        self._requests: dict[str, int] = {}
        self._requested = 0
        self._unreadable: dict[str, int] = {}
        self._matcher: Matcher | None = None
        self._worker_pool = WorkerPool()
        self._worn = False

    @property
    def unreadable(self) -> int:
        """The number of settings that could not be read."""
        return sum(self._unreadable.values())

    def matcher(self, profile: Profile) -> Matcher:
        """Return the matcher for this profile, which caches results between two passes."""
        if self._matcher is None or self._matcher.profile is not profile:
            self._matcher = Matcher(profile)
        return self._matcher

    @contextmanager
    def workers(self) -> Iterator[WorkerPool]:
        """Yield the worker pool; on exit, all but one of its workers end."""
        try:
            yield self._worker_pool
        finally:
            self._worker_pool.close(but=1)

    def renew_worker(self) -> None:
        """Replace the worker after a full scan.

        For an idle process: a new worker shares all memory with it, the old one has made copies.
        """
        if self._worn:
            # Freeze the objects, since a garbage collection would copy all their memory.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._worker_pool.close()
            self._worker_pool.prepare(1)
            self._worn = False

    def close(self) -> None:
        """End the worker that stays ready."""
        self._worker_pool.close()

    def requests_without(self, ids: Iterable[str]) -> int:
        """Return the memory of other disks' requests beyond the kernel's defaults, in bytes."""
        return self._requested - sum(self._requests.get(id, 0) for id in ids)

    def siblings(self, part: Machine) -> tuple[Endpoint, ...]:
        """Return the LUNs outside the part that share a SCSI target with one of its disks."""
        machine, present = self.machine, {endpoint.target for endpoint in part.endpoints}
        if machine is None:
            return ()
        targets = {disk.address.rpartition(":")[0] for disk in part.endpoints if disk.address}
        luns = (lun for target in sorted(targets) for lun in machine.of_scsi_target(target))
        return tuple(lun for lun in luns if lun.target not in present)

    def take_whole(
        self, machine: Machine, plan: Plan, unmatched: tuple[UnmatchedName, ...]
    ) -> None:
        """Store the results of a full pass."""
        self.machine = KnownMachine(machine)
        self.unmatched = unmatched
        self._requests, self._unreadable, self._requested = {}, {}, 0
        self._count_plan(machine, plan)
        self._worn = True

    def take_part(self, part: Machine, plan: Plan, names: Iterable[str]) -> None:
        """Store the results of a partial pass, which was made for the disks with these names."""
        machine = self.machine
        assert machine is not None
        present = {endpoint.target for endpoint in part.endpoints}
        removed = [name for name in names if name not in present]
        before = (machine.get(name) for name in (*present, *removed))
        for id in [endpoint.id for endpoint in before if endpoint is not None]:
            self._requested -= self._requests.pop(id, 0)
            self._unreadable.pop(id, None)
        machine.update(part, removed)
        self._count_plan(part, plan)

    def _count_plan(self, machine: Machine, plan: Plan) -> None:
        rows: dict[str, list[Row]] = {}
        for row in plan.rows:
            rows.setdefault(row.id, []).append(row)
            if row.state is State.UNREADABLE:
                self._unreadable[row.id] = self._unreadable.get(row.id, 0) + 1
        sizes = sum_beyond_defaults(machine, rows)
        self._requests |= sizes
        self._requested += sum(sizes.values())
        for disk in plan.left_alone:
            if disk.unread:
                self._unreadable.setdefault(disk.id, 1)


def scan_disks(
    config: Config, profile: Profile, names: Collection[str], last: MachineCache, means: ScanMeans
) -> Situation | None:
    """Read the disks with these kernel names, and return the situation of these disks only.

    ``names`` may include SCSI hosts. LUNs that share the budget of an array are read as well.
    Returns None if the ``last`` passes do not have enough facts. The part is not stored.
    """
    cached = last.machine
    if cached is None:
        return None
    last.journal.refresh(lambda: cached.machine)
    # Includes the files that their writes may reset, so the baselines need no second read.
    settings = list_needed_settings(profile, config.site, last.journal.settings)
    attributes = list_baseline_files(settings)

    def gather(names: Collection[str]) -> Machine:
        return gather_machine(
            attributes,
            Scope(names, cached),
            deadline=config.act.deadline_seconds,
            avoid=map_stuck_disks(means.stuck),
            worker_pool=means.worker_pool,
        )

    try:
        part = gather(names)
        if config.site.array and any(map(budget.is_shared, part.endpoints)):
            shared = filter(budget.is_shared, cached.machine.endpoints)
            part = gather(dict.fromkeys((*names, *(endpoint.target for endpoint in shared))))
    except InsufficientFactsError:
        return None
    ids = [endpoint.id for endpoint in part.endpoints]
    situation = make_situation(config, profile, part, (), means, last.journal.part(ids))
    if any(map(is_former, (*situation.rollbacks.ids, *situation.rollbacks.lifted))):
        return None  # only a full scan can resolve these ids
    return replace(situation, part=PartialScan(last.requests_without(ids), last.matcher(profile)))
