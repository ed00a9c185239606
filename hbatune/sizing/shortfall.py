"""Resources that a host lacks for a load, and the depth of LUNs on a shared array.

Where a host has less than a load asks for: drives, links, paths and RAID adapters. Pure.

How deep each LUN may be for hosts that share an array's ports (D2-2 to D2-5, D2-7). Pure.

The arithmetic is that of the budgets that `apply` follows where a site describes its array.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.ids import stable_part
from hbatune.facts.model import Adapter, Endpoint, Kind, Machine, Medium, Protocol, Storage
from hbatune.policy.budget import DepthBudget, LunLimit, PortShare
from hbatune.policy.library import ArrayModel
from hbatune.probe.comparison import link_ceiling
from hbatune.sizing.needs import MediumNeed, Needs

LINK = "D0-10"
"""The source of comparing a link with what it could be."""

_CARRIES = "D4-9"


class Resource(StrEnum):
    """What a host may have too little of."""

    DRIVES = "drives"
    PATHS = "paths"
    THROUGHPUT = "GB/s"
    LINK = "link"
    PAIRS = "pairs of adapters"


class ResourceComparison(Struct, frozen=True):
    """What a host has of something, and what is asked for; ``on`` is its medium or adapter.

    ``enough`` is None where no document has a figure.
    """

    what: Resource
    on: str
    has: float
    needs: float | None
    enough: bool | None
    source: str


def compare_with(needs: Needs, machine: Machine) -> tuple[ResourceComparison, ...]:
    """Return what the host has beside what is asked for, of everything that it has any of."""
    return (*_drives(needs, machine), *_links(needs, machine), *_pairs(needs, machine))


def carries(held: Sequence[ResourceComparison]) -> bool | None:
    """Return whether the host can carry the load, None where no document has a figure for it.

    One medium with enough drives and paths is enough, or one kind of RAID adapter, and links that
    carry it; that a link could be faster is worth knowing and does not count.
    """
    places: dict[str, list[bool | None]] = {}
    for each in held:
        if each.what in (Resource.DRIVES, Resource.PATHS, Resource.PAIRS):
            places.setdefault(each.on, []).append(each.enough)
    if any(each.enough is False for each in held if each.what is Resource.THROUGHPUT):
        return False
    if any(all(found) for found in places.values()):
        return True
    return False if any(False in found for found in places.values()) else None


def array_adapters(machine: Machine) -> int:
    """Return the number of adapters with LUNs of shared arrays."""
    return len({array.adapter for array in _on_arrays(machine)} - {None})


def array_luns(machine: Machine) -> int:
    """Return the number of LUNs on shared arrays, however many paths each has."""
    return len({array.map or stable_part(array.id) for array in _on_arrays(machine)})


def _on_arrays(machine: Machine) -> Iterator[Endpoint]:
    for endpoint in machine.endpoints:
        shared = (
            endpoint.protocol in (Protocol.FC, Protocol.ISCSI) or endpoint.storage is Storage.ARRAY
        )
        if shared and endpoint.kind is not Kind.MAP:
            yield endpoint


def _medium(endpoint: Endpoint) -> str | None:
    """Return the medium of a local drive as the figures call it, None where none is for it."""
    if endpoint.kind is Kind.MAP or endpoint.storage is not Storage.LOCAL:
        return None
    if endpoint.protocol is Protocol.NVME:
        return "nvme"
    flash = endpoint.medium is Medium.SSD
    known = endpoint.protocol in (Protocol.SAS, Protocol.SATA)
    return f"{endpoint.protocol} ssd" if flash and known else None


def _drives(needs: Needs, machine: Machine) -> Iterator[ResourceComparison]:
    for need in needs.media:
        drives = [endpoint for endpoint in machine.endpoints if _medium(endpoint) == need.medium]
        # The paths of one drive are one drive.
        count = len({drive.map or stable_part(drive.id) + drive.target for drive in drives})
        if not count:
            continue
        enough = None if need.drives is None else count >= need.drives and need.met is not False
        yield ResourceComparison(
            Resource.DRIVES, need.medium, count, need.drives, enough, ", ".join(need.sources) or "-"
        )
        if need.paths > 1:
            yield _paths(need, drives)


def _paths(need: MediumNeed, drives: Sequence[Endpoint]) -> ResourceComparison:
    paths = len({(drive.adapter, drive.controller) for drive in drives})
    return ResourceComparison(
        Resource.PATHS, need.medium, paths, need.paths, paths >= need.paths, need.sources[-1]
    )


def _links(needs: Needs, machine: Machine) -> Iterator[ResourceComparison]:
    serving = {
        endpoint.adapter
        for endpoint in machine.endpoints
        if _medium(endpoint) or _is_volume(endpoint)
    }
    adapters = [
        adapter for adapter in machine.adapters if adapter.target in serving and adapter.link
    ]
    planned = needs.load.gb_per_s / (1 - needs.headroom)
    rates = [rate for adapter in adapters if (rate := _rate(adapter)) is not None]
    if rates:
        total = sum(rates)
        enough = total >= planned
        yield ResourceComparison(
            Resource.THROUGHPUT, "all links together", total, planned, enough, _CARRIES
        )
    yield from _slow(adapters)


def _slow(adapters: Iterable[Adapter]) -> Iterator[ResourceComparison]:
    for adapter in adapters:
        link = adapter.link
        if link is None or (now := link_ceiling(link)) is None:
            continue
        possible = link_ceiling(replace(link, speed=link.max_speed, width=link.max_width))
        if possible is not None and now < possible:
            yield ResourceComparison(Resource.LINK, adapter.target, now, possible, False, LINK)


def _rate(adapter: Adapter) -> float | None:
    return None if adapter.link is None else link_ceiling(adapter.link)


def _is_volume(endpoint: Endpoint) -> bool:
    return endpoint.protocol is Protocol.VOLUME


def _pairs(needs: Needs, machine: Machine) -> Iterator[ResourceComparison]:
    """Yield the pairs of the documents' own cards, for the RAID level that asks for the fewest."""
    for card in dict.fromkeys(each.card for each in needs.raid):
        own = [adapter for adapter in machine.adapters if adapter.document == card]
        gens = {None if each.link is None else each.link.generation for each in own}
        fitting = [e for e in needs.raid if e.card == card and e.gen in gens and e.advised]
        if own and fitting:
            least = min(fitting, key=lambda each: (each.used, each.level))
            pairs = len(own) / 2
            on = f"{card}, RAID {least.level}"
            enough = pairs >= least.pairs
            yield ResourceComparison(
                Resource.PAIRS, on, pairs, least.pairs, enough, least.sources[0]
            )


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
