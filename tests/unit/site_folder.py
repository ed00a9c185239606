"""A site's folder of rules for tests."""

from pathlib import Path

from hbatune.policy.library import Library, load_profile
from hbatune.policy.profile import Profile
from hbatune.shipped import find_shipped

NOMERGES_PROFILE = """
title = "test"
[[rule]]
name = "merges"
setting = "nomerges"
value = 1
because = "of this"
source = "site"
"""
"""A profile that sets one thing, for a test."""


class SiteFolder:
    """An ``/etc/hbatune`` of its own; ``put`` writes files into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        stored = root.with_name("stored-rules")
        self.library = Library(shipped=find_shipped("rules"), site=root, stored=stored)

    def put(self, name: str, text: str | bytes) -> Path:
        """Write ``text`` to the file ``name``, with the folders above it."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def load(self, profile: str = "oltp") -> Profile:
        """Return a profile as this site would get it."""
        return load_profile(profile, self.library)
