"""Needs of a load, for tests of sizing."""

from collections.abc import Callable

from msgspec.structs import replace

from hbatune.shipped import find_shipped
from hbatune.sizing.needs import Needs, WantedLoad, load_sizing, make_load

Find = Callable[..., Needs]


FIGURES = load_sizing(find_shipped("rules"))


def random(
    iops: float,
    *,
    reads: int = 100,
    block: int = 4096,
    p99: float | None = None,
    hdd_iops: float | None = None,
) -> WantedLoad:
    return replace(make_load(iops, None, block, reads, p99), hdd_iops=hdd_iops)
