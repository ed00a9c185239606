"""Needs of a load, for tests of sizing."""

from collections.abc import Callable

from msgspec.structs import replace

from hbatune.policy.library import SIZING, load_cited
from hbatune.shipped import find_shipped
from hbatune.sizing.needs import Needs, SizingFigures, WantedLoad, make_load

Find = Callable[..., Needs]


FIGURES: SizingFigures = load_cited(find_shipped("rules") / SIZING, SizingFigures)


def random(
    iops: float,
    *,
    reads: int = 100,
    block: int = 4096,
    p99: float | None = None,
    hdd_iops: float | None = None,
) -> WantedLoad:
    return replace(make_load(iops, None, block, reads, p99), hdd_iops=hdd_iops)
