"""The depth of a LUN by the site's own facts: array budgets, and drives in an array. Pure.

Only these facts may lower a depth. The arithmetic is data, so that `explain` can show it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from hbatune.facts.ids import WORLD_WIDE, stable_part
from hbatune.facts.model import Endpoint, Kind, Machine, Missing, Protocol, Storage
from hbatune.facts.names import matches_glob
from hbatune.policy.config import Counting, Site, SiteArray, Vendors
from hbatune.policy.library import ArrayModel, model_of
from hbatune.policy.match import SiteNames, traits
from hbatune.policy.profile import AtLeast, AtMost, Effect, Exactly, Leave, Match, Origin, Rule
from hbatune.settings.table import QUEUE_DEPTH

VENDOR_DEFAULT = 32
"""The depth that D2-1 found sound, once the default of FC cards; today's drivers have 64."""

MOST = 256
"""The most to which D2-2 lets the depth of a LUN be raised, however few hosts share the array."""

PER_MEMBER = 16
"""The depth for each drive of an array that reached the peak in a Gen3 slot (D4-1).

The document gives no figure for Gen2, for links later than Gen3 or for links that cannot be read;
they get the same."""

GEN1_ARRAY = 64
"""The least depth of an array in a Gen1 slot, however few drives it has (D4-1)."""

SHARE_OF = "site-array-"
"""The name of a rule for a LUN's share of its array's limit, before that of the array."""

_IN_USE = ("active/optimized", "optimized")  # of ALUA (SCSI), and of ANA (NVMe)


def is_shared(endpoint: Endpoint) -> bool:
    """Whether other hosts may use the array ports in front of a LUN."""
    # A snapshot of an older hbatune does not say where the data of a LUN is.
    return endpoint.protocol in (Protocol.FC, Protocol.ISCSI) or endpoint.storage is Storage.ARRAY


class PortShare(Struct, frozen=True, omit_defaults=True):
    """This host's share of an array port's limit, for one LUN (D2-4, D2-3).

    ``luns`` are this host's paths through the port, 1 if the limit is for each LUN by itself.
    ``known`` is the make of array whose vendor gave the limit, and ``source`` that paper, None if
    the site itself gave it.
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
    """The array's limit for one LUN, over all the paths that serve it at once (D2-5).

    ``data_drives`` and ``per_data_drive`` are 0 if the limit does not depend on the drives.
    ``known`` is the make of array, None if the site itself gave the limit.
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
        """The smallest of the limits that are known."""
        return min(depth for depth, _ in self._limits())

    @property
    def source(self) -> str:
        """The source of the smallest limit."""
        return min(self._limits())[1]

    def _limits(self) -> list[tuple[int, str]]:
        limits = [(MOST, "D2-2")]
        if self.port:
            limits.append((self.port.depth, self.port.source or "D2-4"))
        if self.lun:
            limits.append((self.lun.depth, "D2-5" if self.lun.known else "site"))
        return limits


class _Nexus(NamedTuple):
    """The key of a port's limit within this host: all of its paths through that port share it."""

    array: str
    port: str


def budgets(machine: Machine, site: Site, arrays: Collection[ArrayModel]) -> dict[str, DepthBudget]:
    """Return the budget of each path to a LUN of an array that the site has described, by id.

    All of the machine's LUNs count, including those that are not tuned: they load the array, too.
    """
    listed = _listed(machine, site)
    described = {
        endpoint.id: array
        for endpoint in machine.endpoints
        if is_shared(endpoint)
        and endpoint.kind is not Kind.MAP  # a map has no queue_depth: its paths have
        and (array := _described(endpoint, site.array, listed)) is not None
    }
    on_arrays = [endpoint for endpoint in machine.endpoints if endpoint.id in described]
    behind: dict[_Nexus, int] = defaultdict(int)
    for on_array in on_arrays:
        behind[_nexus(on_array, described[on_array.id])] += 1
    paths = _paths_by_lun(on_arrays)
    found: dict[str, DepthBudget] = {}
    for on_array in on_arrays:
        array = described[on_array.id]
        port = _port_share(on_array, array, arrays, behind[_nexus(on_array, array)], site.vendors)
        lun = _lun_limit(on_array, array, arrays, _serving(paths[_lun(on_array)]))
        if port or lun:
            found[on_array.id] = DepthBudget(array.name, port, lun)
    return found


def site_rules(
    machine: Machine, site: Site, arrays: Collection[ArrayModel], file: str
) -> dict[str, Rule]:
    """Return, by endpoint id, the rule for queue_depth that follows from the site's own facts.

    ``file`` is the one that has those facts.
    """
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    rules = {
        id: _budget_rule(budget, file) for id, budget in budgets(machine, site, arrays).items()
    }
    volumes = _volumes(machine, site.members) if site.members else {}
    for endpoint in machine.endpoints:
        members = volumes.get(endpoint.id)
        it = traits(endpoint, adapters.get(endpoint.adapter or ""))
        if members and it.family == "ipr":
            rules[endpoint.id] = _members_rule(members, file, gen1=it.gen == 1)
    return rules


