"""Compare a host with a load's needs, and calculate the depth of LUNs on a shared array. Pure.

The comparison covers drives, links, paths and RAID adapters. The depth of each LUN accounts for
all hosts that share an array's ports (D2-2 to D2-5, D2-7). Its arithmetic is the same as in the
budgets that `apply` uses if the configuration describes an array.
"""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.ids import extract_stable_part
from hbatune.facts.model import Endpoint, Kind, Machine, Medium, Protocol, Storage
from hbatune.policy.budget import DepthBudget, PortShare, compute_lun_limit, is_shared
from hbatune.policy.library import ArrayModel
from hbatune.probe.comparison import compute_link_ceiling
from hbatune.shipped import fill_message
from hbatune.sizing.needs import HDD, PCI_EXPRESS, LinkNeed, Needs

Answer = Literal["carries", "short", "unknown"]


class Resource(StrEnum):
    """A resource that a host may lack."""

    DRIVES = "drives"
    PATHS = "paths"
    THROUGHPUT = "GB/s"
    LINK = "link"
    PAIRS = "pairs of adapters"


class ResourceComparison(Struct, frozen=True):
    """The available and required amount of a resource; ``on`` is its medium, adapter or links.

    ``enough`` is None if no document has a figure.
    """

    what: Resource
    on: str
    has: float
    needs: float | None
    enough: bool | None
    source: str


def compare_host(needs: Needs, machine: Machine) -> tuple[ResourceComparison, ...]:
    """Compare the host with the needs, for each resource of which the host has any."""
    return (
        *_compare_drives(needs, machine),
        *_compare_links(needs, machine),
        *_compare_pairs(needs, machine),
    )


def evaluate_host(comparisons: Sequence[ResourceComparison]) -> Answer:
    """Return whether the host carries the load: unknown if no document has a figure for it.

    The host needs one medium with enough drives and paths, or enough RAID adapters of one type, and
    enough throughput of the links. A link below its maximum does not count.
    """
    places: dict[str, list[bool | None]] = {}
    for row in comparisons:
        if row.what is Resource.THROUGHPUT and row.enough is False:
            return "short"
        if row.what in (Resource.DRIVES, Resource.PATHS, Resource.PAIRS):
            places.setdefault(row.on, []).append(row.enough)
    if any(map(all, places.values())):
        return "carries"
    return "short" if False in chain.from_iterable(places.values()) else "unknown"


def count_array_parts(machine: Machine) -> tuple[int, int]:
    """Return the number of LUNs on shared arrays, regardless of their paths, and of adapters."""
    luns, adapters = set(), set()
    for endpoint in machine.endpoints:
        if endpoint.kind is not Kind.MAP and is_shared(endpoint):
            luns.add(endpoint.map or extract_stable_part(endpoint.id))
            adapters.add(endpoint.adapter)
    return len(luns), len(adapters - {None})


def _find_medium(endpoint: Endpoint) -> str | None:
    """Return the figures' name for the medium of a local drive, or None without figures."""
    if endpoint.kind is Kind.MAP or endpoint.storage is not Storage.LOCAL:
        return None
    if endpoint.medium is Medium.NVME:
        return "nvme"
    if endpoint.protocol not in (Protocol.SAS, Protocol.SATA):
        return None
    if endpoint.medium is Medium.HDD:
        return HDD
    return f"{endpoint.protocol} ssd" if endpoint.medium is Medium.SSD else None


def _compare_drives(needs: Needs, machine: Machine) -> Iterator[ResourceComparison]:
    for need in needs.media:
        medium, wanted = need.medium, need.drives
        drives, paths = set(), set()
        for drive in machine.endpoints:
            if _find_medium(drive) == medium:
                # The paths of one drive are one drive.
                drives.add(drive.map or extract_stable_part(drive.id) + drive.target)
                paths.add((drive.adapter, drive.controller))
        if not drives:
            continue
        met = True if needs.load.p99_ms is None else need.met
        enough = None if wanted is None else len(drives) >= wanted and met
        sources = ", ".join(need.sources) or "-"
        yield ResourceComparison(Resource.DRIVES, medium, len(drives), wanted, enough, sources)
        if need.paths > 1:
            enough, source = len(paths) >= need.paths, need.sources[-1]
            yield ResourceComparison(Resource.PATHS, medium, len(paths), need.paths, enough, source)


