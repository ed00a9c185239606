"""Match rules and ``[site]`` names with targets, and list a profile's rules by endpoint. Pure.

Thousands of identical LUNs are matched once.

A name is any TARGET of a command. Stable names are case-insensitive and may have any prefix that
links and tools use (``ids.normalise_name``). A map, or the visible disk of an NVMe subsystem,
includes its paths. Names that match nothing on the machine are reported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.classify import Evidence, classify_storage
from hbatune.facts.ids import extract_lasting_part, extract_stable_part, normalise_name
from hbatune.facts.model import (
    Adapter,
    Endpoint,
    Kind,
    Machine,
    Medium,
    Missing,
    Protocol,
    Storage,
    TargetKind,
)
from hbatune.facts.names import matches_glob
from hbatune.facts.targets import list_adapter_names, list_all_names
from hbatune.policy.config import Site, UnmatchedName
from hbatune.policy.profile import LinkMatch, Match, Multipath, Objective, Profile, Rule
from hbatune.settings.table import find_target_kind


class Traits(Struct, frozen=True):
    """The properties that a rule can match. Targets with equal traits get the same rules."""

    family: str
    protocol: Protocol
    medium: Medium
    kind: Kind = Kind.DISK
    multipath: Multipath = Multipath.NONE
    vendor: str = ""
    model: str = ""
    tri_mode: bool = False
    gen: int | None = None
    width: int | None = None
    target: TargetKind = TargetKind.ENDPOINT
    storage: Storage = Storage.LOCAL
    transport: str = ""


def build_adapter_traits(adapter: Adapter, kind: TargetKind) -> Traits:
    """Return the traits of an adapter's vectors, controllers and hosts.

    The traits are family and link. An NVMe controller also has protocol, medium, model and
    transport. Other adapters can have several types of drives.
    """
    nvme = adapter.controller is not None
    link = adapter.link
    return Traits(
        family=adapter.family,
        protocol=Protocol.NVME if nvme else Protocol.UNKNOWN,
        medium=Medium.NVME if nvme else Medium.UNKNOWN,
        gen=None if link is None else link.generation,
        width=None if link is None or isinstance(link.width, Missing) else link.width,
        target=kind,
        storage=_find_storage(adapter),
        model=(adapter.product or "") if nvme else "",
        transport=adapter.transport or "",
    )


def _find_storage(adapter: Adapter) -> Storage:
    """Return the location of an NVMe controller's data. For other adapters it is not known."""
    if adapter.controller is None:
        return Storage.LOCAL
    evidence = Evidence("nvme", pci=adapter.pci is not None, model=adapter.product or "")
    return classify_storage(evidence, Protocol.NVME)


def build_traits(endpoint: Endpoint, adapter: Adapter | None) -> Traits:
    """Return the traits of ``endpoint``. ``adapter`` is None if it spans several."""
    link = None if adapter is None else adapter.link
    return Traits(
        family=endpoint.family,
        protocol=endpoint.protocol,
        medium=endpoint.medium,
        kind=endpoint.kind,
        multipath=_find_multipath(endpoint),
        vendor=endpoint.vendor,
        model=endpoint.model,
        tri_mode=endpoint.tri_mode,
        storage=endpoint.storage,
        gen=None if link is None else link.generation,
        width=None if link is None or isinstance(link.width, Missing) else link.width,
    )


def _find_multipath(endpoint: Endpoint) -> Multipath:
    """Return the multipath layer. Only device mapper uses the kernel name dm-N for a map."""
    if endpoint.kind is Kind.DISK:
        return Multipath.NONE
    if endpoint.kind is Kind.MAP:
        return Multipath.DM if endpoint.target.startswith("dm-") else Multipath.NVME
    if endpoint.map is None:
        return Multipath.NVME if endpoint.family == "nvme" else Multipath.DM
    return Multipath.DM if endpoint.map.startswith("dm-") else Multipath.NVME


def is_match(condition: Match, properties: Traits) -> bool:
    """Return whether the condition matches a target with these traits."""
    return all(holds for _, holds in _check_conditions(condition, properties))


def list_unmet_keys(condition: Match, properties: Traits) -> tuple[str, ...]:
    """Return the TOML keys of the condition that do not match these traits."""
    return tuple(name for name, holds in _check_conditions(condition, properties) if not holds)


def _check_conditions(condition: Match, properties: Traits) -> Iterator[tuple[str, bool]]:
    """Yield each TOML key of the condition, and whether it matches."""
    yield "protocol", not condition.protocol or properties.protocol in condition.protocol
    yield "family", not condition.family or properties.family in condition.family
    yield "medium", not condition.medium or properties.medium in condition.medium
    yield "kind", not condition.kind or properties.kind in condition.kind
    yield "multipath", not condition.multipath or properties.multipath in condition.multipath
    yield "storage", not condition.storage or properties.storage in condition.storage
    yield "tri_mode", condition.tri_mode is None or properties.tri_mode == condition.tri_mode
    yield "link", _matches_link(condition.link, properties)
    yield "vendor", _matches_globs(condition.vendor, properties.vendor)
    yield "model", _matches_globs(condition.model, properties.model)
    yield "transport", not condition.transport or properties.transport in condition.transport


