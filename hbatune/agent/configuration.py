"""The configuration in force: the newest without a mistake.

A mistake made while the daemon runs must not stop it, and must not be passed over in silence.
"""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.policy.config import Config
from hbatune.policy.model import Profile

Signature = tuple[tuple[str, int, int, int, int], ...]
"""Of every file: its path, inode, size, and the times of change in ns, of its rights as well."""


class Policy(Struct, frozen=True):
    """A configuration and its active profile, None where none is active."""

    config: Config
    profile: Profile | None


class LastGoodConfiguration:
    """What was read last without a mistake; ``mistake`` is why what is there now is not in force.

    Raises what ``load`` raises where the first reading fails.
    """

    def __init__(self, site: Path, load: Callable[[], Policy]) -> None:
        self._site, self._load = site, load
        self._seen = signature(site)
        self.policy = load()
        self.mistake: UsageError | None = None

    def refresh(self, *, force: bool = False) -> bool:
        """Read again where a file has changed, or in any case where that is asked for.

        Return whether there is another policy now.
        """
        seen = signature(self._site)
        if seen == self._seen and not force:
            return False
        self._seen = seen
        try:
            policy = self._load()
        except UsageError as error:
            self.mistake = error
            return False
        self.mistake = None
        changed = policy != self.policy
        self.policy = policy
        return changed


def signature(site: Path) -> Signature:
    """Return what changes when anything below the site's folder does."""
    found = []
    for folder, _, names in sorted(os.walk(site)):
        for name in ("", *sorted(names)):
            path = os.path.join(folder, name)
            try:
                status = os.stat(path)
            except OSError:
                continue
            times = status.st_mtime_ns, status.st_ctime_ns
            found.append((path, status.st_ino, status.st_size, *times))
    return tuple(found)
