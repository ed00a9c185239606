"""Match rules and ``[site]`` names with targets, and list a profile's rules by endpoint. Pure.

Thousands of identical LUNs are matched once.

A name is any TARGET of a command. Stable names are case-insensitive and may have any prefix that
links and tools use (``ids.normalise_name``). A map, or the visible disk of an NVMe subsystem,
includes its paths. Names that match nothing on the machine are reported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import model as models
from hbatune.facts.classify import Evidence, classify_storage
from hbatune.facts.ids import list_spellings, normalise_name
from hbatune.facts.model import Adapter, Endpoint, Kind, Machine, Medium, Protocol, TargetKind
from hbatune.facts.names import matches_glob
from hbatune.facts.targets import list_adapter_names, list_all_names
from hbatune.policy.config import Site, SiteKey, UnmatchedName
from hbatune.policy.profile import Match, Multipath, Objective, Profile, Rule
from hbatune.settings.table import find_target_kind

Follow = Callable[[str], Sequence[str]]


class Traits(Struct, frozen=True):
    """The properties that a rule can match. Targets with equal traits get the same rules."""

    family: str
    protocol: Protocol = Protocol.UNKNOWN
    medium: Medium = Medium.UNKNOWN
    kind: Kind = Kind.DISK
    multipath: Multipath = Multipath.NONE
    vendor: str = ""
    model: str = ""
    tri_mode: bool = False
    rotational: bool | None = None
    gen: int | None = None
    width: int | None = None
    target: TargetKind = TargetKind.ENDPOINT
    storage: models.Storage = models.Storage.LOCAL
    transport: str = ""
    uses: tuple[str, ...] = ()


def build_adapter_traits(adapter: Adapter, kind: TargetKind) -> Traits:
    """Return the traits of an adapter's vectors, controllers and hosts.

    The traits are family and link. An NVMe controller also has protocol, medium, model and
    transport. Other adapters can have several types of drives.
    """
    generation, width = _get_link(adapter)
    traits = Traits(
        family=adapter.family,
        gen=generation,
        width=width,
        target=kind,
        transport=adapter.transport or "",
    )
    if adapter.controller is None:
        return traits
    model = adapter.product or ""
    # Apple's local controllers have no PCI function either (drivers/nvme/host/apple.c).
    is_fabric = adapter.pci is None and adapter.transport != "apple-nvme"
    storage = classify_storage(Evidence("nvme", fabric=is_fabric, model=model), Protocol.NVME)
    return replace(traits, protocol=Protocol.NVME, medium=Medium.NVME, model=model, storage=storage)


def _get_link(adapter: Adapter | None) -> tuple[int | None, int | None]:
    """Return the generation and width of an adapter's link, each None if unknown."""
    if adapter is None or adapter.link is None:
        return None, None
    link = adapter.link
    return link.generation, None if isinstance(link.width, models.Missing) else link.width


def build_traits(endpoint: Endpoint, adapter: Adapter | None) -> Traits:
    """Return the traits of ``endpoint``. ``adapter`` is None if it spans several."""
    generation, width = _get_link(adapter)
    return Traits(
        family=endpoint.family,
        protocol=endpoint.protocol,
        medium=endpoint.medium,
        kind=Kind.PATH if endpoint.map else endpoint.kind,  # the map has the read-ahead
        multipath=_find_multipath(endpoint),
        vendor=endpoint.vendor,
        model=endpoint.model,
        tri_mode=endpoint.tri_mode,
        rotational=None if isinstance(endpoint.rotational, models.Missing) else endpoint.rotational,
        storage=endpoint.storage,
        gen=generation,
        width=width,
        uses=endpoint.used_for,
    )


