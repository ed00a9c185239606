"""The active configuration: the latest valid one.

An invalid edit must not stop a running daemon, and must be reported. An upgrade may change the
settings of a source, so an invalid citation does not stop a start either.
"""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from hbatune.act import files
from hbatune.errors import UsageError
from hbatune.policy import rules, toml_files
from hbatune.policy.config import Config
from hbatune.policy.profile import Profile


class Policy(Struct, frozen=True):
    """A configuration and its active profile, or None if no profile is active."""

    config: Config
    profile: Profile | None


class LastGoodConfiguration:
    """The last valid configuration. ``mistake`` is the error in the current files, if any.

    ``doubts`` are the invalid citations at the start. Rules with these have no effect.
    Raises the exceptions of ``load`` if the first reading fails for another reason.
    """

    def __init__(self, site: Path, load: Callable[[rules.Doubts], Policy]) -> None:
        self._site, self._load = site, load
        # Before the reading, so the next refresh notices a change during it.
        self._signature = compute_signature(site)
        self.doubts: list[toml_files.PolicyError] = []
        self.policy = load(self.doubts)
        self.mistake: UsageError | None = None

    def refresh(self, *, force: bool = False) -> bool:
        """Read the files if one changed, or with ``force``; return whether the policy changed."""
        current = compute_signature(self._site)
        if current == self._signature and not force:
            return False
        # Also for an error: it is reported once, and the files are read again when they change.
        self._signature = current
        try:
            policy = self._load(None)
        except UsageError as error:
            self.mistake = error
            return False
        self.mistake, self.doubts = None, []
        changed, self.policy = policy != self.policy, policy
        return changed


def compute_signature(site: Path) -> tuple[tuple[str, files.Signature], ...]:
    """Return a value that changes whenever a file below the site's directory changes."""
    entries = []
    for folder, _, names in sorted(os.walk(site)):
        for name in ("", *sorted(names)):
            path = os.path.join(folder, name)
            entries.append((path, files.read_signature(path)))
    return tuple(entries)
