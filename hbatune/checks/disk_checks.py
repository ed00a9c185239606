"""Checks of disks: caches, mounts, statistics, paths, names, and unread facts.

No finding recommends enabling a drive's internal cache, which loses its content without power. The
path checks look for several, evenly preferred paths (D4-4). A machine with facts that exist but
could not be read must not be called clean.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from hbatune.checks.adapter_checks import list_intx_adapters
from hbatune.checks.finding import (
    MACHINE_TARGET,
    Check,
    CheckInput,
    Finding,
    Severity,
    get_family,
    is_denied,
    is_unread,
)
from hbatune.facts.devices import SWAP
from hbatune.facts.family import identify_product
from hbatune.facts.ids import UNNAMED, extract_stable_part, make_stable_name
from hbatune.facts.model import (
    Adapter,
    Endpoint,
    Kind,
    Medium,
    Missing,
    Protocol,
    Reason,
    Storage,
)
from hbatune.policy.match import build_traits, find_objective, list_unmatched_names
from hbatune.settings.table import QUEUE_DEPTH, SETTINGS

_NO_UPDATES = frozenset({"noatime", "ro"})


def show_drive_caches(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report each drive's cache type. Maps are skipped, since their paths report it."""
    for endpoint in inputs.endpoints:
        health = inputs.of_disk(endpoint)
        is_drive = endpoint.kind is not Kind.MAP and endpoint.protocol is not Protocol.VOLUME
        if is_drive and health and isinstance(health.cache, str):
            yield check.found(Severity.INFO, endpoint, cache=health.cache)