def _compare_links(needs: Needs, machine: Machine) -> Iterator[ResourceComparison]:
    serving, rates, slow_links, sources = set(), [], [], set()
    figures: dict[object, LinkNeed] = {(need.gen, need.width): need for need in needs.links}
    for endpoint in machine.endpoints:
        if _find_medium(endpoint) or endpoint.protocol is Protocol.VOLUME:
            serving.add(endpoint.adapter)
    for adapter in machine.adapters:
        link, target = adapter.link, adapter.target
        rate = compute_link_ceiling(link) if link and target in serving else None
        if link is None or rate is None:
            continue
        # A document's figure for such a link is lower than the maximum of PCI Express.
        figure = figures.get((link.generation, link.width))
        rates.append(rate if figure is None else figure.each)
        sources.add(PCI_EXPRESS if figure is None else figure.source)
        limit = compute_link_ceiling(replace(link, speed=link.max_speed, width=link.max_width))
        if limit is not None and rate < limit:
            slow = ResourceComparison(Resource.LINK, target, rate, limit, False, "D0-10")
            slow_links.append(slow)
    if rates:
        total, planned = sum(rates), needs.load.gb_per_s / (1 - needs.headroom)
        links, enough = fill_message("sizing", "all-links"), total >= planned
        cited = ", ".join(sorted(sources))
        yield ResourceComparison(Resource.THROUGHPUT, links, total, planned, enough, cited)
    yield from slow_links


def _compare_pairs(needs: Needs, machine: Machine) -> Iterator[ResourceComparison]:
    """Yield the pairs of the documents' cards, for the RAID level that needs the fewest."""
    for card in dict.fromkeys(need.card for need in needs.raid):
        links = [adapter.link for adapter in machine.adapters if adapter.document == card]
        gens = {link.generation for link in links if link is not None}
        advised = [need for need in needs.raid if need.card == card and need.advised]
        fitting = [need for need in advised if need.gen in gens]
        if fitting:
            need = min(fitting, key=lambda need: (need.used, need.level))
            name, pairs, source = f"{card}, RAID {need.level}", len(links) / 2, need.sources[0]
            enough = pairs >= need.pairs
            yield ResourceComparison(Resource.PAIRS, name, pairs, need.pairs, enough, source)


class Selector(StrEnum):
    """The path selection of multipath: rotate over all paths, or use one until it fails."""

    ROUND_ROBIN = "round-robin"
    QUEUE_LENGTH = "queue-length"
    SERVICE_TIME = "service-time"
    FAILOVER = "failover"

    @property
    def spreads(self) -> bool:
        """Whether all paths are used concurrently."""
        return self is not Selector.FAILOVER


class SharedArray(Struct, frozen=True):
    """An array's ports and the hosts that share them.

    Each of ``hosts`` has ``luns`` LUNs and ``hbas`` adapters, distributed evenly over ``fabrics``.
    Each adapter sees ``ports`` ports of the array that serve the LUNs. Adapters of one fabric see
    the same ports. ``port_limit`` is the limit of a port for all hosts, ``lun_limit`` the limit of
    a LUN; both are None if unknown. ``data_drives`` hold the data of each LUN. ``model`` is the
    array's model, if known.
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
    """The depth of each path to a LUN, with its derivation.

    A LUN has ``paths`` paths; ``used`` of them carry I/O concurrently. ``through_port`` counts one
    host's paths through one port that may carry I/O. A LUN then has at most ``in_flight`` I/Os from
    one host, and a port at most ``at_port`` I/Os from all hosts. ``port_source`` is the document
    with the port's limit, or None if the user gave it.
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
    """Return the maximum depth of each path to a LUN."""
    paths = array.hbas * array.ports
    used = paths if array.selector.spreads else 1
    # With one path at a time, all LUNs may use the same port, as after a failure.
    sharing = math.ceil(array.hbas / array.fabrics) if array.selector.spreads else 1
    through = array.luns * sharing
    model, limit, port_source = array.model, array.port_limit, None
    if model is not None and limit is None:
        limit, port_source = model.port_limit, model.port_source
    port = None if limit is None else PortShare(limit, array.hosts, through)
    lun = compute_lun_limit(array.lun_limit, model, array.data_drives, used)
    budget = DepthBudget("", port, lun)
    return LunDepth(
        depth=budget.depth,
        source=budget.source,
        paths=paths,
        used=used,
        through_port=through,
        budget=budget,
        in_flight=budget.depth * used,
        at_port=budget.depth * through * array.hosts,
        port_source=port_source,
    )
