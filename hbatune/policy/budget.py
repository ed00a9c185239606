"""What a site's own facts say about the depth of a LUN: array budgets, and drives in an array.

Only they may lower a depth. The arithmetic is data, so that `explain` can show it. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from hbatune.facts.ids import stable_part
from hbatune.facts.model import Endpoint, Kind, Machine, Protocol
from hbatune.policy.config import Counting, Site, SiteArray
from hbatune.policy.match import traits
from hbatune.policy.model import AtLeast, AtMost, Effect, Exactly, Leave, Match, Rule
from hbatune.policy.references import ArrayModel, fits, model_of
from hbatune.policy.site_names import SiteNames
from hbatune.settings.table import QUEUE_DEPTH

VENDOR_DEFAULT = 32
"""The depth that D2-1 found sound, which vendors gave their FC cards; the drivers of today: 64."""

MOST = 256
"""How far D2-2 lets the depth of a LUN be raised, however few hosts share the array."""

PER_MEMBER = 16
"""The depth for each drive of an array that reached the peak in a Gen3 slot (D4-1).

The document gives no figure for Gen2 or for what came after Gen3."""

_SHARED = (Protocol.FC, Protocol.ISCSI)
_IN_USE = ("active/optimized", "optimized")


class PortShare(Struct, frozen=True):
    """This host's share of what one array port takes, for one LUN (D2-4, D2-3).

    ``luns`` are this host's paths through the port, 1 where the limit is for each LUN by itself.
    """

    limit: int
    hosts: int
    luns: int

    @property
    def depth(self) -> int:
        """What is left for one path to one LUN."""
        return max(1, self.limit // self.hosts // self.luns)


class LunLimit(Struct, frozen=True):
    """What the array takes for one LUN over all the paths that serve it at once (D2-5).

    ``data_drives`` and ``per_data_drive`` are 0 where the limit does not follow the drives.
    ``known`` is the make of array, None where the site itself gave the limit.
    """

    base: int
    per_data_drive: int
    data_drives: int
    paths: int
    known: str | None

    @property
    def total(self) -> int:
        """What the LUN takes over all paths."""
        return self.base + self.per_data_drive * self.data_drives

    @property
    def depth(self) -> int:
        """What is left for one path."""
        return max(1, self.total // self.paths)


class DepthBudget(Struct, frozen=True):
    """The depth that one path to a LUN of a shared array may have, and how it came about."""

    array: str
    port: PortShare | None
    lun: LunLimit | None

    @property
    def depth(self) -> int:
        """The smallest of the limits that are known."""
        return min(depth for depth, _ in self._limits())

    @property
    def source(self) -> str:
        """What the smallest limit stands on."""
        return min(self._limits())[1]

    def _limits(self) -> list[tuple[int, str]]:
        limits = [(MOST, "D2-2")]
        if self.port:
            limits.append((self.port.depth, "D2-4"))
        if self.lun:
            limits.append((self.lun.depth, "D2-5" if self.lun.known else "site"))
        return limits


class _Nexus(NamedTuple):
    """What of this host shares a port's limit: all of its paths through that port."""

    array: str
    port: str


def budgets(machine: Machine, site: Site, arrays: Collection[ArrayModel]) -> dict[str, DepthBudget]:
    """Return the budget of each path to a LUN of an array that the site has described, by id.

    All of the machine's LUNs count, whichever of them are to be tuned.
    """
    listed = _listed(machine, site)
    described = {
        each.id: array
        for each in machine.endpoints
        if each.protocol in _SHARED
        and each.kind is not Kind.MAP
        and (array := _described(each, site.array, listed)) is not None
    }
    on_arrays = [each for each in machine.endpoints if each.id in described]
    behind: dict[_Nexus, int] = defaultdict(int)
    for each in on_arrays:
        behind[_nexus(each, described[each.id])] += 1
    paths = _paths_by_lun(on_arrays)
    found: dict[str, DepthBudget] = {}
    for each in on_arrays:
        array = described[each.id]
        port = _port_share(array, behind[_nexus(each, array)])
        lun = _lun_limit(each, array, arrays, _serving(paths[_lun(each)]))
        if port or lun:
            found[each.id] = DepthBudget(array.name, port, lun)
    return found


def site_rules(
    machine: Machine, site: Site, arrays: Collection[ArrayModel], file: str
) -> dict[str, Rule]:
    """Return, by endpoint id, the rule for queue_depth that follows from the site's own facts.

    ``file`` is where those stand.
    """
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    rules = {
        id: _budget_rule(budget, file) for id, budget in budgets(machine, site, arrays).items()
    }
    volumes = _volumes(machine, site.members) if site.members else {}
    for each in machine.endpoints:
        members = volumes.get(each.id)
        it = traits(each, adapters.get(each.adapter or ""))
        # In a Gen1 slot each array needs the same depth, whatever it is made of (D4-1).
        if members and it.family == "ipr" and it.gen != 1:
            rules[each.id] = _members_rule(members, file)
    return rules