def find_adapter_caches(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report adapters with volumes, since no attribute shows their protected cache."""
    for adapter, volumes in _find_volume_adapters(inputs):
        if _has_cache(adapter) is not False:
            yield check.found(Severity.INFO, adapter, volumes=volumes, family=adapter.family)


def find_cacheless_adapters(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Report adapters with volumes but without a write cache, and their rotational disks."""
    for adapter, volumes in _find_volume_adapters(inputs):
        if _has_cache(adapter) is False:
            spinning = tuple(
                endpoint.target
                for endpoint in inputs.endpoints
                if endpoint.adapter == adapter.target and endpoint.medium is Medium.HDD
            )
            yield check.found(
                Severity.INFO,
                adapter,
                volumes=volumes,
                product=adapter.product,
                spinning=spinning,
            )


def _find_volume_adapters(inputs: CheckInput) -> Iterator[tuple[Adapter, tuple[str, ...]]]:
    """Yield the adapters that have volumes, with these volumes."""
    for adapter in inputs.adapters:
        volumes = tuple(
            endpoint.target
            for endpoint in inputs.endpoints
            if endpoint.adapter == adapter.target and endpoint.protocol is Protocol.VOLUME
        )
        if volumes:
            yield adapter, volumes


def _has_cache(adapter: Adapter) -> bool | None:
    product = identify_product(get_family(adapter).products, adapter.pci)
    return None if product is None else product.cache


def find_access_times(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find mounts that update access times, at each read or at most daily (relatime)."""
    options = {mount.point: mount.options for mount in inputs.health.mounts}
    reported: set[str] = set()
    # Maps come before paths, so a mount is reported once, on the map.
    for endpoint in sorted(inputs.endpoints, key=lambda endpoint: endpoint.kind is Kind.PATH):
        for point in endpoint.mounts:
            if point in reported or point == SWAP or point not in options:
                continue
            reported.add(point)
            if not _NO_UPDATES.intersection(options[point]):
                is_relative = "relatime" in options[point]
                yield check.found(
                    Severity.INFO if is_relative else Severity.ADVICE,
                    endpoint,
                    point=point,
                    relatime=is_relative,
                )


def find_statistics_off(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks that cannot be watched because their statistics are off."""
    for endpoint in inputs.endpoints:
        if SETTINGS["iostats"].read(endpoint.attributes) == 0:
            yield check.found(Severity.INFO, endpoint)


_OPTIMIZED = ("active/optimized", "optimized")


class Balance(Struct, frozen=True):
    """The distribution of preferred paths over adapters that reach the same LUNs.

    ``preferred`` contains the number of LUNs that prefer each adapter. ``undecided`` is the number
    of LUNs that prefer no adapter, or several.
    """

    preferred: dict[str, int]
    undecided: int

    @property
    def even(self) -> bool:
        """Whether the numbers of LUNs per adapter differ by at most one."""
        counts = self.preferred.values()
        return max(counts) - min(counts) <= 1


def find_single_paths(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find NVMe drives with an objective but only one path, native or behind an HBA.

    The future I/O rate is unknown here, so the finding is only informational.
    """
    if inputs.profile is None:
        return
    adapters = {adapter.target: adapter for adapter in inputs.machine.adapters}
    for endpoint in inputs.endpoints:
        has_one_path = endpoint.kind is Kind.DISK and endpoint.protocol is Protocol.NVME
        if not has_one_path or endpoint.storage is Storage.VIRTUAL:
            continue
        goal = find_objective(
            inputs.profile, build_traits(endpoint, adapters.get(endpoint.adapter or ""))
        )
        if goal is not None:
            yield check.found(
                Severity.INFO, endpoint, profile=inputs.profile.name, objective_ms=goal.p99_ms
            )


def find_uneven_preference(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find adapters that the arrays prefer more often than other adapters of the same LUNs."""
    adapters = {adapter.target: adapter for adapter in inputs.machine.adapters}
    for balance in find_uneven_balances(inputs.endpoints):
        busiest, preferred = Counter(balance.preferred).most_common(1)[0]
        yield check.found(
            Severity.ADVICE,
            adapters[busiest],
            preferred=preferred,
            least=min(balance.preferred.values()),
            adapters=tuple(balance.preferred),
        )


def compute_balances(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
    """Return the balance of each set of adapters that reach the same LUNs, even or uneven.

    ``preferred_path`` identifies the path that an array prefers. Without it, the preferred path is
    the optimized path of ALUA or ANA. LUNs without this information are skipped.
    """
    sets: dict[frozenset[str], list[str | None]] = defaultdict(list)
    for paths in _group_paths(endpoints):
        adapters = frozenset(path.adapter for path in paths if path.adapter)
        if len(adapters) > 1 and any(_has_preference(path) for path in paths):
            sets[adapters].append(_find_preferred(paths))
    return tuple(
        _make_balance(adapters, preferred_adapters) for adapters, preferred_adapters in sets.items()
    )


def find_uneven_balances(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
    """Return the uneven balances."""
    return tuple(balance for balance in compute_balances(endpoints) if not balance.even)


def find_shared_names(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks that share a name without a map: one LUN found twice, or two drives."""
    ids = {endpoint.id for endpoint in inputs.endpoints}
    by_name: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in inputs.machine.endpoints:
        if endpoint.kind is Kind.DISK and not _is_nameless(endpoint):
            by_name[extract_stable_part(endpoint.id)].append(endpoint)
    for name, namesakes in by_name.items():
        for endpoint in namesakes if len(namesakes) > 1 else ():
            if endpoint.id in ids:
                other_targets = tuple(
                    namesake.target for namesake in namesakes if namesake is not endpoint
                )
                yield check.found(Severity.WARNING, endpoint, name=name, others=other_targets)


def find_missing_names(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find disks without a name, which only their address identifies."""
    for endpoint in inputs.endpoints:
        if endpoint.kind is not Kind.MAP and _is_nameless(endpoint):
            yield check.found(Severity.INFO, endpoint)


def find_unmatched_names(check: Check, inputs: CheckInput) -> Iterator[Finding]:
    """Find names in [site] that match nothing on this machine."""
    for entry in list_unmatched_names(inputs.machine, inputs.site):
        yield check.found(Severity.WARNING, MACHINE_TARGET, key=entry.key, name=entry.name)


def _group_paths(endpoints: Iterable[Endpoint]) -> Iterable[list[Endpoint]]:
    """Group the paths by LUN: by their map, or else by their stable name."""
    luns: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        if endpoint.kind is not Kind.MAP:
            luns[endpoint.map or extract_stable_part(endpoint.id)].append(endpoint)
    return luns.values()


def _has_preference(path: Endpoint) -> bool:
    return isinstance(path.access, str) or isinstance(path.preferred, bool)


def _find_preferred(paths: Iterable[Endpoint]) -> str | None:
    """Return the adapter that the LUN prefers, or None if it prefers none or several."""
    preferring = {path.adapter for path in paths if path.preferred is True}
    serving = preferring or {path.adapter for path in paths if path.access in _OPTIMIZED}
    return serving.pop() if len(serving) == 1 else None


def _make_balance(adapters: Iterable[str], preferred_adapters: list[str | None]) -> Balance:
    counts = Counter(preferred_adapters)
    return Balance({adapter: counts[adapter] for adapter in sorted(adapters)}, counts[None])


def _is_nameless(disk: Endpoint) -> bool:
    """Return whether a disk's id consists only of vendor and model."""
    return extract_stable_part(disk.id) in (UNNAMED, make_stable_name("", disk.vendor, disk.model))


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
    missing = [
        (name, fact) for name, fact in facts if isinstance(fact, Missing) and is_unread(fact)
    ]
    if missing:
        root_only = tuple(name for name, fact in missing if is_denied(fact))
        yield check.found(
            Severity.ADVICE,
            subject,
            facts=tuple(name for name, _ in missing),
            reasons=tuple(dict.fromkeys(_describe_reason(fact) for _, fact in missing)),
            roots=root_only,
            failed=() if root_only else tuple(name for name, _ in missing),
        )


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
    health = inputs.of_adapter(adapter)
    if health is None:
        return
    for location, errors in (
        ("adapter", health.errors),
        ("port", health.port and health.port.errors),
        ("root port", health.root and health.root.errors),
    ):
        if errors:
            for kind in ("correctable", "nonfatal", "fatal"):
                yield f"{kind} errors of the {location}", getattr(errors, kind)
    yield "interrupt vectors", health.vectors
    if any(line_adapter.target == adapter.target for line_adapter, _ in list_intx_adapters(inputs)):
        yield "capabilities", health.offers_msi
    for name, value in health.options.items():
        yield f"option {name}", value
    for name, offered in health.credits.items():
        yield f"firmware's credits of {name}", offered


def _list_disk_facts(inputs: CheckInput, endpoint: Endpoint) -> Iterator[tuple[str, object]]:
    yield "queue_depth", SETTINGS[QUEUE_DEPTH].read(endpoint.attributes)
    health = inputs.of_disk(endpoint)
    if health is not None:
        yield "cache type", health.cache
        yield "commands without good status", health.errors
        yield "timeouts", health.timeouts
        yield "preferred path", endpoint.preferred
