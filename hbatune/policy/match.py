"""Matches rules and the names in ``[site]`` with targets, and shows a profile by endpoint. Pure.

Thousands of identical LUNs are matched once.

A name is anything that a command takes as a TARGET. A stable name is understood in any case and
with any of the prefixes that links and tools put before it (``ids.canonical``), and a map, or the
visible disk of an NVMe subsystem, means its paths as well. Names that mean nothing on the machine
are found.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.classify import Evidence, storage
from hbatune.facts.ids import canonical, lasting, stable_part
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
from hbatune.facts.targets import adapter_names, all_names
from hbatune.policy.config import Site, Unmatched
from hbatune.policy.profile import LinkMatch, Match, Multipath, Objective, Profile, Rule
from hbatune.settings.table import kind_of


class Traits(Struct, frozen=True):
    """All properties that a rule can match; targets with equal traits get the same rules."""

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


def adapter_traits(adapter: Adapter, kind: TargetKind) -> Traits:
    """Return the traits of an adapter's own vectors, controllers and hosts.

    These are its family and link, and for an NVMe controller protocol, medium, model and transport;
    the drives behind any other adapter may be of several kinds.
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
        storage=_behind(adapter),
        model=(adapter.product or "") if nvme else "",
        transport=adapter.transport or "",
    )


def _behind(adapter: Adapter) -> Storage:
    """Return where the data of an NVMe controller is; behind other adapters it may be anywhere."""
    if adapter.controller is None:
        return Storage.LOCAL
    evidence = Evidence("nvme", pci=adapter.pci is not None, model=adapter.product or "")
    return storage(evidence, Protocol.NVME)


def traits(endpoint: Endpoint, adapter: Adapter | None) -> Traits:
    """Return the traits of ``endpoint``; ``adapter`` is None if it spans several."""
    link = None if adapter is None else adapter.link
    return Traits(
        family=endpoint.family,
        protocol=endpoint.protocol,
        medium=endpoint.medium,
        kind=endpoint.kind,
        multipath=_multipath(endpoint),
        vendor=endpoint.vendor,
        model=endpoint.model,
        tri_mode=endpoint.tri_mode,
        storage=endpoint.storage,
        gen=None if link is None else link.generation,
        width=None if link is None or isinstance(link.width, Missing) else link.width,
    )


def _multipath(endpoint: Endpoint) -> Multipath:
    """Distinguish the two layers by the map's kernel name, which only device mapper calls dm-N."""
    if endpoint.kind is Kind.DISK:
        return Multipath.NONE
    if endpoint.kind is Kind.MAP:
        return Multipath.DM if endpoint.target.startswith("dm-") else Multipath.NVME
    if endpoint.map is None:
        return Multipath.NVME if endpoint.family == "nvme" else Multipath.DM
    return Multipath.DM if endpoint.map.startswith("dm-") else Multipath.NVME


def matches(when: Match, it: Traits) -> bool:
    """Whether ``when`` matches a target with these traits."""
    return all(holds for _, holds in _conditions(when, it))


def unmet(when: Match, it: Traits) -> tuple[str, ...]:
    """Return the conditions of ``when`` that do not hold for these traits, by their TOML keys."""
    return tuple(name for name, holds in _conditions(when, it) if not holds)


def _conditions(when: Match, it: Traits) -> Iterator[tuple[str, bool]]:
    """Yield each condition by its TOML key, and whether it holds."""
    yield "protocol", not when.protocol or it.protocol in when.protocol
    yield "family", not when.family or it.family in when.family
    yield "medium", not when.medium or it.medium in when.medium
    yield "kind", not when.kind or it.kind in when.kind
    yield "multipath", not when.multipath or it.multipath in when.multipath
    yield "storage", not when.storage or it.storage in when.storage
    yield "tri_mode", when.tri_mode is None or it.tri_mode == when.tri_mode
    yield "link", _link_matches(when.link, it)
    yield "vendor", _fits(when.vendor, it.vendor)
    yield "model", _fits(when.model, it.model)
    yield "transport", not when.transport or it.transport in when.transport


class NearRule(Struct, frozen=True):
    """A rule that nearly matches a target: the conditions that do not hold, by their TOML keys."""

    rule: Rule
    unmet: tuple[str, ...]


def near_rules(rules: Iterable[Rule], it: Traits, most: int = 5) -> tuple[NearRule, ...]:
    """Return the rules that come nearest to matching these traits, ``most`` of them at most.

    They have the fewest unmet conditions of all rules for this kind of target, and none has none.
    """
    found = [
        NearRule(rule, missing)
        for rule in rules
        if kind_of(rule.setting) is it.target and (missing := unmet(rule.when, it))
    ]
    least = min((len(each.unmet) for each in found), default=0)
    return tuple(each for each in found if len(each.unmet) == least)[:most]


def _link_matches(link: LinkMatch, it: Traits) -> bool:
    return (not link.gen or it.gen in link.gen) and (not link.width or it.width in link.width)


def _fits(globs: tuple[str, ...], text: str) -> bool:
    return not globs or matches_glob(text, globs)


def matching(rules: Iterable[Rule], it: Traits) -> tuple[Rule, ...]:
    """Return the rules for a target with these traits, in order: the last of a setting wins."""
    return tuple(
        rule for rule in rules if kind_of(rule.setting) is it.target and matches(rule.when, it)
    )


def winners(matched: Iterable[Rule]) -> dict[str, Rule]:
    """Return the rule that decides each setting, of rules that all match: the last of each."""
    return {rule.setting: rule for rule in matched}


def objective(profile: Profile, it: Traits) -> Objective | None:
    """Return the profile's objective for an endpoint with these traits, None if it has none."""
    wanted = [each for each in profile.objectives if matches(each.when, it)]
    return wanted[-1] if wanted else None


