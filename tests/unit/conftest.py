"""Fixtures that several unit tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

from hbatune.act.paths import Paths
from tests.elsewhere import keep_state_in
from tests.unit.site_folder import SiteFolder

settings.register_profile("untimed", deadline=None)  # a loaded machine proves nothing
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _state_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_state_in(tmp_path / "machine", monkeypatch)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SiteFolder:
    """Return an empty site folder, which commands and operations use instead of /etc/hbatune."""
    folder = SiteFolder(tmp_path / "etc")
    for module in ("policy.config", "policy.vendors", "operations.boot_files"):
        name = f"hbatune.{module}.installed_library"
        monkeypatch.setattr(name, lambda: folder.library)
    return folder


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the files that `status` reads into an empty directory."""
    for name in ("status", "history", "daemon_lock", "daemon_lock_spare"):
        monkeypatch.setattr(Paths, name, tmp_path / name)
