"""What the last passes of one process have found: the next one need not look at it again."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hbatune.act.files import Signature
from hbatune.act.kept_journal import KeptJournal
from hbatune.facts.model import Endpoint, Machine
from hbatune.facts.part import KnownMachine
from hbatune.plan.memory import beyond_defaults
from hbatune.plan.rows import Plan, Row, State
from hbatune.policy.config import Unmatched
from hbatune.policy.match import Matcher
from hbatune.policy.model import Profile
from hbatune.workers import WorkerPool


class LastLook:
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
        known, there = self.machine, {each.target for each in part.endpoints}
        if known is None:
            return ()
        targets = {each.address.rpartition(":")[0] for each in part.endpoints if each.address}
        luns = (each for target in sorted(targets) for each in known.of_scsi_target(target))
        return tuple(each for each in luns if each.target not in there)

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
        there = {each.target for each in part.endpoints}
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