def _find_multipath(endpoint: Endpoint) -> Multipath:
    """Return the multipath layer. Only device mapper uses the kernel name dm-N for a map."""
    if endpoint.kind is Kind.DISK and endpoint.map is None:
        return Multipath.NONE
    map_name = endpoint.target if endpoint.kind is Kind.MAP else endpoint.map
    if map_name is None:
        return Multipath.NVME if endpoint.family == "nvme" else Multipath.DM
    return Multipath.DM if map_name.startswith("dm-") else Multipath.NVME


def is_match(condition: Match, properties: Traits) -> bool:
    """Return whether the condition matches a target with these traits."""
    words = ("protocol", "family", "medium", "kind", "multipath", "storage", "transport")
    for keys, names in ((condition, words), (condition.link, ("gen", "width"))):
        for name in names:
            values = getattr(keys, name)
            if values and getattr(properties, name) not in values:
                return False
    for name in ("tri_mode", "rotational"):
        flag = getattr(condition, name)
        if flag is not None and getattr(properties, name) is not flag:
            return False
    if condition.use and set(condition.use).isdisjoint(properties.uses):
        return False
    for name in ("vendor", "model"):
        globs = getattr(condition, name)
        if globs and not matches_glob(getattr(properties, name), globs):
            return False
    return True


def is_rule_for(rule: Rule, properties: Traits) -> bool:
    """Return whether the rule applies to a target with these traits."""
    is_settable = find_target_kind(rule.setting) is properties.target
    return is_settable and is_match(rule.when, properties)


def find_objective(profile: Profile, properties: Traits) -> Objective | None:
    """Return the profile's objective for an endpoint with these traits, or None."""
    for goal in reversed(profile.objectives):
        if is_match(goal.when, properties):
            return goal
    return None


class Matcher:
    """A matcher of one profile with many targets. It caches the results by traits."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._matched: dict[Traits, tuple[Rule, ...]] = {}
        self._won: dict[Traits, Mapping[str, Rule]] = {}

    def matched(self, key: Traits) -> tuple[Rule, ...]:
        """Return all rules for a target with these traits, in order."""
        if key not in self._matched:
            rules = (rule for rule in self.profile.rules if is_rule_for(rule, key))
            self._matched[key] = tuple(rules)
        return self._matched[key]

    def won(self, key: Traits) -> Mapping[str, Rule]:
        """Return the rule that decides each setting of a target with these traits: the last."""
        if key not in self._won:
            self._won[key] = {rule.setting: rule for rule in self.matched(key)}
        return self._won[key]


class SiteNames:
    """The names on one machine, collected once, and their targets."""

    def __init__(self, machine: Machine) -> None:
        self._ids: dict[str, set[str]] = {}
        self._stable: dict[str, set[str]] = {}
        self._paths: dict[str, list[str]] = {}
        for id, names in list_all_names(machine).items():
            for name in names:
                self._ids.setdefault(name, set()).add(id)
        endpoints = machine.endpoints_by_target
        for endpoint in machine.endpoints:
            for spelling in list_spellings(endpoint.id):
                self._stable.setdefault(normalise_name(spelling), set()).add(endpoint.id)
            paths = [endpoints[path].id for path in endpoint.paths if path in endpoints]
            self._paths[endpoint.id] = paths

    def meant(self, names: Iterable[str]) -> frozenset[str]:
        """Return the ids of all targets that match any of the names."""
        ids: set[str] = set()
        for name in names:
            ids |= self._ids.get(name, set()) | self._stable.get(normalise_name(name), set())
        # A map includes its paths, because a write to a path would reach an excluded map.
        path_ids = (self._paths.get(id, ()) for id in ids)
        return frozenset(ids.union(*path_ids))


def list_rule_uses(profile: Profile) -> set[str]:
    """Return the uses of disks that the conditions of a profile name."""
    conditions = [rule.when for rule in profile.rules] + [goal.when for goal in profile.objectives]
    return {use for condition in conditions for use in condition.use}


def with_uses(machine: Machine, site: Site, profile: Profile) -> Machine:
    """Return the machine with the uses of each disk that the profile names, for its traits."""
    rule_uses = list_rule_uses(profile)
    if not rule_uses:  # as on most hosts
        return machine
    names, endpoints = SiteNames(machine), []
    ids_by_use = {use: names.meant(disks) for use, disks in site.uses.items()}
    pools = {disk for stack in machine.stacks if stack.is_pool for disk in stack.disks}
    for endpoint in machine.endpoints:
        uses = {*endpoint.mounts, *endpoint.volumes}
        uses.update(use for use, ids in ids_by_use.items() if endpoint.id in ids)
        if not pools.isdisjoint((endpoint.target, endpoint.map)):
            uses.add("zfs")
        endpoints.append(replace(endpoint, used_for=tuple(sorted(uses & rule_uses))))
    return replace(machine, endpoints=tuple(endpoints))


def list_unmatched_names(machine: Machine, site: Site) -> tuple[UnmatchedName, ...]:
    """Return the site's names that match nothing on this machine."""
    unmatched = list[UnmatchedName]()
    if any(names for _, names in _list_site_names(site)):
        site_names = SiteNames(machine)
        adapters = frozenset[str]().union(*map(list_adapter_names, machine.adapters))
        for key, names in _list_site_names(site):
            for name in names:
                if not site_names.meant((name,)) and name not in adapters:
                    unmatched.append(UnmatchedName(key, name))
    for array in site.array:
        vendors = [d for d in machine.endpoints if matches_glob(d.vendor, (array.vendor,))]
        if not any(matches_glob(disk.model, (array.model,)) for disk in vendors):
            key, name = SiteKey.ARRAY.format(array.name), f"{array.vendor} {array.model}"
            unmatched.append(UnmatchedName(key, name))
    return tuple(unmatched)


