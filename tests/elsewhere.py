"""hbatune's own state, kept in a test's folder: that of the machine the tests run on stays out."""

from pathlib import Path

import pytest

from hbatune.act import paths
from hbatune.policy import library


def keep_state_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every path below hbatune's state and run folders lie below this one."""
    own_paths = paths.RUN, paths.STATE
    for module in (paths, library):
        for name, path in vars(module).items():
            if isinstance(path, Path) and any(map(path.is_relative_to, own_paths)):
                monkeypatch.setattr(module, name, folder / path.relative_to("/"))
