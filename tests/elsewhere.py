"""hbatune's own state, kept in a test's folder: that of the machine the tests run on stays out."""

from pathlib import Path

import pytest

from hbatune.act.paths import Paths
from hbatune.policy import library


def keep_state_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every path below hbatune's state and run folders lie below this one."""
    own_paths = Paths.run, Paths.state
    for place in (Paths, library):
        for name, path in list(vars(place).items()):
            if isinstance(path, Path) and any(map(path.is_relative_to, own_paths)):
                monkeypatch.setattr(place, name, folder / path.relative_to("/"))