class NearRule(Struct, frozen=True):
    """A rule that nearly matches a target, with the TOML keys that do not match."""

    rule: Rule
    unmet: tuple[str, ...]


def find_near_rules(
    rules: Iterable[Rule], properties: Traits, limit: int = 5
) -> tuple[NearRule, ...]:
    """Return at most ``limit`` rules that nearly match these traits.

    They have the fewest unmet conditions of all rules for this type of target, at least one each.
    """
    candidates = [
        NearRule(rule, unmet_keys)
        for rule in rules
        if find_target_kind(rule.setting) is properties.target
        and (unmet_keys := list_unmet_keys(rule.when, properties))
    ]
    fewest = min((len(candidate.unmet) for candidate in candidates), default=0)
    return tuple(candidate for candidate in candidates if len(candidate.unmet) == fewest)[:limit]


def _matches_link(link: LinkMatch, properties: Traits) -> bool:
    return (not link.gen or properties.gen in link.gen) and (
        not link.width or properties.width in link.width
    )


def _matches_globs(globs: tuple[str, ...], text: str) -> bool:
    return not globs or matches_glob(text, globs)


def find_matching_rules(rules: Iterable[Rule], properties: Traits) -> tuple[Rule, ...]:
    """Return the rules for a target with these traits, in order. The last of a setting wins."""
    return tuple(
        rule
        for rule in rules
        if find_target_kind(rule.setting) is properties.target and is_match(rule.when, properties)
    )


def select_winners(matched: Iterable[Rule]) -> dict[str, Rule]:
    """Return the deciding rule of each setting: the last of the matching rules."""
    return {rule.setting: rule for rule in matched}


def find_objective(profile: Profile, properties: Traits) -> Objective | None:
    """Return the profile's objective for an endpoint with these traits, or None."""
    goals = [goal for goal in profile.objectives if is_match(goal.when, properties)]
    return goals[-1] if goals else None


class Matcher:
    """A matcher of one profile with many targets. It caches the results by traits."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._known: dict[Traits, tuple[tuple[Rule, ...], Mapping[str, Rule]]] = {}

    def matching(self, endpoint: Endpoint, adapter: Adapter | None) -> tuple[Rule, ...]:
        """Return all matching rules, in order (``explain`` shows them)."""
        return self.decide(build_traits(endpoint, adapter))[0]

    def winners(self, endpoint: Endpoint, adapter: Adapter | None) -> Mapping[str, Rule]:
        """Return the rule that decides each setting."""
        return self.decide(build_traits(endpoint, adapter))[1]

    def won(self, key: Traits) -> Mapping[str, Rule]:
        """Return the rule that decides each setting of a target with these traits."""
        return self.decide(key)[1]

    def matched(self, key: Traits) -> tuple[Rule, ...]:
        """Return all rules for a target with these traits, in order."""
        return self.decide(key)[0]

    def decide(self, key: Traits) -> tuple[tuple[Rule, ...], Mapping[str, Rule]]:
        """Return all rules that match these traits, and the deciding rule of each setting."""
        if key not in self._known:
            matched = find_matching_rules(self.profile.rules, key)
            self._known[key] = (matched, select_winners(matched))
        return self._known[key]


_RAID = Traits("megaraid_sas", Protocol.VOLUME, Medium.SSD)

TYPICAL_ENDPOINTS: Mapping[str, Traits] = {
    "NVMe drive, native": Traits("nvme", Protocol.NVME, Medium.NVME),
    "NVMe path of a native multipath": Traits(
        "nvme", Protocol.NVME, Medium.NVME, Kind.PATH, Multipath.NVME
    ),
    "NVMe behind a tri-mode HBA": Traits("mpi3mr", Protocol.NVME, Medium.NVME, tri_mode=True),
    "SAS SSD": Traits("mpt3sas", Protocol.SAS, Medium.SSD),
    "SAS HDD": Traits("mpt3sas", Protocol.SAS, Medium.HDD),
    "SATA": Traits("ahci", Protocol.SATA, Medium.SSD),
    "RAID volume": _RAID,
    "RAID volume (ipr, Gen1 link)": replace(_RAID, family="ipr", gen=1, width=8),
    "RAID volume (ipr, any other link)": replace(_RAID, family="ipr", gen=3, width=8),
    "FC": Traits("lpfc", Protocol.FC, Medium.SSD, storage=Storage.ARRAY),
    "iSCSI": Traits("iscsi_tcp", Protocol.ISCSI, Medium.SSD, storage=Storage.ARRAY),
    "array attached by SAS": Traits("mpt3sas", Protocol.SAS, Medium.SSD, storage=Storage.ARRAY),
    "NVMe over fabrics": Traits("nvme", Protocol.NVME, Medium.NVME, storage=Storage.FABRIC),
    "NVMe of a cloud": Traits("nvme", Protocol.NVME, Medium.NVME, storage=Storage.VIRTUAL),
    "dm-multipath map": Traits("dm", Protocol.SAS, Medium.SSD, Kind.MAP, Multipath.DM),
    "dm-multipath path, SAS SSD": Traits(
        "mpt3sas", Protocol.SAS, Medium.SSD, Kind.PATH, Multipath.DM
    ),
    "parallel SCSI": Traits("sym53c8xx", Protocol.SPI, Medium.HDD),
    "virtual disk": Traits("virtio_scsi", Protocol.VIRTIO, Medium.SSD, storage=Storage.VIRTUAL),
}
"""One endpoint of each type in the documents, by its usual name."""


class OverviewRow(Struct, frozen=True):
    """The deciding rules of a profile for one type of endpoint, by setting."""

    endpoint: str
    rules: dict[str, Rule]
    objective: Objective | None


def build_overview(profile: Profile) -> tuple[OverviewRow, ...]:
    """Return a row for each type of endpoint, with the settings that the profile has rules for.

    Rules that require a vendor or model match no row.
    """
    return tuple(
        OverviewRow(
            name,
            select_winners(find_matching_rules(profile.rules, properties)),
            find_objective(profile, properties),
        )
        for name, properties in TYPICAL_ENDPOINTS.items()
    )


class SiteNames:
    """The names on one machine, collected once, and their targets."""

    def __init__(self, machine: Machine) -> None:
        self._ids: dict[str, set[str]] = {}
        self._stable: dict[str, set[str]] = {}
        self._paths: dict[str, set[str]] = {}
        for id, names in list_all_names(machine).items():
            for name in names:
                self._ids.setdefault(name, set()).add(id)
        by_target = {endpoint.target: endpoint.id for endpoint in machine.endpoints}
        for endpoint in machine.endpoints:
            for text in (
                extract_stable_part(endpoint.id),
                endpoint.id,
                extract_lasting_part(endpoint.id),
            ):
                self._stable.setdefault(normalise_name(text), set()).add(endpoint.id)
            if endpoint.paths:
                self._paths[endpoint.id] = {
                    by_target[path] for path in endpoint.paths if path in by_target
                }
        self._adapters = {
            name for adapter in machine.adapters for name in list_adapter_names(adapter)
        }

    def meant(self, names: Iterable[str]) -> frozenset[str]:
        """Return the ids of all targets that match any of the names."""
        ids: set[str] = set()
        for name in names:
            ids |= self._ids.get(name, set()) | self._stable.get(normalise_name(name), set())
        # A map includes its paths, because a write to a path would reach an excluded map.
        path_ids = (self._paths.get(id, set()) for id in tuple(ids))
        return frozenset(ids.union(*path_ids))

    def unmatched(self, site: Site) -> Iterator[UnmatchedName]:
        """Yield the site's names that match nothing on this machine."""
        for key, names in _list_site_names(site):
            for name in names:
                if not self.meant((name,)) and name not in self._adapters:
                    yield UnmatchedName(key, name)


