"""Compute the depth of a LUN from site facts: array budgets, and drives in an array. Pure.

Only these facts may lower a depth. The arithmetic is data, which `explain` can show.
"""

from collections import Counter
from collections.abc import Collection

from msgspec import Struct

from hbatune.facts.ids import WORLD_WIDE, extract_stable_part
from hbatune.facts.model import Endpoint, Kind, Machine, Missing, Protocol, Storage
from hbatune.facts.names import group_items, matches_glob
from hbatune.policy import library, match
from hbatune.policy.config import LimitScope, Site, SiteArray, Vendors
from hbatune.policy.profile import AtLeast, AtMost, Effect, Exactly, Leave, Match, Origin, Rule
from hbatune.settings.table import QUEUE_DEPTH
from hbatune.text.limit_text import Limit, LimitReason, describe_limit

VENDOR_DEFAULT = 32
"""The depth that D2-1 found sound, a former default of FC cards. Current drivers have 64."""

MAX_LUN_DEPTH = 256  # the maximum depth of a LUN (D2-2), even if few hosts share the array

DEPTH_PER_DRIVE = 16
"""The depth for each drive of an array that reached the peak in a Gen3 slot (D4-1).

The document gives no value for Gen2, for links later than Gen3 or for unreadable links. They get
the same value."""

GEN1_ARRAY_DEPTH = 64
"""The minimum depth of an array in a Gen1 slot, even with few drives (D4-1)."""

SHARE_RULE_PREFIX = "site-array-"
"""The prefix of the name of a rule for a LUN's share of its array's limit."""

OPTIMIZED = ("active/optimized", "optimized")  # of ALUA (SCSI), and of ANA (NVMe)


def is_shared(endpoint: Endpoint) -> bool:
    """Return whether other hosts may use the array ports in front of a LUN."""
    # A snapshot from an older hbatune does not contain the location of a LUN's data.
    return endpoint.protocol in (Protocol.FC, Protocol.ISCSI) or endpoint.storage is Storage.ARRAY