def decides(own: Rule, shipped: Rule | None) -> bool:
    """Whether the site's facts take the place of the rule that won.

    They do if that rule leaves the depth to the site, is a vendor's, or rests on the same source
    without knowing the site. A profile without a rule for depths, and a site's explicit rule, keep
    their say.
    """
    if shipped is None:
        return False
    return (
        isinstance(shipped.effect, Leave)
        or shipped.origin is Origin.VENDOR
        or shipped.source == own.source
    )


def _listed(machine: Machine, site: Site) -> dict[tuple[str, ...], frozenset[str]]:
    """Return the ids of the endpoints that each list of ``targets`` names."""
    lists = {array.targets for array in site.array if array.targets}
    names = SiteNames(machine) if lists else None
    return {targets: names.meant(targets) for targets in lists} if names else {}


def _described(
    endpoint: Endpoint,
    arrays: Iterable[SiteArray],
    listed: Mapping[tuple[str, ...], Collection[str]],
) -> SiteArray | None:
    """Return the array that the endpoint is on: of several that fit the last, as with rules."""
    found = None
    for array in arrays:
        fitting = matches_glob(endpoint.vendor, (array.vendor,)) and matches_glob(
            endpoint.model, (array.model,)
        )
        if fitting and (not array.targets or endpoint.id in listed[array.targets]):
            found = array
    return found


def _nexus(endpoint: Endpoint, array: SiteArray) -> _Nexus:
    """Return the endpoint's port by name, else by host, channel and target of its address."""
    nexus = (endpoint.address or endpoint.id).rpartition(":")[0]
    return _Nexus(array.name, endpoint.port or nexus)


def _lun(endpoint: Endpoint) -> str:
    """Return the key that the paths to one LUN have in common.

    That is its world-wide name, which a path also has before multipathd has joined it to the map;
    else the map.
    """
    name = stable_part(endpoint.id)
    return name if name.startswith(WORLD_WIDE) else endpoint.map or name


def _paths_by_lun(endpoints: Iterable[Endpoint]) -> Mapping[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        found[_lun(endpoint)].append(endpoint)
    return found


def _serving(paths: Collection[Endpoint]) -> int:
    """Return how many paths serve a LUN at once: the optimized ones, or all if none is.

    A path of which the kernel cannot tell yet counts: it may become one of them.
    """
    states = [path.access for path in paths]
    return sum(isinstance(state, Missing) or state in _IN_USE for state in states) or len(paths)


def _port_share(
    endpoint: Endpoint,
    array: SiteArray,
    arrays: Iterable[ArrayModel],
    luns: int,
    vendors: Vendors,
) -> PortShare | None:
    """Return the share of the site's limit, else of the vendor's, where the site follows those."""
    counted = luns if array.counting is Counting.TARGET else 1
    if array.port_limit is not None:
        return PortShare(array.port_limit, array.hosts, counted)
    known = model_of(endpoint.vendor, endpoint.model, arrays)
    if vendors is not Vendors.FOLLOW or known is None or known.port_limit is None:
        return None
    return PortShare(known.port_limit, array.hosts, counted, known.name, known.port_source)


def _lun_limit(
    endpoint: Endpoint, array: SiteArray, arrays: Iterable[ArrayModel], paths: int
) -> LunLimit | None:
    """Return the site's figure, else the make's, None if that needs a number of drives."""
    if array.lun_limit is not None:
        return LunLimit(array.lun_limit, 0, 0, paths, None)
    known = model_of(endpoint.vendor, endpoint.model, arrays)
    if known is None or (known.per_data_drive and array.data_drives is None):
        return None
    drives = (array.data_drives or 0) if known.per_data_drive else 0
    return LunLimit(known.lun_depth, known.per_data_drive, drives, paths, known.name)


def _budget_rule(budget: DepthBudget, file: str) -> Rule:
    # With a port's limit this host's share is known, and a depth may be raised to it. A limit for
    # each LUN alone says nothing of the other LUNs behind the port: it only lowers.
    effect: Effect = Exactly(budget.depth) if budget.port else AtMost(budget.depth)
    return Rule(
        name=f"{SHARE_OF}{budget.array}",
        when=Match(),
        setting=QUEUE_DEPTH,
        effect=effect,
        because="what the site says of its array leaves this much for each path to a LUN",
        source=budget.source,
        file=file,
        origin=Origin.SITE,
    )


def _volumes(machine: Machine, members: Mapping[str, int]) -> dict[str, int]:
    """Return, by id, the number of drives of each RAID volume that the site named."""
    names = SiteNames(machine)
    meant = {id: count for name, count in members.items() for id in names.meant((name,))}
    return {
        endpoint.id: meant[endpoint.id]
        for endpoint in machine.endpoints
        if endpoint.protocol is Protocol.VOLUME and endpoint.id in meant
    }


def _members_rule(members: int, file: str, *, gen1: bool) -> Rule:
    depth = max(PER_MEMBER * members, GEN1_ARRAY if gen1 else 0)
    because = f"{PER_MEMBER} for each of the {members} drives in the array"
    return Rule(
        name="site-members",
        when=Match(),
        setting=QUEUE_DEPTH,
        effect=AtLeast(depth),
        because=f"{because}, and {GEN1_ARRAY} at least in a Gen1 slot" if gen1 else because,
        source="D4-1",
        file=file,
        origin=Origin.SITE,
    )