def list_unmatched_names(machine: Machine, site: Site) -> tuple[UnmatchedName, ...]:
    """Return the site's names that match nothing on this machine."""
    if not any(names for _, names in _list_site_names(site)):
        return ()
    return tuple(SiteNames(machine).unmatched(site))


def resolve_site_links(machine: Machine, site: Site, follow: Callable[[str], str]) -> Site:
    """Return the site with each link to one of the machine's disks replaced by the disk's name.

    ``follow`` returns a disk's kernel name, or the given name if it is currently not a link.
    """
    disks = {endpoint.target for endpoint in machine.endpoints}

    def replace_link(name: str) -> str:
        disk = follow(name)
        return disk if disk in disks else name

    arrays = (
        replace(array, targets=tuple(map(replace_link, array.targets))) for array in site.array
    )
    return replace(
        site,
        exclude=tuple(map(replace_link, site.exclude)),
        array=tuple(arrays),
        members={replace_link(name): count for name, count in site.members.items()},
        uses={use: tuple(map(replace_link, names)) for use, names in site.uses.items()},
    )


def expand_site_for_udev(machine: Machine, site: Site, follow: Callable[[str], str]) -> Site:
    """Return the site for udev rules, which cannot resolve links and do not know a map's paths.

    ``follow`` is as for ``resolve_site_links``. If such a name excludes a disk, the ids that
    currently match it are excluded as well. The name stays, since it may match another disk later.
    """
    if not site.exclude:
        return site
    names, followed = SiteNames(machine), resolve_site_links(machine, site, follow).exclude
    maps = {endpoint.id for endpoint in machine.endpoints if endpoint.kind is Kind.MAP}
    ids: list[str] = []
    for name, disk in zip(site.exclude, followed, strict=True):
        current_ids = names.meant((disk,))
        if disk != name or current_ids & maps:
            ids += sorted(current_ids)
    return replace(site, exclude=tuple(dict.fromkeys((*site.exclude, *ids))))


def _list_site_names(site: Site) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield each key of the site that contains names, and its names."""
    yield "exclude", site.exclude
    for array in site.array:
        yield f"targets of array {array.name}", array.targets
    yield "members", site.members
    for use, names in site.uses.items():
        yield f"uses {use}", names
