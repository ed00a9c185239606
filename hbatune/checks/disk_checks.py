"""Checks of disks: caches, mounts, statistics, paths, names, and unread facts.

No finding recommends enabling a drive's internal cache, which loses its content without power. The
path checks look for several, evenly preferred paths (D4-4). A machine with facts that exist but
could not be read must not be called clean.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter

from hbatune.checks.adapter_checks import list_intx_adapters
from hbatune.checks.finding import Check, CheckEvidence, CheckInput, Finding, Severity
from hbatune.facts import attributes, devices, families
from hbatune.facts.endpoints import SUSPENDED
from hbatune.facts.family import identify_product
from hbatune.facts.health import BUS_COUNTERS
from hbatune.facts.ids import extract_stable_part, is_nameless
from hbatune.facts.model import Adapter, Endpoint, Kind, Medium, Missing, Protocol, Reason, Storage
from hbatune.facts.names import group_items
from hbatune.plan.kernel_changes import OPTIMAL_SIZE, find_newest_default
from hbatune.policy.budget import OPTIMIZED
from hbatune.policy.match import SiteNames, build_traits, find_objective, list_unmatched_names
from hbatune.settings import limits, table

_NO_UPDATES = frozenset({"noatime", "ro"})


class _DriveCache(CheckEvidence, frozen=True):
    cache: str


def show_drive_caches(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report each drive's cache type. Maps are skipped, since their paths report it."""
    for endpoint in inputs.endpoints:
        is_drive = endpoint.kind is not Kind.MAP and endpoint.protocol is not Protocol.VOLUME
        if is_drive and (cache := inputs.get_cache(endpoint)) is not None:
            yield check.report(Severity.INFO, endpoint, _DriveCache(cache))


class _HiddenCache(CheckEvidence, frozen=True):
    volumes: tuple[str, ...]
    family: str
    cache_types: tuple[str, ...]


