"""Fixtures of the room sizing: a function that finds the needs of a load."""

import pytest

from hbatune.sizing.needs import Needs, WantedLoad, find_needs
from tests.unit.site_folder import SiteFolder
from tests.unit.sizing.load_needs import FIGURES, Find


@pytest.fixture
def needs(site: SiteFolder) -> Find:
    def find(load: WantedLoad, headroom: float = 0.0) -> Needs:
        return find_needs(load, headroom, site.library.yardsticks(), FIGURES)

    return find
