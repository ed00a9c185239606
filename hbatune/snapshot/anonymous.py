"""Removes from a snapshot all that identifies a host or a drive: serials, WWNs, names, mounts.

Each is replaced by a keyed hash, the same everywhere in the file, under a key that is not kept: ids
stay distinct and still match each other, and cannot be found by trying.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hbatune.facts.health import TunedProfile, TunedWrite
from hbatune.facts.ids import UNNAMED, canonical, former_id, lasting, stable_part
from hbatune.facts.model import Endpoint, Kind, Machine, Missing
from hbatune.facts.targets import names_of
from hbatune.policy.config import Site
from hbatune.snapshot.file import Snapshot

_SHORTEST = 6
"""Shorter parts of an id identify no drive, and occur in too many ordinary words."""

_LONG = 8
"""Identities of this length are replaced inside of longer words, too."""

# World-wide names (NAA, EUI-64, UUID, with and without their prefixes), wherever they stand.
_WORLD_WIDE = (
    r"(?:(?:0x|naa\.|eui\.|uuid\.|wwn-|nvme\.)[0-9A-F][0-9A-F.-]{7,}"
    r"|[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}"
    r"|(?=[0-9A-F]*[0-9])[0-9A-F]{16,})"
)
_BEFORE, _AFTER = r"(?<![0-9A-Za-z])", r"(?![0-9A-Za-z])"

# Fields named by the kernel or a standard, and values of settings: none holds an identity, and a
# host with the name of one of them (say `nvme`) must not make the snapshot unreadable.
_FACTS_KEPT = frozenset(
    (
        *("target", "adapter", "family", "driver", "kind", "protocol", "medium", "type", "reason"),
        *("sysfs", "device_node", "address", "controller", "name", "proc_name", "map", "paths"),
        *("attribute", "attributes", "daemons", "tools"),
    )
)
_POLICY_KEPT = frozenset(
    ("setting", "type", "value", "origin", "when", "pattern", "block_size", "family")
)

# The port in an id where only the kernel's numbers make it up, and the part that is the LUN's.
_KERNELS_OWN = re.compile(r"(host-\d+-)?(scsi-[\d:]+|ata-\d+(-scsi-[\d:]+)?)(~\S+)?|[\d:]+|\w+\d+")
_LUN = re.compile(r"(?P<port>.*?)(?P<lun>(-lun-\d+)?(~[^~]*)?)", re.DOTALL)

Scrub = Callable[[str], str]

_STANDARD = frozenset(
    (
        *("/", "/boot", "/boot/efi", "/efi", "/home", "/opt", "/root", "/srv", "/tmp", "/usr"),
        *("/var", "/var/log", "/var/tmp", "/var/lib", "[SWAP]"),
    )
)
"""Mount points that every host may have (Filesystem Hierarchy Standard); others name something."""

_PROFILES = frozenset(
    (
        *("accelerator-performance", "balanced", "desktop", "hpc-compute", "intel-sst"),
        *(
            "latency-performance",
            "network-latency",
            "network-throughput",
            "optimize-serial-console",
        ),
        *("optimize-serial-console", "throughput-performance", "virtual-guest", "virtual-host"),
    )
)
"""Profiles that tuned itself comes with."""

_SAID = {"anonymous": True, "looks": ()}  # earlier looks are keyed by the identities


def anonymous(snapshot: Snapshot, *, key: bytes | None = None) -> Snapshot:
    """Return the snapshot without serial numbers, WWNs and host names; ``key`` is for tests."""
    pseudonym = _pseudonyms(os.urandom(32) if key is None else key)
    scrub = _scrubber(_identities(snapshot.machine), pseudonym)
    whole = msgspec.to_builtins(snapshot)
    machine = _walk(whole["machine"], scrub, _FACTS_KEPT)
    machine["hostname"] = pseudonym(snapshot.machine.hostname)
    machine["boot_id"] = pseudonym(snapshot.machine.boot_id)
    for told, endpoint in zip(machine["endpoints"], snapshot.machine.endpoints, strict=True):
        # Ids are rebuilt rather than searched, so that their routes stay readable.
        told["id"] = _id(endpoint, pseudonym)
        told["mounts"] = [_point(each, pseudonym) for each in endpoint.mounts]
    for told, control in zip(machine["controls"], snapshot.machine.controls, strict=True):
        told["id"] = f"{control.id.partition('@')[0]}@{_route(control.id, pseudonym)}"
    policy = _walk(whole["policy"], scrub, _POLICY_KEPT)
    names = _names(snapshot.machine, pseudonym)
    policy["site"] = _site(snapshot.policy.site, policy["site"], names, pseudonym)
    policy["rolled_back"] = [names.get(id) or pseudonym(id) for id in snapshot.policy.rolled_back]
    for told, each in zip(policy["reverted"], snapshot.policy.reverted, strict=True):
        told["id"] = names.get(each.id) or pseudonym(each.id)
    health = _walk(whole["health"], scrub, _FACTS_KEPT)
    for told, mount in zip(health["mounts"], snapshot.health.mounts, strict=True):
        told["point"] = _point(mount.point, pseudonym)
    health["tuned"] = msgspec.to_builtins(_tuned(snapshot.health.tuned, scrub, pseudonym))
    return msgspec.convert(
        {**whole, "machine": machine, "health": health, "policy": policy, **_SAID},
        Snapshot,
    )


def _pseudonyms(key: bytes) -> Scrub:
    """Return a function that gives each text its pseudonym: 64 bits, so that no two share one."""

    def pseudonym(text: str) -> str:
        return "anon-" + hashlib.blake2b(text.encode(), key=key, digest_size=8).hexdigest()

    return pseudonym


def _point(point: str, pseudonym: Scrub) -> str:
    """Return a mount point; one that is not a standard one becomes a pseudonym, the same each time.

    It is often the name of a person, a customer or a database.
    """
    return point if point in _STANDARD else f"/{pseudonym(point)}"


def _tuned(found: TunedProfile | Missing, scrub: Scrub, pseudonym: Scrub) -> TunedProfile | Missing:
    """Return the profile of tuned without the names of a site's own profiles."""
    if isinstance(found, Missing):
        return Missing(found.reason, found.errno)  # its text may name a profile

    def called(name: str) -> str:
        return name if name in _PROFILES else pseudonym(name)

    def write(each: TunedWrite) -> TunedWrite:
        file = Path(each.file)
        place = file.parent.with_name(called(file.parent.name)) / file.name
        return TunedWrite(str(place), each.attribute, scrub(each.value))

    names = " ".join(map(called, found.names.split()))
    return TunedProfile(names, tuple(map(write, found.writes)))


