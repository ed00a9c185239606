"""Checks of disks, their paths and names, and of facts that could not be read.

Checks of disks: caches, mounts, and statistics.

No finding here is a reason to switch a drive's own cache on: its content is lost with the power.

Checks of paths and names: several paths, evenly preferred (D4-4), and unique names.

Checks for facts that exist but could not be read: such a machine must not be called clean.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from hbatune.checks.adapter_checks import on_a_line
from hbatune.checks.finding import (
    MACHINE,
    Check,
    CheckInput,
    Finding,
    Severity,
    denied,
    family_of,
    unread,
)
from hbatune.facts.devices import SWAP
from hbatune.facts.family import identify
from hbatune.facts.ids import UNNAMED, stable_name, stable_part
from hbatune.facts.model import (
    Adapter,
    Attribute,
    Endpoint,
    Kind,
    Medium,
    Missing,
    Protocol,
    Reason,
    Storage,
)
from hbatune.policy.match import objective, traits, unmatched
from hbatune.settings.table import SETTINGS

_NO_UPDATES = frozenset({"noatime", "ro"})


def show_drive_caches(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Report each drive's cache type; maps are left out, since their paths have it."""
    for endpoint in seen.endpoints:
        health = seen.of_disk(endpoint)
        drives = endpoint.kind is not Kind.MAP and endpoint.protocol is not Protocol.VOLUME
        if drives and health and isinstance(health.cache, str):
            yield check.found(Severity.INFO, endpoint, cache=health.cache)