def find_adapter_caches(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report adapters with volumes, since no attribute shows their protected cache.

    The volumes' cache types do not show it either: ``write back`` may be the drives' own cache, and
    a volume behind a protected cache may report ``write through``.
    """
    for adapter, volumes, has_cache in _find_volume_adapters(inputs):
        if has_cache is not False:
            caches = {disk.target: inputs.get_cache(disk) for disk in volumes}
            types = tuple(f"{name} {cache}" for name, cache in caches.items() if cache)
            evidence = _HiddenCache(_list_targets(volumes), adapter.family, types)
            yield check.report(Severity.INFO, adapter, evidence)


class _CostlyCache(CheckEvidence, frozen=True):
    """A write cache, which can slow down random writes."""


def find_costly_caches(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report adapters with volumes whose product has a write cache, for purely random writes."""
    for adapter, _, has_cache in _find_volume_adapters(inputs):
        if has_cache:
            yield check.report(Severity.INFO, adapter, _CostlyCache())


class _NoCache(CheckEvidence, frozen=True):
    volumes: tuple[str, ...]
    product: str | None
    spinning: tuple[str, ...]
    raid6: tuple[str, ...]


def find_cacheless_adapters(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report adapters with volumes but without a write cache, and their rotational disks.

    It is a warning if a volume has RAID 6. An unknown level does not count.
    """
    for adapter, volumes, has_cache in _find_volume_adapters(inputs):
        if has_cache is False:
            disks = [disk for disk in inputs.endpoints if disk.adapter == adapter.target]
            spinning = _list_targets(disk for disk in disks if disk.medium is Medium.HDD)
            slow = [disk for disk in volumes if (disk.raid_level or "").startswith("6")]
            names, raid6 = _list_targets(volumes), _list_targets(slow)
            evidence = _NoCache(names, adapter.product, spinning, raid6)
            yield check.report(Severity.WARNING if slow else Severity.INFO, adapter, evidence)


def _find_volume_adapters(
    inputs: CheckInput,
) -> Iterator[tuple[Adapter, list[Endpoint], bool | None]]:
    """Yield the adapters with volumes, the volumes, and whether the product has a write cache."""
    disks = [disk for disk in inputs.endpoints if disk.protocol is Protocol.VOLUME]
    volumes_by_adapter = group_items(disks, attrgetter("adapter"))
    for adapter in inputs.adapters:
        product = identify_product(families.family_named(adapter.family).products, adapter.pci)
        if volumes := volumes_by_adapter.get(adapter.target):
            yield adapter, volumes, product.cache if product else None


def _list_targets(disks: Iterable[Endpoint]) -> tuple[str, ...]:
    return tuple(disk.target for disk in disks)


class _AccessTimes(CheckEvidence, frozen=True):
    point: str
    relatime: bool


def find_access_times(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find mounts that update access times, at each read or at most daily (relatime)."""
    options = {mount.point: mount.options for mount in inputs.health.mounts}
    # Maps come before paths, so a mount is reported once, on the map.
    for endpoint in sorted(inputs.endpoints, key=lambda endpoint: endpoint.kind is Kind.PATH):
        for point in endpoint.mounts:
            flags = options.pop(point, None)
            if point != devices.SWAP and flags is not None and _NO_UPDATES.isdisjoint(flags):
                is_relative = "relatime" in flags
                severity = Severity.INFO if is_relative else Severity.ADVICE
                yield check.report(severity, endpoint, _AccessTimes(point, is_relative))


class _StatisticsOff(CheckEvidence, frozen=True):
    """The statistics of a disk are off."""


def find_statistics_off(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks that cannot be watched because their statistics are off."""
    for endpoint in inputs.endpoints:
        if table.SETTINGS["iostats"].read(endpoint.attributes) == 0:
            yield check.report(Severity.INFO, endpoint, _StatisticsOff())


_DATABASE_USES = (
    *("cassandra", "elasticsearch", "mysql", "oracle-afd", "oracle-asm", "sap"),
    *("ravendb-random-access", "ravendb-virtual-ssd"),
)
_LARGE_DEFAULTS = {
    "read-ahead-large": ("read_ahead_kb", 128, 1024),
    "requests-large": ("max_sectors_kb", 1280, 4096),
}
"""The setting of each check, its value for random reads, and its smallest large default, in KiB."""


class _LargeReadAhead(CheckEvidence, frozen=True):
    read_ahead_kb: int
    wanted_kb: int
    medium: str
    optimal_kb: int | None
    volume: str | None


class _LargeRequests(CheckEvidence, frozen=True):
    max_sectors_kb: int
    wanted_kb: int
    medium: str


def find_large_defaults(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks with a kernel's default that is large for random reads, unless a rule sets it.

    It is a warning if the disk is used by a database, or the profile is for databases.
    """
    setting, usual_kb, large_kb = _LARGE_DEFAULTS[check.id]
    disks = [disk for use in _DATABASE_USES for disk in inputs.site.uses.get(use, ())]
    database_ids = SiteNames(inputs.machine).meant(disks)
    is_for_databases = inputs.profile is not None and "database" in inputs.profile.title.lower()
    advised = {item.id: item.advised for item in inputs.advice if item.setting == setting}
    for endpoint in inputs.endpoints:
        default = find_newest_default(endpoint, f"queue/{setting}")
        is_default = default == table.SETTINGS[setting].read(endpoint.attributes)
        wanted = advised.get(endpoint.id, usual_kb)
        if not is_default or endpoint.map is not None or (endpoint.id, setting) in inputs.planned:
            continue
        if isinstance(default, int) and isinstance(wanted, int) and default >= large_kb > wanted:
            database = is_for_databases or endpoint.id in database_ids
            common = (default, wanted, str(endpoint.medium))
            evidence: CheckEvidence = _LargeRequests(*common)
            if setting == "read_ahead_kb":
                size = attributes.parse_integer(endpoint.attributes, OPTIMAL_SIZE)
                optimal = size // 1024 if isinstance(size, int) and size else None
                volume = endpoint.target if endpoint.protocol is Protocol.VOLUME else None
                evidence = _LargeReadAhead(*common, optimal, volume)
            yield check.report(Severity.WARNING if database else Severity.INFO, endpoint, evidence)


class _UnorderedZones(CheckEvidence, frozen=True):
    """Neither scheduler nor kernel orders the writes to a zoned disk."""


def find_unordered_zones(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find zoned disks whose writes fail because neither scheduler nor kernel orders them."""
    for endpoint in inputs.endpoints:
        if endpoint.plugs_zones is False and limits.find_scheduler(endpoint.attributes) == "none":
            yield check.report(Severity.WARNING, endpoint, _UnorderedZones())


class _NoCapacity(CheckEvidence, frozen=True):
    """The kernel can use no capacity of a disk."""


def find_unusable_disks(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks without capacity, such as drives with sectors of 520 bytes from an array."""
    for endpoint in inputs.endpoints:
        if endpoint.size == 0 and endpoint.kind is Kind.DISK:
            yield check.report(Severity.ADVICE, endpoint, _NoCapacity())


class _SinglePath(CheckEvidence, frozen=True):
    profile: str
    objective_ms: float


def find_single_paths(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find solid NVMe drives with an objective but only one path, native or behind an HBA.

    The future I/O rate is unknown here, so the finding is only informational.
    """
    if inputs.profile is None:
        return
    adapters = inputs.machine.adapters_by_target
    for endpoint in inputs.endpoints:
        has_one_path = endpoint.kind is Kind.DISK and endpoint.medium is Medium.NVME
        if not has_one_path or endpoint.storage is Storage.VIRTUAL:
            continue
        traits = build_traits(endpoint, adapters.get(endpoint.adapter or ""))
        goal = find_objective(inputs.profile, traits)
        if goal is not None:
            evidence = _SinglePath(inputs.profile.name, goal.p99_ms)
            yield check.report(Severity.INFO, endpoint, evidence)


# A path takes commands in these states. Some drivers report no state.
_WORKING = frozenset({"running", "live", attributes.ABSENT})


class _FewPaths(CheckEvidence, frozen=True):
    maps: tuple[str, ...]
    working: int
    expected: int


class _SuspendedMap(CheckEvidence, frozen=True):
    """A suspended map."""


def find_lost_paths(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find maps that are suspended or have at most one working path.

    More paths are expected if the map or a similar one has them, or an earlier check saw them. Maps
    with equal numbers are one finding.
    """
    usable = Counter(path.map for path in inputs.machine.endpoints if path.state in _WORKING)
    drives = {disk.map for disk in inputs.machine.endpoints if disk.kind is Kind.DISK}
    most: Counter[tuple[str, ...]] = Counter()
    for endpoint in inputs.machine.endpoints:
        model = (endpoint.family, endpoint.vendor, endpoint.model)
        most[model] = max(most[model], len(endpoint.paths))
    few: dict[tuple[int, int], list[str]] = defaultdict(list)
    for endpoint in inputs.endpoints:
        if endpoint.kind is not Kind.MAP:
            continue
        if endpoint.state == SUSPENDED:
            yield check.report(Severity.WARNING, endpoint, _SuspendedMap())
        working = usable[endpoint.target]
        earlier = [look.paths.get(endpoint.id, 0) for look in inputs.looks]
        expected = max(most[endpoint.family, endpoint.vendor, endpoint.model], *earlier, 1)
        has_cloud_paths = endpoint.family == "nvme" and endpoint.storage is Storage.VIRTUAL
        is_plain = has_cloud_paths or endpoint.target in drives
        if working == 0 or (working == 1 and (expected > 1 or not is_plain)):
            few[working, expected].append(endpoint.target)
    for (working, expected), maps in few.items():
        severity = Severity.WARNING if expected > 1 else Severity.ADVICE
        severity = severity if working else Severity.CRITICAL
        yield check.report_targets(severity, maps, _FewPaths(tuple(maps), working, expected))


class _UnevenPreference(CheckEvidence, frozen=True):
    preferred: int
    least: int
    adapters: tuple[str, ...]


def find_uneven_preference(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters that the arrays prefer more often than other adapters of the same LUNs."""
    adapters = inputs.machine.adapters_by_target
    for counts in count_preferences(inputs.endpoints):
        least = min(counts.values())
        busiest, preferred = Counter(counts).most_common(1)[0]
        if preferred > least + 1:
            evidence = _UnevenPreference(preferred, least, tuple(counts))
            yield check.report(Severity.ADVICE, adapters[busiest], evidence)


def count_preferences(endpoints: Iterable[Endpoint]) -> list[dict[str, int]]:
    """Return the numbers of LUNs that prefer each adapter, for adapters that reach the same LUNs.

    ``preferred_path`` identifies the path that an array prefers. Without it, the preferred path is
    the optimized path of ALUA or ANA. LUNs without this information are skipped.
    """
    disks = [endpoint for endpoint in endpoints if endpoint.kind is not Kind.MAP]
    luns = group_items(disks, lambda disk: disk.map or extract_stable_part(disk.id))
    preferences: dict[frozenset[str], Counter[str | None]] = defaultdict(Counter)
    for paths in luns.values():
        adapters = frozenset(path.adapter for path in paths if path.adapter)
        states = [fact for path in paths for fact in (path.access, path.preferred)]
        if len(adapters) > 1 and not all(isinstance(state, Missing) for state in states):
            preferring = {path.adapter for path in paths if path.preferred is True}
            serving = preferring or {path.adapter for path in paths if path.access in OPTIMIZED}
            # A LUN may prefer no adapter, or several.
            preferences[adapters][serving.pop() if len(serving) == 1 else None] += 1
    return [
        {adapter: counts[adapter] for adapter in sorted(adapters)}
        for adapters, counts in preferences.items()
    ]


class _SharedName(CheckEvidence, frozen=True):
    name: str
    others: tuple[str, ...]
    disks: tuple[str, ...]


def find_shared_names(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks that share a name without a map: one LUN found twice, or two drives."""
    ids = {endpoint.id for endpoint in inputs.endpoints}
    named = [e for e in inputs.machine.endpoints if e.kind is Kind.DISK and not is_nameless(e)]
    for name, namesakes in group_items(named, lambda disk: extract_stable_part(disk.id)).items():
        disks = tuple(disk.target for disk in namesakes)
        for endpoint in namesakes:
            others = tuple(disk for disk in disks if disk != endpoint.target)
            if others and endpoint.id in ids:
                yield check.report(Severity.WARNING, endpoint, _SharedName(name, others, disks))


class _MissingName(CheckEvidence, frozen=True):
    """A disk without a stable name."""


def find_missing_names(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks without a name, which only their address identifies."""
    for endpoint in inputs.endpoints:
        if endpoint.kind is not Kind.MAP and is_nameless(endpoint):
            yield check.report(Severity.INFO, endpoint, _MissingName())


class _UnmatchedName(CheckEvidence, frozen=True):
    key: str
    name: str


def find_unmatched_names(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find names in [site] that match nothing on this machine."""
    for entry in list_unmatched_names(inputs.machine, inputs.site):
        yield check.report_machine(Severity.WARNING, _UnmatchedName(entry.key, entry.name))


class _UnreadFacts(CheckEvidence, frozen=True):
    facts: tuple[str, ...]
    reasons: tuple[str, ...]
    roots: tuple[str, ...]
    failed: tuple[str, ...]


def find_unread_adapters(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters with unreadable facts that checks need."""
    for adapter in inputs.adapters:
        yield from _report_unread(check, adapter, _list_adapter_facts(inputs, adapter))


def find_unread_disks(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find endpoints with unreadable facts that checks need."""
    for endpoint in inputs.endpoints:
        yield from _report_unread(check, endpoint, _list_disk_facts(inputs, endpoint))


def _report_unread(
    check: Check, subject: Adapter | Endpoint, facts: Iterable[tuple[str, object]]
) -> Iterator[Finding]:
    """Yield a finding with the errors of the reads if any of the facts could not be read."""
    missing = {}
    root_only = []
    for name, fact in facts:
        if isinstance(fact, Missing) and fact.reason is not Reason.ABSENT:
            missing[name] = _describe_reason(fact)
            if fact.is_denied:
                root_only.append(name)
    if missing:
        names, reasons = tuple(missing), tuple(dict.fromkeys(missing.values()))
        evidence = _UnreadFacts(names, reasons, tuple(root_only), () if root_only else names)
        yield check.report(Severity.ADVICE, subject, evidence)


def _describe_reason(fact: Missing) -> str:
    """Describe why a fact is missing: the error of the read, or the text that makes no sense."""
    if fact.reason is Reason.UNPARSABLE:
        return f"makes no sense: {fact.text}"
    if fact.text:
        return fact.text
    return os.strerror(fact.errno) if fact.errno else str(fact.reason)


def _list_adapter_facts(inputs: CheckInput, adapter: Adapter) -> Iterator[tuple[str, object]]:
    yield "firmware", adapter.firmware
    if adapter.link:
        for name, fact in (("speed", adapter.link.speed), ("width", adapter.link.width)):
            # The kernel shows "Unknown" and 0 lanes for integrated functions, which have no link.
            if not (isinstance(fact, Missing) and fact.reason is Reason.UNPARSABLE):
                yield f"link {name}", fact
    for host in adapter.hosts:
        yield f"can_queue of {host.name}", host.can_queue
    health = inputs.health.adapters.get(adapter.target)
    if health is None:
        return
    for location, errors in (
        ("adapter", health.errors),
        ("port", health.port and health.port.errors),
        ("root port", health.root and health.root.errors),
    ):
        if errors:
            for kind in BUS_COUNTERS:
                yield f"{kind} errors of the {location}", getattr(errors, kind)
    yield "interrupt vectors", health.vectors
    if any(line_adapter.target == adapter.target for line_adapter, _ in list_intx_adapters(inputs)):
        yield "capabilities", health.offers_msi
    for name, value in health.options.items():
        yield f"option {name}", value
    for name, offered in health.credits.items():
        yield f"firmware's credits of {name}", offered


def _list_disk_facts(inputs: CheckInput, endpoint: Endpoint) -> Iterator[tuple[str, object]]:
    yield "queue_depth", table.SETTINGS[table.QUEUE_DEPTH].read(endpoint.attributes)
    health = inputs.health.disks.get(endpoint.target)
    if health is not None:
        yield "cache type", health.cache
        yield "commands without good status", health.errors
        yield "timeouts", health.timeouts
        yield "preferred path", endpoint.preferred
    yield "multipath table", endpoint.path_groups