def _id(endpoint: Endpoint, pseudonym: Scrub) -> str:
    if endpoint.kind is Kind.MAP:
        return pseudonym(endpoint.id)
    return f"{pseudonym(stable_part(endpoint.id))}@{_route(endpoint.id, pseudonym)}"


def _route(id: str, pseudonym: Scrub) -> str:
    """Return the route in an id; parts that are not the kernel's own become a pseudonym."""
    route = id.rpartition("@")[2]
    adapter, slash, port = route.partition("/")
    if not slash or _KERNELS_OWN.fullmatch(port):
        return route
    found = _LUN.fullmatch(port)
    assert found is not None
    return f"{adapter}/{pseudonym(found['port'])}{found['lun']}"


def _site(
    site: Site, told: dict[str, Any], names: Mapping[str, str], pseudonym: Scrub
) -> dict[str, Any]:
    """Return the site's configuration with the pseudonyms of its targets."""

    spelled = {canonical(name): told for name, told in names.items()}

    def called(name: str) -> str:
        # A name that matches no endpoint is hidden as well: it may be a drive's that was taken out.
        return names.get(name) or spelled.get(canonical(name)) or pseudonym(name)

    arrays = [
        {
            **array,
            "name": pseudonym(own.name),
            "targets": [called(target) for target in own.targets],
        }
        for array, own in zip(told["array"], site.array, strict=True)
    ]
    members = {called(name): count for name, count in site.members.items()}
    exclude = [called(name) for name in site.exclude]
    return {**told, "exclude": exclude, "array": arrays, "members": members}


def _names(machine: Machine, pseudonym: Scrub) -> dict[str, str]:
    """Return the new name for each name of an endpoint; the kernel's names stay."""
    names: dict[str, str] = {}
    for endpoint in machine.endpoints:
        names.update((name, name) for name in names_of(endpoint))
    for endpoint in machine.endpoints:
        changed = _id(endpoint, pseudonym)
        names.update((id, changed) for id in (endpoint.id, lasting(endpoint.id)))
        names[former_id(endpoint)] = changed
        names[stable_part(endpoint.id)] = stable_part(changed)
    return names


def _identities(machine: Machine) -> Iterator[str]:
    """Yield every text that identifies this host or one of its drives."""
    yield machine.hostname
    yield machine.hostname.partition(".")[0]
    yield machine.boot_id
    for endpoint in machine.endpoints:
        stable = stable_part(endpoint.id)
        if stable not in (UNNAMED, endpoint.target):
            yield stable
            yield from _parts(stable, endpoint)


def _parts(stable: str, endpoint: Endpoint) -> Iterator[str]:
    """Yield the parts of a stable name that are neither maker nor model."""
    told = f"{endpoint.vendor} {endpoint.model} {endpoint.revision}".replace(" ", "_")
    for part in re.split(r"[-_.@]+", stable):
        if len(part) >= _SHORTEST and any(map(str.isdigit, part)) and part not in told:
            yield part


def _scrubber(identities: Iterable[str], pseudonym: Scrub) -> Scrub:
    """Return a function that replaces identities in a text, the longest first, and then WWNs."""
    # The longest first: a part of it must not be replaced within it.
    known = sorted({identity for identity in identities if identity}, key=len, reverse=True)
    anywhere = [re.escape(each) for each in known if len(each) >= _LONG]
    words = [re.escape(each) for each in known if len(each) < _LONG]
    bounded = f"{_BEFORE}(?:{'|'.join([*words, _WORLD_WIDE])}){_AFTER}"
    pattern = re.compile("|".join([*anywhere, bounded]), re.IGNORECASE)
    return lambda text: pattern.sub(lambda found: pseudonym(found[0]), text)


def _walk(value: Any, scrub: Scrub, kept: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: each if name in kept else _walk(each, scrub, kept) for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_walk(each, scrub, kept) for each in value]
    return scrub(value) if isinstance(value, str) else value