def find_adapter_caches(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Report adapters with volumes: no attribute shows their protected cache."""
    for adapter, volumes in _with_volumes(seen):
        if _has_cache(adapter) is not False:
            yield check.found(Severity.INFO, adapter, volumes=volumes, family=adapter.family)


def find_cacheless_adapters(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Report adapters with volumes that have no write cache at all, and the disks that turn."""
    for adapter, volumes in _with_volumes(seen):
        if _has_cache(adapter) is False:
            spinning = tuple(
                endpoint.target
                for endpoint in seen.endpoints
                if endpoint.adapter == adapter.target and endpoint.medium is Medium.HDD
            )
            yield check.found(
                Severity.INFO,
                adapter,
                volumes=volumes,
                product=adapter.product,
                spinning=spinning,
            )


def _with_volumes(seen: CheckInput) -> Iterator[tuple[Adapter, tuple[str, ...]]]:
    """Yield the adapters with volumes, and those volumes."""
    for adapter in seen.adapters:
        volumes = tuple(
            endpoint.target
            for endpoint in seen.endpoints
            if endpoint.adapter == adapter.target and endpoint.protocol is Protocol.VOLUME
        )
        if volumes:
            yield adapter, volumes


def _has_cache(adapter: Adapter) -> bool | None:
    product = identify(family_of(adapter).products, adapter.pci)
    return None if product is None else product.cache


def find_access_times(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find mounts that update access times: at each read, or at most daily (relatime)."""
    options = {mount.point: mount.options for mount in seen.health.mounts}
    told: set[str] = set()
    # Maps before paths: a mount is reported once, on the map.
    for endpoint in sorted(seen.endpoints, key=lambda each: each.kind is Kind.PATH):
        for point in endpoint.mounts:
            if point in told or point == SWAP or point not in options:
                continue
            told.add(point)
            if not _NO_UPDATES.intersection(options[point]):
                relative = "relatime" in options[point]
                yield check.found(
                    Severity.INFO if relative else Severity.ADVICE,
                    endpoint,
                    point=point,
                    relatime=relative,
                )


def find_statistics_off(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks whose statistics are off, so that they cannot be watched."""
    path = SETTINGS["iostats"].path
    for endpoint in seen.endpoints:
        found = endpoint.attributes.get(path)
        if isinstance(found, Attribute) and found.text == "0":
            yield check.found(Severity.INFO, endpoint)


_OPTIMIZED = ("active/optimized", "optimized")


class Balance(Struct, frozen=True):
    """The distribution of preferred paths over adapters that reach the same LUNs.

    ``preferred`` has for each adapter the number of LUNs that prefer it; ``undecided`` is the
    number of LUNs that prefer none of them, or several.
    """

    preferred: dict[str, int]
    undecided: int

    @property
    def even(self) -> bool:
        """Whether the numbers of LUNs per adapter differ by one at most."""
        counts = self.preferred.values()
        return max(counts) - min(counts) <= 1


def find_single_paths(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find NVMe drives with one path, native or behind an HBA, for which there is an objective.

    The rate of I/Os to come is not known here, so the finding is only informational.
    """
    if seen.profile is None:
        return
    adapters = {adapter.target: adapter for adapter in seen.machine.adapters}
    for endpoint in seen.endpoints:
        alone = endpoint.kind is Kind.DISK and endpoint.protocol is Protocol.NVME
        if not alone or endpoint.storage is Storage.VIRTUAL:
            continue
        goal = objective(seen.profile, traits(endpoint, adapters.get(endpoint.adapter or "")))
        if goal is not None:
            yield check.found(
                Severity.INFO, endpoint, profile=seen.profile.name, objective_ms=goal.p99_ms
            )


def find_uneven_preference(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters that the arrays prefer more often than others that reach the same LUNs."""
    adapters = {adapter.target: adapter for adapter in seen.machine.adapters}
    for balance in uneven_balances(seen.endpoints):
        busiest, most = Counter(balance.preferred).most_common(1)[0]
        yield check.found(
            Severity.ADVICE,
            adapters[busiest],
            preferred=most,
            least=min(balance.preferred.values()),
            adapters=tuple(balance.preferred),
        )


def path_balances(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
    """Return the balance of each set of adapters that reach the same LUNs, the uneven ones too.

    The path that an array prefers is the one whose ``preferred_path`` says so, or else the one that
    ALUA or ANA calls optimized. LUNs without any of this information are left out.
    """
    sets: dict[frozenset[str], list[str | None]] = defaultdict(list)
    for paths in _luns(endpoints):
        adapters = frozenset(path.adapter for path in paths if path.adapter)
        if len(adapters) > 1 and any(_says_something(path) for path in paths):
            sets[adapters].append(_first(paths))
    return tuple(_balance(adapters, firsts) for adapters, firsts in sets.items())


def uneven_balances(endpoints: Iterable[Endpoint]) -> tuple[Balance, ...]:
    """Return the balances that are uneven."""
    return tuple(found for found in path_balances(endpoints) if not found.even)


def find_shared_names(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks that share a name without a map: one LUN seen twice, or two drives."""
    asked = {endpoint.id for endpoint in seen.endpoints}
    named: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in seen.machine.endpoints:
        if endpoint.kind is Kind.DISK and not _nameless(endpoint):
            named[stable_part(endpoint.id)].append(endpoint)
    for name, alike in named.items():
        for each in alike if len(alike) > 1 else ():
            if each.id in asked:
                others = tuple(other.target for other in alike if other is not each)
                yield check.found(Severity.WARNING, each, name=name, others=others)


def find_missing_names(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find disks without a name, which can only be identified by their place."""
    for endpoint in seen.endpoints:
        if endpoint.kind is not Kind.MAP and _nameless(endpoint):
            yield check.found(Severity.INFO, endpoint)


def find_unmatched_names(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find names in [site] that match nothing on this machine."""
    for each in unmatched(seen.machine, seen.site):
        yield check.found(Severity.WARNING, MACHINE, key=each.key, name=each.name)


def _luns(endpoints: Iterable[Endpoint]) -> Iterable[list[Endpoint]]:
    """Return the paths to each LUN: those of one map, or those of one stable name."""
    luns: dict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        if endpoint.kind is not Kind.MAP:
            luns[endpoint.map or stable_part(endpoint.id)].append(endpoint)
    return luns.values()


def _says_something(path: Endpoint) -> bool:
    return isinstance(path.access, str) or isinstance(path.preferred, bool)


def _first(paths: Iterable[Endpoint]) -> str | None:
    """Return the adapter that the LUN prefers, None where there is none or several."""
    preferring = {path.adapter for path in paths if path.preferred is True}
    serving = preferring or {path.adapter for path in paths if path.access in _OPTIMIZED}
    return serving.pop() if len(serving) == 1 else None


def _balance(adapters: Iterable[str], firsts: list[str | None]) -> Balance:
    counts = Counter(firsts)
    return Balance({adapter: counts[adapter] for adapter in sorted(adapters)}, counts[None])


def _nameless(disk: Endpoint) -> bool:
    """Whether a disk's id consists of vendor and model only."""
    return stable_part(disk.id) in (UNNAMED, stable_name("", disk.vendor, disk.model))


def find_unread_adapters(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find adapters with unreadable facts that checks need."""
    for adapter in seen.adapters:
        yield from _told(check, adapter, _of_adapter(seen, adapter))


def find_unread_disks(check: Check, seen: CheckInput) -> Iterator[Finding]:
    """Find endpoints with unreadable facts that checks need."""
    for endpoint in seen.endpoints:
        yield from _told(check, endpoint, _of_disk(seen, endpoint))


def _told(
    check: Check, on: Adapter | Endpoint, facts: Iterable[tuple[str, object]]
) -> Iterator[Finding]:
    """Yield a finding if any of the facts could not be read, with what each read ended with."""
    missing = [(name, fact) for name, fact in facts if isinstance(fact, Missing) and unread(fact)]
    if missing:
        roots = tuple(name for name, fact in missing if denied(fact))
        yield check.found(
            Severity.ADVICE,
            on,
            facts=tuple(name for name, _ in missing),
            reasons=tuple(dict.fromkeys(_reason(fact) for _, fact in missing)),
            roots=roots,
            failed=() if roots else tuple(name for name, _ in missing),
        )


def _reason(fact: Missing) -> str:
    """Return why a fact is missing: what the read ended with, or the text that makes no sense."""
    if fact.reason is Reason.UNPARSABLE:
        return f"makes no sense: {fact.text}"
    if fact.text:
        return fact.text
    return os.strerror(fact.errno) if fact.errno else str(fact.reason)


def _of_adapter(seen: CheckInput, adapter: Adapter) -> Iterator[tuple[str, object]]:
    yield "firmware", adapter.firmware
    if adapter.link:
        for name, fact in (("speed", adapter.link.speed), ("width", adapter.link.width)):
            # The kernel shows "Unknown" and 0 lanes for integrated functions, which have no link.
            if not (isinstance(fact, Missing) and fact.reason is Reason.UNPARSABLE):
                yield f"link {name}", fact
    for host in adapter.hosts:
        yield f"can_queue of {host.name}", host.can_queue
    health = seen.of_adapter(adapter)
    if health is None:
        return
    for place, errors in (
        ("adapter", health.errors),
        ("port", health.port and health.port.errors),
        ("root port", health.root and health.root.errors),
    ):
        if errors:
            for kind in ("correctable", "nonfatal", "fatal"):
                yield f"{kind} errors of the {place}", getattr(errors, kind)
    yield "interrupt vectors", health.vectors
    if any(each.target == adapter.target for each, _ in on_a_line(seen)):
        yield "capabilities", health.offers_msi
    for name, value in health.options.items():
        yield f"option {name}", value
    for name, offered in health.credits.items():
        yield f"firmware's credits of {name}", offered


def _of_disk(seen: CheckInput, endpoint: Endpoint) -> Iterator[tuple[str, object]]:
    yield "queue_depth", endpoint.attributes.get("device/queue_depth")
    health = seen.of_disk(endpoint)
    if health is not None:
        yield "cache type", health.cache
        yield "commands without good status", health.errors
        yield "timeouts", health.timeouts
        yield "preferred path", endpoint.preferred
