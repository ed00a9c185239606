"""When to stop fighting: what somebody keeps setting back is left, and that is said. Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

WINDOW = 600.0
"""Seconds in which a setting is put right twice; set back once more, it is left."""
TWICE = 2
AUDITS = 2.5
"""Audits that the window has at least: two repairs and the look that finds the third time."""

Key = tuple[str, str]
"""A target's id and a setting."""


class Damping(Struct, frozen=True):
    """When each setting was last put right, in seconds of a monotonic clock, and what was left.

    What lies further back than the window is forgotten, so that it stays as small as the trouble.
    """

    times: Mapping[Key, tuple[float, ...]] = {}
    left: frozenset[Key] = frozenset()
    window: float = WINDOW

    @classmethod
    def every(cls, audit: float) -> "Damping":
        """Return one for audits that are so many seconds apart."""
        return cls(window=max(WINDOW, AUDITS * audit))

    def put_right(self, keys: Iterable[Key], now: float) -> "Damping":
        """Return it with these settings put right now."""
        recent = self._recent(now)
        for key in keys:
            recent[key] = (*recent.get(key, ()), now)
        return replace(self, times=recent)

    def fought(self, now: float) -> frozenset[Key]:
        """Return what is not to be put right once more should it have been set back."""
        return frozenset(key for key, times in self._recent(now).items() if len(times) >= TWICE)

    def leave(self, keys: Iterable[Key]) -> "Damping":
        """Return it with these settings left for good."""
        return replace(self, left=self.left | frozenset(keys))

    def _recent(self, now: float) -> dict[Key, tuple[float, ...]]:
        found = {
            key: tuple(time for time in times if now - time < self.window)
            for key, times in self.times.items()
        }
        return {key: times for key, times in found.items() if times}