class PortShare(Struct, frozen=True, omit_defaults=True):
    """This host's share of an array port's limit, for one LUN (D2-4, D2-3).

    ``luns`` is the number of this host's paths through the port, or 1 if the limit is for each LUN.
    If a vendor gave the limit, ``known`` is the make of array and ``source`` is the vendor's paper.
    Both are None if the site gave it.
    """

    limit: int
    hosts: int
    luns: int
    known: str | None = None
    source: str | None = None

    @property
    def depth(self) -> int:
        """The depth for one path to one LUN."""
        return max(1, self.limit // self.hosts // self.luns)  # a queue_depth of 0 is EINVAL


class LunLimit(Struct, frozen=True):
    """The array's limit for one LUN, over all paths that serve it concurrently (D2-5).

    ``data_drives`` and ``per_data_drive`` are 0 if the limit does not depend on the drives.
    ``known`` is the make of array, or None if the site gave the limit.
    """

    base: int
    per_data_drive: int
    data_drives: int
    paths: int
    known: str | None

    @property
    def total(self) -> int:
        """The limit of the LUN over all paths."""
        return self.base + self.per_data_drive * self.data_drives

    @property
    def depth(self) -> int:
        """The depth for one path."""
        return max(1, self.total // self.paths)


class DepthBudget(Struct, frozen=True):
    """The depth that one path to a LUN of a shared array may have, with its derivation."""

    array: str
    port: PortShare | None
    lun: LunLimit | None

    @property
    def depth(self) -> int:
        """The smallest known limit."""
        return min(depth for depth, _ in self._list_limits())

    @property
    def source(self) -> str:
        """The source of the smallest limit."""
        return min(self._list_limits())[1]

    def _list_limits(self) -> list[tuple[int, str]]:
        limits = [(MAX_LUN_DEPTH, "D2-2")]
        if self.port:
            limits.append((self.port.depth, self.port.source or "D2-4"))
        if self.lun:
            limits.append((self.lun.depth, "D2-5" if self.lun.known else "site"))
        return limits


def compute_budgets(
    machine: Machine, site: Site, arrays: Collection[library.ArrayModel]
) -> dict[str, DepthBudget]:
    """Return, by id, the budget of each path to a site's array. Untuned LUNs load it, too."""
    if not site.array:
        return {}
    names = match.SiteNames(machine)
    # Only the paths of a map have a queue_depth.
    disks = [disk for disk in machine.endpoints if is_shared(disk) and disk.kind is not Kind.MAP]
    described: dict[str, tuple[Endpoint, SiteArray]] = {}
    for array in site.array:  # the last one that matches overrides, as with rules
        listed_ids = names.meant(array.targets)
        for disk in disks:
            is_listed = not array.targets or disk.id in listed_ids
            fits = matches_glob(disk.vendor, (array.vendor,))
            if fits and is_listed and matches_glob(disk.model, (array.model,)):
                described[disk.id] = disk, array
    pairs = described.values()
    luns_by_port = Counter((array.name, find_port(endpoint)) for endpoint, array in pairs)
    paths_by_lun = group_items((endpoint for endpoint, _ in pairs), _identify_lun)
    budgets: dict[str, DepthBudget] = {}
    for endpoint, array in pairs:
        make = library.find_model(endpoint.vendor, endpoint.model, arrays)
        luns = luns_by_port[array.name, find_port(endpoint)]
        port = _compute_port_share(array, make, luns, site.vendors)
        paths = _count_serving_paths(paths_by_lun[_identify_lun(endpoint)])
        lun = compute_lun_limit(array.lun_limit, make, array.data_drives, paths)
        if port or lun:
            budgets[endpoint.id] = DepthBudget(array.name, port, lun)
    return budgets


def make_site_rules(
    machine: Machine, site: Site, arrays: Collection[library.ArrayModel], file: str
) -> dict[str, Rule]:
    """Return, by endpoint id, the rule for queue_depth from the site's facts in ``file``."""
    adapters = machine.adapters_by_target
    rules = {}
    for id, budget in compute_budgets(machine, site, arrays).items():
        # A port limit determines this host's share, so a depth may be raised to it. A limit for
        # each LUN does not cover the other LUNs behind the port, so it only lowers.
        effect: Effect = Exactly(budget.depth) if budget.port else AtMost(budget.depth)
        name = f"{SHARE_RULE_PREFIX}{budget.array}"
        why = LimitReason(Limit.ARRAY_SHARE)
        rules[id] = _make_rule(name, effect, why, budget.source, file)
    drives_by_id: dict[str, int] = {}
    if site.members:
        names = match.SiteNames(machine)
        for target, count in site.members.items():
            drives_by_id |= dict.fromkeys(names.meant((target,)), count)
    for endpoint in machine.endpoints:
        members = drives_by_id.get(endpoint.id)
        if members and endpoint.protocol is Protocol.VOLUME and endpoint.family == "ipr":
            depth = DEPTH_PER_DRIVE * members
            why = LimitReason(Limit.DRIVES, (DEPTH_PER_DRIVE, members))
            if match.build_traits(endpoint, adapters.get(endpoint.adapter or "")).gen == 1:
                depth = max(depth, GEN1_ARRAY_DEPTH)
                why = LimitReason(Limit.DRIVES_AT_LEAST, (*why.facts, GEN1_ARRAY_DEPTH))
            effect = AtLeast(depth)
            rules[endpoint.id] = _make_rule("site-members", effect, why, "D4-1", file)
    return rules


def _make_rule(name: str, effect: Effect, why: LimitReason, source: str, file: str) -> Rule:
    return Rule(name, Match(), QUEUE_DEPTH, effect, describe_limit(why), source, file, Origin.SITE)


def has_priority(site_rule: Rule, shipped: Rule | None) -> bool:
    """Return whether the site's facts override the winning rule.

    They do if this rule leaves the depth to the site, belongs to a vendor, or has the same source
    but ignores the site. They override neither a profile without a rule for depths nor an explicit
    local rule.
    """
    if shipped is None:
        return False
    leaves = shipped.effect == Leave() or shipped.origin is Origin.VENDOR
    return leaves or shipped.source == site_rule.source


def find_port(endpoint: Endpoint) -> str:
    """Return the name of an array's port, or host, channel and target of the address."""
    return endpoint.port or (endpoint.address or endpoint.id).rpartition(":")[0]


def _identify_lun(endpoint: Endpoint) -> str:
    """Return the common key of the paths to one LUN.

    The key is the LUN's world-wide name, which a path has even before multipathd adds it to the
    map. Without such a name, the key is the map.
    """
    name = extract_stable_part(endpoint.id)
    return name if name.startswith(WORLD_WIDE) else endpoint.map or name


def _count_serving_paths(paths: Collection[Endpoint]) -> int:
    """Return the number of paths that serve a LUN concurrently.

    They are the optimized paths, or all paths if no path is optimized. A path whose state the
    kernel does not know yet counts, because it may become optimized.
    """
    states = [path.access for path in paths]
    return sum(isinstance(state, Missing) or state in OPTIMIZED for state in states) or len(paths)


def _compute_port_share(
    array: SiteArray, make: library.ArrayModel | None, luns: int, vendors: Vendors
) -> PortShare | None:
    """Return the share of the site's limit, or of the vendor's if the site follows vendors."""
    counted = luns if array.counting is LimitScope.TARGET else 1
    if array.port_limit is not None:
        return PortShare(array.port_limit, array.hosts, counted)
    if vendors is not Vendors.FOLLOW or make is None or make.port_limit is None:
        return None
    return PortShare(make.port_limit, array.hosts, counted, make.name, make.port_source)


def compute_lun_limit(
    limit: int | None, make: library.ArrayModel | None, data_drives: int | None, paths: int
) -> LunLimit | None:
    """Return the given limit, or the make's, or None if it depends on an unknown drive count."""
    if limit is not None:
        return LunLimit(limit, 0, 0, paths, None)
    if make is None or (make.per_data_drive and not data_drives):
        return None
    drives = (data_drives or 0) if make.per_data_drive else 0
    return LunLimit(make.lun_depth, make.per_data_drive, drives, paths, make.name)