def resolve_site_links(machine: Machine, site: Site, follow: Follow) -> Site:
    """Return the site with each name of disks of the machine replaced by their kernel names.

    ``follow`` returns the kernel names of the disks of a link, a stack of block devices, a mount
    point or a pool. It returns any other name unchanged.
    """
    endpoints = machine.endpoints_by_target

    def list_disks(names: Iterable[str]) -> tuple[str, ...]:
        disks: list[str] = []
        for name in names:
            disks += [disk for disk in follow(name) if disk in endpoints] or [name]
        return tuple(disks)

    return replace(
        site,
        exclude=list_disks(site.exclude),
        array=tuple(replace(array, targets=list_disks(array.targets)) for array in site.array),
        members={disk: site.members[name] for name in site.members for disk in list_disks([name])},
        uses={use: list_disks(names) for use, names in site.uses.items()},
    )


def expand_site_for_udev(machine: Machine, site: Site, follow: Follow) -> Site:
    """Return the site for udev rules, which cannot resolve links and do not know a map's paths.

    ``follow`` is as for ``resolve_site_links``. If such a name excludes a disk, the ids that
    currently match it are excluded as well. The name stays, since it may match another disk later.
    """
    if not site.exclude:
        return site
    names = SiteNames(machine)
    maps = {endpoint.id for endpoint in machine.endpoints if endpoint.kind is Kind.MAP}
    ids: list[str] = []
    for name in site.exclude:
        disks = resolve_site_links(machine, Site((name,)), follow).exclude
        current_ids = names.meant(disks)
        if disks != (name.removeprefix("/dev/"),) or current_ids & maps:
            ids += sorted(current_ids)
    return replace(site, exclude=tuple(dict.fromkeys((*site.exclude, *ids))))


def _list_site_names(site: Site) -> Iterator[tuple[str, Iterable[str]]]:
    yield SiteKey.EXCLUDE, site.exclude
    for array in site.array:
        yield SiteKey.TARGETS.format(array.name), array.targets
    yield SiteKey.MEMBERS, site.members
    for use, names in site.uses.items():
        yield SiteKey.USES.format(use), names
    yield SiteKey.ADAPTER, site.adapter
