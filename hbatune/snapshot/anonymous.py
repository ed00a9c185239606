"""Remove the identities of hosts and drives from a snapshot: serials, WWNs, names, mounts.

A keyed hash replaces each identity, the same everywhere in the file. Its key is discarded. Ids stay
distinct, still match each other, and cannot be guessed by brute force.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hbatune.facts import ids
from hbatune.facts.health import TunedProfile, TunedWrite
from hbatune.facts.model import Endpoint, Kind, Machine, Missing
from hbatune.facts.targets import list_endpoint_names
from hbatune.policy.config import Site
from hbatune.snapshot.file import Snapshot

# Minimum length of a part. Shorter parts identify no drive and occur in too many common words.
_MIN_PART_LENGTH = 6
# Identities of at least this length are also replaced inside longer words.
_MIN_INNER_LENGTH = 8

# World-wide names (NAA, EUI-64, UUID, with and without their prefixes) at any position.
_WORLD_WIDE = (
    r"(?:(?:0x|naa\.|eui\.|uuid\.|wwn-|nvme\.)[0-9A-F][0-9A-F.-]{7,}"
    r"|[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}"
    r"|(?=[0-9A-F]*[0-9])[0-9A-F]{16,})"
)
_BEFORE, _AFTER = r"(?<![0-9A-Za-z])", r"(?![0-9A-Za-z])"

# Fields named by the kernel or a standard, and values of settings. None of them contains an
# identity. A host named like one of them (say `nvme`) must not make the snapshot unreadable.
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

# A port in an id that consists of kernel numbers only, and a port split into port and LUN.
_KERNEL_PORT = re.compile(r"(host-\d+-)?(scsi-[\d:]+|ata-\d+(-scsi-[\d:]+)?)(~\S+)?|[\d:]+|\w+\d+")
_LUN = re.compile(r"(?P<port>.*?)(?P<lun>(-lun-\d+)?(~[^~]*)?)", re.DOTALL)

Scrub = Callable[[str], str]

# Standard mount points (Filesystem Hierarchy Standard). Any other may reveal a name.
_STANDARD = frozenset(
    (
        *("/", "/boot", "/boot/efi", "/efi", "/home", "/opt", "/root", "/srv", "/tmp", "/usr"),
        *("/var", "/var/log", "/var/tmp", "/var/lib", "[SWAP]"),
    )
)
# The profiles that tuned ships.
_PROFILES = frozenset(
    (
        *("accelerator-performance", "balanced", "desktop", "hpc-compute", "intel-sst"),
        *("latency-performance", "network-latency", "network-throughput"),
        *("optimize-serial-console", "throughput-performance", "virtual-guest", "virtual-host"),
    )
)


def anonymise_snapshot(snapshot: Snapshot, *, key: bytes | None = None) -> Snapshot:
    """Return the snapshot without serial numbers, WWNs and host names; ``key`` is for tests."""
    secret = os.urandom(32) if key is None else key

    def pseudonym(text: str) -> str:
        # 64 bits are enough to be unique.
        return "anon-" + hashlib.blake2b(text.encode(), key=secret, digest_size=8).hexdigest()

    scrub = _make_scrubber(_find_identities(snapshot.machine), pseudonym)
    content = msgspec.to_builtins(snapshot)
    machine = _scrub_values(content["machine"], scrub, _FACTS_KEPT)
    machine["hostname"] = pseudonym(snapshot.machine.hostname)
    machine["boot_id"] = pseudonym(snapshot.machine.boot_id)
    for entry, endpoint in zip(machine["endpoints"], snapshot.machine.endpoints, strict=True):
        # Ids are rebuilt, not searched, to keep their routes readable.
        entry["id"] = _hide_id(endpoint, pseudonym)
        entry["mounts"] = [_hide_mount(mount, pseudonym) for mount in endpoint.mounts]
    for entry, control in zip(machine["controls"], snapshot.machine.controls, strict=True):
        entry["id"] = f"{control.id.partition('@')[0]}@{_hide_route(control.id, pseudonym)}"
    policy = _scrub_values(content["policy"], scrub, _POLICY_KEPT)
    names = _map_names(snapshot.machine, pseudonym)
    policy["site"] = _hide_site(snapshot.policy.site, policy["site"], names, pseudonym)
    policy["rolled_back"] = [names.get(id) or pseudonym(id) for id in snapshot.policy.rolled_back]
    for entry, reverted in zip(policy["reverted"], snapshot.policy.reverted, strict=True):
        entry["id"] = names.get(reverted.id) or pseudonym(reverted.id)
    health = _scrub_values(content["health"], scrub, _FACTS_KEPT)
    for entry, mount in zip(health["mounts"], snapshot.health.mounts, strict=True):
        entry["point"] = _hide_mount(mount.point, pseudonym)
    health["tuned"] = msgspec.to_builtins(_hide_tuned(snapshot.health.tuned, scrub, pseudonym))
    for share, units in snapshot.health.io_shares.items():
        health["io_shares"][share] = list(map(pseudonym, units))
    content |= {"machine": machine, "health": health, "policy": policy, "anonymous": True}
    content["looks"] = ()  # earlier counts are keyed by identity
    return msgspec.convert(content, Snapshot)


def _hide_mount(point: str, pseudonym: Scrub) -> str:
    # Other mount points often contain the name of a person, a customer or a database.
    return point if point in _STANDARD else f"/{pseudonym(point)}"


def _hide_tuned(
    tuned: TunedProfile | Missing, scrub: Scrub, pseudonym: Scrub
) -> TunedProfile | Missing:
    if isinstance(tuned, Missing):
        return Missing(tuned.reason, tuned.errno)  # its text may name a profile

    def replace_name(name: str) -> str:
        return name if name in _PROFILES else pseudonym(name)

    writes = []
    for write in tuned.writes:
        file = Path(write.file)
        path = file.parent.with_name(replace_name(file.parent.name)) / file.name
        writes.append(TunedWrite(str(path), write.attribute, scrub(write.value)))
    return TunedProfile(" ".join(map(replace_name, tuned.names.split())), tuple(writes))


def _hide_id(endpoint: Endpoint, pseudonym: Scrub) -> str:
    if endpoint.kind is Kind.MAP:
        return pseudonym(endpoint.id)
    name = pseudonym(ids.extract_stable_part(endpoint.id))
    return f"{name}@{_hide_route(endpoint.id, pseudonym)}"


def _hide_route(id: str, pseudonym: Scrub) -> str:
    """Return the route in an id, with a pseudonym for parts that are not kernel numbers."""
    route = id.rpartition("@")[2]
    adapter, slash, port = route.partition("/")
    if not slash or _KERNEL_PORT.fullmatch(port):
        return route
    match = _LUN.fullmatch(port)
    assert match is not None
    return f"{adapter}/{pseudonym(match['port'])}{match['lun']}"


def _hide_site(
    site: Site, content: dict[str, Any], names: Mapping[str, str], pseudonym: Scrub
) -> dict[str, Any]:
    by_spelling = {ids.normalise_name(name): new_name for name, new_name in names.items()}

    def replace_name(name: str) -> str:
        # A name without an endpoint is hidden too: it may belong to a removed drive.
        return names.get(name) or by_spelling.get(ids.normalise_name(name)) or pseudonym(name)

    for entry, array in zip(content["array"], site.array, strict=True):
        entry["name"] = pseudonym(array.name)
        entry["targets"] = list(map(replace_name, array.targets))
    members = {replace_name(name): count for name, count in site.members.items()}
    exclude = list(map(replace_name, site.exclude))
    return {**content, "exclude": exclude, "members": members}


def _map_names(machine: Machine, pseudonym: Scrub) -> dict[str, str]:
    """Return the new name for each endpoint name. Kernel names are kept."""
    names: dict[str, str] = {}
    for endpoint in machine.endpoints:
        for name in list_endpoint_names(endpoint):
            names[name] = name
    for endpoint in machine.endpoints:
        new_id = _hide_id(endpoint, pseudonym)
        names[endpoint.id] = names[ids.extract_lasting_part(endpoint.id)] = new_id
        names[ids.build_former_id(endpoint)] = new_id
        names[ids.extract_stable_part(endpoint.id)] = ids.extract_stable_part(new_id)
    return names


def _find_identities(machine: Machine) -> Iterator[str]:
    yield from (machine.hostname, machine.hostname.partition(".")[0], machine.boot_id)
    for endpoint in machine.endpoints:
        stable = ids.extract_stable_part(endpoint.id)
        if stable not in (ids.UNNAMED, endpoint.target):
            yield stable
            # The parts of the name that are neither vendor nor model.
            model = f"{endpoint.vendor} {endpoint.model} {endpoint.revision}".replace(" ", "_")
            for part in re.split(r"[-_.@]+", stable):
                has_digit = any(map(str.isdigit, part))
                if len(part) >= _MIN_PART_LENGTH and has_digit and part not in model:
                    yield part


def _make_scrubber(identities: Iterable[str], pseudonym: Scrub) -> Scrub:
    """Return a function that replaces identities in a text, longest first, and then WWNs."""
    # Longest first: a part of an identity must not be replaced inside it.
    anywhere: list[str] = []
    words: list[str] = []
    for text in sorted({*identities} - {""}, key=len, reverse=True):
        group = anywhere if len(text) >= _MIN_INNER_LENGTH else words
        group.append(re.escape(text))
    bounded = f"{_BEFORE}(?:{'|'.join([*words, _WORLD_WIDE])}){_AFTER}"
    pattern = re.compile("|".join([*anywhere, bounded]), re.IGNORECASE)
    return lambda text: pattern.sub(lambda match: pseudonym(match[0]), text)


def _scrub_values(value: Any, scrub: Scrub, kept_fields: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: item if name in kept_fields else _scrub_values(item, scrub, kept_fields)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_scrub_values(item, scrub, kept_fields) for item in value]
    return scrub(value) if isinstance(value, str) else value
