"""When to try again what could not be set: ever more seldom, and without end. Pure."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.agent.damping import Key
from hbatune.agent.orders import Change, Handled, Retry

LONGEST = 3600.0
"""Seconds between two tries at most, unless the audits themselves are further apart."""


class Failure(Struct, frozen=True):
    """When to try next, on the daemon's clock, and the same for people."""

    due: float
    retry: Retry


class Retries(Struct, frozen=True):
    """What could not be set. ``first`` is how many seconds pass until the second try."""

    first: float
    failures: Mapping[Key, Failure] = {}

    @classmethod
    def resumed(
        cls, first: float, changes: Iterable[Change], now: float, epoch: float
    ) -> "Retries":
        """Return what an earlier daemon was still trying, by the changes that it left open.

        ``now`` is the daemon's clock at ``epoch`` seconds since the epoch.
        """
        failures = {
            each.key: Failure(now + min(each.retry.next - epoch, max(first, LONGEST)), each.retry)
            for each in changes
            if each.retry is not None
        }
        return cls(first, failures)

    def due(self, now: float) -> frozenset[Key]:
        """Return what is to be tried now."""
        return frozenset(key for key, each in self.failures.items() if each.due <= now)

    def waiting(self, now: float) -> frozenset[Key]:
        """Return what is to be tried later."""
        return frozenset(key for key, each in self.failures.items() if each.due > now)

    def after(
        self, changes: Collection[Change], now: float, epoch: float, *, whole: bool
    ) -> "Retries":
        """Return it after a pass that made these changes, ``whole`` where it was over everything.

        What a whole pass does not speak of is as it should be, or gone.
        """
        spoken = {each.key for each in changes}
        failures = {key: each for key, each in self.failures.items() if not whole or key in spoken}
        for each in changes:
            if each.handled is Handled.FAILED:
                failures[each.key] = self._failed(failures.get(each.key), now, epoch)
            elif each.handled is Handled.WRITTEN:
                failures.pop(each.key, None)
        return replace(self, failures=failures)

    def dated(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Return the changes, those that are tried again with when."""
        return tuple(
            replace(each, retry=self.failures[each.key].retry)
            if each.handled in (Handled.FAILED, Handled.WAITING) and each.key in self.failures
            else each
            for each in changes
        )

    def _failed(self, before: Failure | None, now: float, epoch: float) -> Failure:
        tries = 1 if before is None else before.retry.tries + 1
        longest = max(self.first, LONGEST)
        # The doubled pause is past the longest long before the power could overflow.
        pause = min(self.first * 2.0 ** min(tries - 1, 32), longest)
        since = epoch if before is None else before.retry.since
        return Failure(now + pause, Retry(since, tries, epoch + pause))