class Matcher:
    """Matches one profile with many targets, and remembers the result by their traits."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._known: dict[Traits, tuple[tuple[Rule, ...], Mapping[str, Rule]]] = {}

    def matching(self, endpoint: Endpoint, adapter: Adapter | None) -> tuple[Rule, ...]:
        """Return all rules that match, in order (``explain`` shows them)."""
        return self.decide(traits(endpoint, adapter))[0]

    def winners(self, endpoint: Endpoint, adapter: Adapter | None) -> Mapping[str, Rule]:
        """Return the rule that decides each setting."""
        return self.decide(traits(endpoint, adapter))[1]

    def won(self, key: Traits) -> Mapping[str, Rule]:
        """Return the rule that decides each setting of a target with these traits."""
        return self.decide(key)[1]

    def matched(self, key: Traits) -> tuple[Rule, ...]:
        """Return all rules for a target with these traits, in order."""
        return self.decide(key)[0]

    def decide(self, key: Traits) -> tuple[tuple[Rule, ...], Mapping[str, Rule]]:
        """Return all rules that match these traits, and the one that decides each setting."""
        if key not in self._known:
            matched = matching(self.profile.rules, key)
            self._known[key] = (matched, winners(matched))
        return self._known[key]


_RAID = Traits("megaraid_sas", Protocol.VOLUME, Medium.SSD)

ENDPOINTS: Mapping[str, Traits] = {
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
"""One endpoint for each kind that the documents distinguish, by its usual name."""


class OverviewRow(Struct, frozen=True):
    """The rules of a profile for one kind of endpoint: the deciding one of each setting."""

    endpoint: str
    rules: dict[str, Rule]
    objective: Objective | None


def overview(profile: Profile) -> tuple[OverviewRow, ...]:
    """Return a row for each kind of endpoint, with the settings that the profile has rules for.

    Rules that ask for a vendor or model match none of these.
    """
    return tuple(
        OverviewRow(name, winners(matching(profile.rules, it)), objective(profile, it))
        for name, it in ENDPOINTS.items()
    )


class SiteNames:
    """The meaning of names on one machine; all names of it are gathered once."""

    def __init__(self, machine: Machine) -> None:
        self._ids: dict[str, set[str]] = {}
        self._stable: dict[str, set[str]] = {}
        self._paths: dict[str, set[str]] = {}
        for id, names in all_names(machine).items():
            for name in names:
                self._ids.setdefault(name, set()).add(id)
        by_target = {endpoint.target: endpoint.id for endpoint in machine.endpoints}
        for endpoint in machine.endpoints:
            for text in (stable_part(endpoint.id), endpoint.id, lasting(endpoint.id)):
                self._stable.setdefault(canonical(text), set()).add(endpoint.id)
            if endpoint.paths:
                self._paths[endpoint.id] = {
                    by_target[path] for path in endpoint.paths if path in by_target
                }
        self._adapters = {name for adapter in machine.adapters for name in adapter_names(adapter)}

    def meant(self, names: Iterable[str]) -> frozenset[str]:
        """Return the ids of all targets that any of the names means."""
        found: set[str] = set()
        for name in names:
            found |= self._ids.get(name, set()) | self._stable.get(canonical(name), set())
        # With a map its paths: a write to a path would reach the map that was excluded.
        below = (self._paths.get(id, set()) for id in tuple(found))
        return frozenset(found.union(*below))

    def unmatched(self, site: Site) -> Iterator[Unmatched]:
        """Yield the names of the site that mean nothing here."""
        for key, names in _named(site):
            for name in names:
                if not self.meant((name,)) and name not in self._adapters:
                    yield Unmatched(key, name)


def unmatched(machine: Machine, site: Site) -> tuple[Unmatched, ...]:
    """Return the names of the site that mean nothing on this machine."""
    if not any(names for _, names in _named(site)):
        return ()
    return tuple(SiteNames(machine).unmatched(site))


def leading(machine: Machine, site: Site, follow: Callable[[str], str]) -> Site:
    """Return the site with each link to one of the machine's disks replaced by the disk's name.

    ``follow`` returns a disk's kernel name, or the given name if there is no such link (now).
    """
    disks = {endpoint.target for endpoint in machine.endpoints}

    def led(name: str) -> str:
        disk = follow(name)
        return disk if disk in disks else name

    arrays = (replace(array, targets=tuple(map(led, array.targets))) for array in site.array)
    return replace(
        site,
        exclude=tuple(map(led, site.exclude)),
        array=tuple(arrays),
        members={led(name): count for name, count in site.members.items()},
        uses={use: tuple(map(led, names)) for use, names in site.uses.items()},
    )


def noted(machine: Machine, site: Site, follow: Callable[[str], str]) -> Site:
    """Return the site for udev rules, which see neither a link's end nor a map's paths.

    ``follow`` is as for ``leading``. A disk that is excluded by such a name is also excluded by
    the ids that the name means now. The name stays, since it may mean another disk later.
    """
    if not site.exclude:
        return site
    names, followed = SiteNames(machine), leading(machine, site, follow).exclude
    maps = {endpoint.id for endpoint in machine.endpoints if endpoint.kind is Kind.MAP}
    ids: list[str] = []
    for name, disk in zip(site.exclude, followed, strict=True):
        meant = names.meant((disk,))
        if disk != name or meant & maps:
            ids += sorted(meant)
    return replace(site, exclude=tuple(dict.fromkeys((*site.exclude, *ids))))


def _named(site: Site) -> Iterator[tuple[str, Iterable[str]]]:
    yield "exclude", site.exclude
    for array in site.array:
        yield f"targets of array {array.name}", array.targets
    yield "members", site.members
    for use, names in site.uses.items():
        yield f"uses {use}", names
