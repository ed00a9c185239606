"""Results of earlier passes, and a look at a part of the machine with their help.

What the last passes of one process have found: the next one need not look at it again.

Looks at a part of the machine: the disks of an event, with what earlier looks have found.
"""

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from hbatune.act.files import Signature
from hbatune.act.kept_journal import KeptJournal
from hbatune.act.lock import Claim
from hbatune.act.paths import Paths
from hbatune.act.writer import baseline_files
from hbatune.facts.ids import is_former
from hbatune.facts.model import Endpoint, Machine
from hbatune.facts.part import KnownMachine, gather_part
from hbatune.operations.situation import Situation, avoided, made_situation, wanted_settings
from hbatune.plan.joint_limits import beyond_defaults
from hbatune.plan.rows import Plan, Row, State
from hbatune.policy import budget
from hbatune.policy.config import Config, Unmatched
from hbatune.policy.match import Matcher
from hbatune.policy.profile import Profile
from hbatune.workers import WorkerPool


class MachineCache:
    """The machine as the last passes have found it. Mutable, and empty before the first of them.

    ``journal`` is the one at this path. ``configured`` is the signature of the configuration in
    which the profile was last seen to be the active one. ``unmatched`` are the names in [site] that
    match nothing on the machine. A worker stays ready between two passes.
    """

    def __init__(self, journal: Path) -> None:
        self.machine: KnownMachine | None = None
        self.journal = KeptJournal(journal)
        self.configured: Signature = None
        self.unmatched: tuple[Unmatched, ...] = ()
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
        """Return what matches this profile, and remembers from one look to the next."""
        if self._matcher is None or self._matcher.profile is not profile:
            self._matcher = Matcher(profile)
        return self._matcher

    @contextmanager
    def workers(self) -> Iterator[WorkerPool]:
        """Enter to get the worker pool; all but one of its workers end on leaving."""
        try:
            yield self._worker_pool
        finally:
            self._worker_pool.close(but=1)

    def renew_worker(self) -> None:
        """Put a new worker in the place of one that took part in a look at everything.

        For an idle process: a new worker shares all memory with it, and that one has made copies.
        """
        if self._worn:
            # Out of the way of collections, which would make copies of everything.
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
        """Return the bytes beyond the kernel's defaults that requests of all other disks take."""
        return self._requested - sum(self._requests.get(id, 0) for id in ids)

    def siblings(self, part: Machine) -> tuple[Endpoint, ...]:
        """Return the other LUNs of the SCSI targets of a part's disks."""
        known, there = self.machine, {endpoint.target for endpoint in part.endpoints}
        if known is None:
            return ()
        targets = {
            endpoint.address.rpartition(":")[0] for endpoint in part.endpoints if endpoint.address
        }
        luns = (each for target in sorted(targets) for each in known.of_scsi_target(target))
        return tuple(lun for lun in luns if lun.target not in there)

    def take_whole(self, machine: Machine, plan: Plan, unmatched: tuple[Unmatched, ...]) -> None:
        """Remember a pass over everything."""
        self.machine = KnownMachine(machine)
        self.unmatched = unmatched
        self._requests, self._unreadable, self._requested = {}, {}, 0
        self._count(machine, plan)
        self._worn = True

    def take_part(self, part: Machine, plan: Plan, names: Iterable[str]) -> None:
        """Remember a pass over a part, which was made for the disks with these names."""
        known = self.machine
        assert known is not None
        there = {endpoint.target for endpoint in part.endpoints}
        gone = [name for name in names if name not in there]
        before = (known.get(name) for name in (*there, *gone))
        for id in [each.id for each in before if each is not None]:
            self._requested -= self._requests.pop(id, 0)
            self._unreadable.pop(id, None)
        known.update(part, gone)
        self._count(part, plan)

    def _count(self, machine: Machine, plan: Plan) -> None:
        rows: dict[str, list[Row]] = {}
        for row in plan.rows:
            rows.setdefault(row.id, []).append(row)
        found: Mapping[str, int] = beyond_defaults(machine, rows)
        self._requests |= found
        self._requested += sum(found.values())
        for row in plan.rows:
            if row.state is State.UNREADABLE:
                self._unreadable[row.id] = self._unreadable.get(row.id, 0) + 1
        for disk in plan.left_alone:
            if disk.unread:
                self._unreadable.setdefault(disk.id, 1)


def look_at_part(
    config: Config,
    profile: Profile,
    names: Collection[str],
    last: MachineCache,
    *,
    stuck: Iterable[Claim],
    worker_pool: WorkerPool | None = None,
    paths: Paths,
) -> Situation | None:
    """Read the disks with these kernel names, and return the situation of them alone.

    ``names`` may be those of SCSI hosts as well. LUNs that share the budget of an array go along.
    None where the ``last`` looks do not suffice for that. The part itself is not remembered.
    """
    known, waiting = last.machine, tuple(stuck)
    if known is None:
        return None
    last.journal.refresh(lambda: known.machine)
    # With what their writes may reset, whose baselines are then not read once more.
    attributes = baseline_files(wanted_settings(profile, config.site, last.journal.settings))
    found = _part(known, names, config, attributes, waiting, worker_pool)
    if found is not None and config.site.array and any(map(budget.is_shared, found.endpoints)):
        shared = (
            endpoint.target for endpoint in known.machine.endpoints if budget.is_shared(endpoint)
        )
        every = dict.fromkeys((*names, *shared))
        found = _part(known, every, config, attributes, waiting, worker_pool)
    if found is None:
        return None
    ids = [endpoint.id for endpoint in found.endpoints]
    situation = made_situation(config, profile, found, (), waiting, paths, last.journal.part(ids))
    if any(map(is_former, (*situation.rollbacks.ids, *situation.rollbacks.lifted))):
        return None  # only the whole machine tells what these mean
    rest, matcher = last.requests_without(ids), last.matcher(profile)
    return replace(situation, rest=rest, matcher=matcher)


def _part(
    known: KnownMachine,
    names: Iterable[str],
    config: Config,
    attributes: Sequence[str],
    waiting: Iterable[Claim],
    worker_pool: WorkerPool | None,
) -> Machine | None:
    return gather_part(
        known,
        names,
        attributes,
        deadline=config.act.deadline_seconds,
        avoid=avoided(waiting),
        worker_pool=worker_pool,
    )
