"""Queue depths that a driver has put back without an event: found by a cheap look now and then."""

from collections.abc import Callable, Collection, Mapping

from hbatune.agent.orders import PassReport
from hbatune.facts.depths import DepthFiles
from hbatune.settings.table import QUEUE_DEPTH

EVERY = 5.0
"""Seconds between two looks: with the pass that follows, a depth is right again within 10 s."""
SOON = 0.25
"""Seconds between two looks while a controller comes back from a reset."""
RETURN = 15.0
"""Seconds of that. The driver lets commands through first, upon which the kernel tells of the
reset, and puts depths back half a second later or more (drivers/scsi/mpi3mr/mpi3mr_os.c:
mpi3mr_fwevt_bh waits for MPI3_EVENT_WAIT_FOR_DEVICES_TO_REFRESH)."""
NEVER = float("inf")


class DepthWatch:
    """The disks whose driver puts depths back, and which of them were seen to be put back.

    ``due`` is the time of the next look on the daemon's clock. A depth that was found is found
    again only after a pass has set it anew: what a pass has left, it had a reason to leave.
    """

    def __init__(self, read: Callable[[Collection[str]], Mapping[str, int]] | None = None) -> None:
        self.due = NEVER
        self._read = DepthFiles().read if read is None else read
        self._own: dict[str, int] = {}
        self._found: set[str] = set()
        self._returned = 0.0

    def watch(self, report: PassReport, now: float) -> None:
        """Look at the disks of this pass from now on; one over a part leaves the others."""
        if report.subjects is None:
            return
        part = set() if report.whole else {each.target for each in report.subjects.disks}
        others = {} if report.whole else self._own
        kept = {target: own for target, own in others.items() if target not in part}
        self._own = {**kept, **report.resettable}
        self._found -= {each.target for each in report.written if each.setting == QUEUE_DEPTH}
        self._put_off(now)
        if self._own and now < self._returned:
            self.due = now  # the pass may have been too early, and may have taken a while

    def hurry(self, now: float) -> None:
        """Look more often for a while: a controller was reset."""
        self._returned = now + RETURN
        if self._own:
            self.due = now

    def stop(self) -> None:
        """Look at nothing any more."""
        self._own, self._found, self.due = {}, set(), NEVER

    def look(self, now: float) -> tuple[str, ...]:
        """Return the disks whose depth was put back since it was last set."""
        self._put_off(now)
        depths = self._read(self._own.keys())
        back = {target for target, depth in depths.items() if depth == self._own[target]}
        new = back - self._found
        self._found = back
        return tuple(sorted(new))

    def _put_off(self, now: float) -> None:
        pause = SOON if now < self._returned else EVERY
        self.due = now + pause if self._own else NEVER
