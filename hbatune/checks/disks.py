"""Checks of disks: caches, mounts, and statistics.

No finding here is a reason to switch a drive's own cache on: its content is lost with the power.
"""

from collections.abc import Iterator

from hbatune.checks.model import Check, CheckInput, Finding, Severity, family_of
from hbatune.facts.devices import SWAP
from hbatune.facts.family import identify
from hbatune.facts.model import Adapter, Attribute, Kind, Medium, Protocol
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
                each.target
                for each in seen.endpoints
                if each.adapter == adapter.target and each.medium is Medium.HDD
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
