"""The configuration in force: the newest one without a mistake.

A mistake made while the daemon runs must not stop it, and must not go unreported.
"""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile

Signature = tuple[tuple[str, int, int, int, int], ...]
"""Of every file: path, inode, size, and the times of its last change and status change in ns."""


class Policy(Struct, frozen=True):
    """A configuration and its active profile, None where none is active."""

    config: Config
    profile: Profile | None


class LastGoodConfiguration:
    """The last configuration without a mistake; ``mistake`` is the one in the files now, if any.

    Raises as ``load`` does where the first reading fails.
    """

    def __init__(self, site: Path, load: Callable[[], Policy]) -> None:
        self._site, self._load = site, load
        # Before the reading: a change during it is then found at the next look.
        self._seen = signature(site)
        self.policy = load()
        self.mistake: UsageError | None = None

    def refresh(self, *, force: bool = False) -> bool:
        """Read again where a file has changed, or in any case with ``force``.

        Return whether there is another policy now.
        """
        seen = signature(self._site)
        if seen == self._seen and not force:
            return False
        # Also for a mistake: it is reported once, and not read again before the files change.
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
    """Return a value that changes whenever a file below the site's folder does."""
    found = []
    for folder, _, names in sorted(os.walk(site)):
        for name in ("", *sorted(names)):
            path = os.path.join(folder, name)
            try:
                status = os.stat(path)
            except OSError:
                continue  # removed since the folder was listed
            times = status.st_mtime_ns, status.st_ctime_ns
            found.append((path, status.st_ino, status.st_size, *times))
    return tuple(found)