def decides(own: Rule, shipped: Rule | None) -> bool:
    """Whether the site's facts take the place of the rule that won.

    They do where a rule leaves the depth to the site, or rests on the same source without knowing
    the site; a profile that says nothing of depths, and a site's explicit rule, stand.
    """
    if shipped is None:
        return False
    return isinstance(shipped.effect, Leave) or shipped.source == own.source


def _listed(machine: Machine, site: Site) -> dict[tuple[str, ...], frozenset[str]]:
    """Return the ids that each list of ``targets`` means."""
    lists = {array.targets for array in site.array if array.targets}
    names = SiteNames(machine) if lists else None
    return {targets: names.meant(targets) for targets in lists} if names else {}


def _described(
    endpoint: Endpoint,
    arrays: Iterable[SiteArray],
    listed: Mapping[tuple[str, ...], Collection[str]],
) -> SiteArray | None:
    """Return the last of the site's arrays that the endpoint is on: as with rules, it decides."""
    found = None
    for array in arrays:
        fitting = fits(endpoint.vendor, (array.vendor,)) and fits(endpoint.model, (array.model,))
        if fitting and (not array.targets or endpoint.id in listed[array.targets]):
            found = array
    return found


def _nexus(endpoint: Endpoint, array: SiteArray) -> _Nexus:
    """Return the port by its name, else what is behind one target of one host for a port."""
    nexus = (endpoint.address or endpoint.id).rpartition(":")[0]
    return _Nexus(array.name, endpoint.port or nexus)


def _lun(endpoint: Endpoint) -> str:
    """Return what the paths to one LUN share: their map, else their stable name."""
    return endpoint.map or stable_part(endpoint.id)


def _paths_by_lun(endpoints: Iterable[Endpoint]) -> Mapping[str, list[Endpoint]]:
    found: dict[str, list[Endpoint]] = defaultdict(list)
    for each in endpoints:
        found[_lun(each)].append(each)
    return found


def _serving(paths: Collection[Endpoint]) -> int:
    """Return how many paths serve a LUN at once: the optimized ones, all where none is known."""
    return sum(path.access in _IN_USE for path in paths) or len(paths)


def _port_share(array: SiteArray, luns: int) -> PortShare | None:
    if array.port_limit is None:
        return None
    return PortShare(
        array.port_limit, array.hosts, luns if array.counting is Counting.TARGET else 1
    )


def _lun_limit(
    endpoint: Endpoint, array: SiteArray, arrays: Iterable[ArrayModel], paths: int
) -> LunLimit | None:
    """Return the site's figure, else the make's; none where that needs a number of drives."""
    if array.lun_limit is not None:
        return LunLimit(array.lun_limit, 0, 0, paths, None)
    known = model_of(endpoint.vendor, endpoint.model, arrays)
    if known is None or (known.per_data_drive and array.data_drives is None):
        return None
    drives = (array.data_drives or 0) if known.per_data_drive else 0
    return LunLimit(known.lun_depth, known.per_data_drive, drives, paths, known.name)


def _budget_rule(budget: DepthBudget, file: str) -> Rule:
    # What one port has for this host is known, or it is not: only then may a depth be raised.
    effect: Effect = Exactly(budget.depth) if budget.port else AtMost(budget.depth)
    return Rule(
        name=f"site-array-{budget.array}",
        when=Match(),
        setting=QUEUE_DEPTH,
        effect=effect,
        because="what the site says of its array leaves this much for each path to a LUN",
        source=budget.source,
        file=file,
    )


def _volumes(machine: Machine, members: Mapping[str, int]) -> dict[str, int]:
    """Return by id how many drives each RAID volume that was named is made of."""
    names = SiteNames(machine)
    meant = {id: count for name, count in members.items() for id in names.meant((name,))}
    return {
        each.id: meant[each.id]
        for each in machine.endpoints
        if each.protocol is Protocol.VOLUME and each.id in meant
    }


def _members_rule(members: int, file: str) -> Rule:
    return Rule(
        name="site-members",
        when=Match(),
        setting=QUEUE_DEPTH,
        effect=AtLeast(PER_MEMBER * members),
        because=f"{PER_MEMBER} for each of the {members} drives in the array reached the peak",
        source="D4-1",
        file=file,
    )
