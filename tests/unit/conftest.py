"""Fixtures that several unit tests share."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.elsewhere import keep_state_in
from tests.unit.site_folder import SiteFolder

settings.register_profile("untimed", deadline=None)  # a loaded machine proves nothing
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _state_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_state_in(tmp_path / "machine", monkeypatch)


@pytest.fixture
def site(tmp_path: Path) -> SiteFolder:
    """Return an empty site folder."""
    return SiteFolder(tmp_path / "etc")
