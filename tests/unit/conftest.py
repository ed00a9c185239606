"""Fixtures that several unit tests share."""

from pathlib import Path

import pytest

from tests.unit.policy_site import SiteFolder


@pytest.fixture
def site(tmp_path: Path) -> SiteFolder:
    """Return an empty site folder."""
    return SiteFolder(tmp_path / "etc")
