"""A site's folder of rules for tests, and what the settings allow."""

from collections.abc import Callable, Mapping
from pathlib import Path

from hbatune.facts.model import TargetKind
from hbatune.policy.load import Library, load_profile
from hbatune.policy.model import Profile
from hbatune.settings.table import SETTINGS, kind_of
from hbatune.shipped import shipped


def _whole(low: int, high: int) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        fine = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if fine else f"an integer {low} to {high}"

    return check


def _scheduler(value: object) -> str | None:
    names = ("none", "mq-deadline", "kyber", "bfq")
    return None if value in names else f"one of {', '.join(names)}"


CHECKS: Mapping[str, Callable[[object], str | None]] = {
    "scheduler": _scheduler,
    "nr_requests": _whole(4, 2048),
    "queue_depth": _whole(1, 4096),
    "read_ahead_kb": _whole(0, 1 << 20),
    **{name: SETTINGS[name].check for name in SETTINGS if kind_of(name) is not TargetKind.ENDPOINT},
}


class SiteFolder:
    """An ``/etc/hbatune`` of its own; ``put`` writes files into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.library = Library(shipped=shipped("rules"), site=root)

    def put(self, name: str, text: str | bytes) -> Path:
        """Write ``text`` to the file ``name``, with the folders above it."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def load(self, profile: str = "oltp") -> Profile:
        """Return a profile as this site would get it."""
        return load_profile(profile, self.library, CHECKS)
