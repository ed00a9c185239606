"""Needs of a load, for tests of sizing."""

from collections.abc import Callable

import pytest

from hbatune.shipped import find_shipped
from hbatune.sizing.needs import Needs, WantedLoad, find_needs, load_sizing, make_load
from tests.unit.site_folder import SiteFolder

Find = Callable[..., Needs]


FIGURES = load_sizing(find_shipped("rules"))


@pytest.fixture
def needs(site: SiteFolder) -> Find:
    def find(load: WantedLoad, headroom: float = 0.0) -> Needs:
        return find_needs(load, headroom, site.library.yardsticks(), FIGURES)

    return find


def random(
    iops: float, *, reads: int = 100, block: int = 4096, p99: float | None = None
) -> WantedLoad:
    return make_load(iops, None, block, reads, p99)
