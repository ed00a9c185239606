"""How deep each LUN may be for hosts that share an array's ports (D2-2 to D2-5, D2-7). Pure.

The arithmetic is that of the budgets that `apply` follows where a site describes its array.
"""

import math
from enum import StrEnum

from msgspec import Struct

from hbatune.policy.budget import DepthBudget, LunLimit, PortShare
from hbatune.policy.load import ArrayModel


class Selector(StrEnum):
    """How multipath chooses a path: by turns over all, or one until it fails."""

    ROUND_ROBIN = "round-robin"
    QUEUE_LENGTH = "queue-length"
    SERVICE_TIME = "service-time"
    FAILOVER = "failover"

    @property
    def spreads(self) -> bool:
        """Whether all paths are used at once."""
        return self is not Selector.FAILOVER


class SharedArray(Struct, frozen=True):
    """An array's ports and the hosts that share them.

    Each of ``hosts`` has ``luns`` LUNs and ``hbas`` adapters, evenly on so many ``fabrics``; each
    adapter sees ``ports`` ports of the array that serve the LUNs, the same as others of its fabric.
    ``port_limit`` is what a port takes of all hosts together, ``lun_limit`` what a LUN takes, both
    None where nobody says. ``data_drives`` hold the data of each LUN; ``model`` is the make, where
    it is known.
    """

    hosts: int
    luns: int
    hbas: int
    ports: int
    selector: Selector
    fabrics: int = 1
    port_limit: int | None = None
    lun_limit: int | None = None
    model: ArrayModel | None = None
    data_drives: int = 0


class LunDepth(Struct, frozen=True):
    """The depth of each path to a LUN, with what it follows from.

    ``paths`` has a LUN; ``used`` of them carry I/O at once. ``through_port`` are the paths of one
    host through one port that may carry I/O. ``in_flight`` is what a LUN then has at most, from one
    host, and ``at_port`` what a port has of all of them. ``port_source`` is where the limit of the
    port is from: a paper, or None where it was given.
    """

    depth: int
    source: str
    paths: int
    used: int
    through_port: int
    budget: DepthBudget
    in_flight: int
    at_port: int
    port_source: str | None = None


def find_depth(array: SharedArray) -> LunDepth:
    """Return how deep each path to a LUN may be."""
    paths = array.hbas * array.ports
    used = paths if array.selector.spreads else 1
    # With one path at a time all LUNs may come to lie on one port, as after a failure.
    sharing = math.ceil(array.hbas / array.fabrics) if array.selector.spreads else 1
    through = array.luns * sharing
    limit = _port_limit(array)
    port = None if limit is None else PortShare(limit, array.hosts, through)
    budget = DepthBudget("", port, _lun_limit(array, used))
    return LunDepth(
        depth=budget.depth,
        source=budget.source,
        paths=paths,
        used=used,
        through_port=through,
        budget=budget,
        in_flight=budget.depth * used,
        at_port=budget.depth * through * array.hosts,
        port_source=array.model.port_source if array.model and array.port_limit is None else None,
    )


def _port_limit(array: SharedArray) -> int | None:
    if array.port_limit is not None or array.model is None:
        return array.port_limit
    return array.model.port_limit


def _lun_limit(array: SharedArray, used: int) -> LunLimit | None:
    if array.lun_limit is not None:
        return LunLimit(array.lun_limit, 0, 0, used, None)
    make = array.model
    if make is None or (make.per_data_drive and not array.data_drives):
        return None
    drives = array.data_drives if make.per_data_drive else 0
    return LunLimit(make.lun_depth, make.per_data_drive, drives, used, make.name)
