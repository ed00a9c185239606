"""What every writer needs: the files that it keeps, its workers, and how long a write may take."""

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from hbatune.act import journal
from hbatune.act.chain import Chain
from hbatune.act.journal import Journal
from hbatune.act.rollback_record import UNGUARDED, RollbackGuard
from hbatune.settings.setting import Attributes
from hbatune.workers import WorkerPool


class Means(Struct, frozen=True):
    """The means to write: files, number of workers, and the deadline of each write in seconds.

    The workers are taken from the ``worker_pool``, where there is one. ``save`` makes the journal
    durable, and keeps room for its later saves if that is asked for; without it, ``journal`` is
    written. ``read`` are attributes, by sysfs directory, that were read a moment ago: baselines
    that are among them are not read once more. Of ``unmarked`` disks, by kernel name, nothing is
    saved in udev's database. Before each write the ``guard`` looks for a rollback.
    """

    journal: Path
    claims: Path
    spent: Path
    workers: int
    deadline: float
    stop: Callable[[], bool] = lambda: False
    progress: Callable[[Chain], None] = lambda chain: None
    worker_pool: WorkerPool | None = None
    save: Callable[[Journal, bool], None] | None = None
    read: Mapping[str, Attributes] = {}
    unmarked: frozenset[str] = frozenset()
    guard: RollbackGuard = UNGUARDED

    def save_journal(
        self, recorded: Journal, *, keep_room: bool = False, over: bytes | None = None
    ) -> bytes | None:
        """Make the journal durable; JournalError where that fails.

        Returns what may be given as ``over`` when it is saved again under the same lock.
        """
        if self.save is None:
            return journal.save(self.journal, recorded, keep_room=keep_room, over=over)
        self.save(recorded, keep_room)
        return None
