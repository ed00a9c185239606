"""A snapshot: its content as values, its bytes, and checks of both.

The content of a snapshot, as frozen values.

What a newer hbatune has put into a snapshot's rules, and this one does not understand.

The snapshot keeps such rules; a plan is made without them, and says so.

Checks that the parts of a snapshot belong together: one of each, and none that is not there.

Facts that were gathered from a machine do; those in a file need not.

A snapshot as bytes: JSON, compressed. The reader trusts nothing in a file.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.errors import UsageError
from hbatune.facts.families import known_options
from hbatune.facts.health import Counted, Health
from hbatune.facts.model import Machine
from hbatune.loader import UnusableFileError, WholeMoment
from hbatune.plan.rows import Reverted
from hbatune.policy.config import Site
from hbatune.policy.profile import Leave, OptionRule, Profile, Rule
from hbatune.policy.rules import allowed
from hbatune.settings.table import SETTINGS

SCHEMA = "hbatune.snapshot/1"


class HostPolicy(Struct, frozen=True):
    """The policy of a host: its profiles, the active one's name, and the targets left alone there.

    ``rolled_back`` are the ids that a rollback took out until an apply names them again,
    ``reverted`` the values that cost too much, ``rendered`` the module options for the next load.
    """

    active: str | None
    profiles: tuple[Profile, ...]
    site: Site
    rolled_back: tuple[str, ...]
    reverted: tuple[Reverted, ...] = ()
    rendered: tuple[tuple[str, str, str], ...] = ()


class Snapshot(Struct, frozen=True):
    """All facts of a host at one moment, with the attributes of every setting.

    ``hbatune`` is the version that took it, ``taken`` in seconds since the epoch. ``anonymous`` is
    whether names and serial numbers were removed. ``looks`` are earlier counts of errors.
    """

    machine: Machine
    health: Health
    policy: HostPolicy
    hbatune: str
    taken: WholeMoment
    looks: tuple[Counted, ...] = ()
    anonymous: bool = False
    schema: str = SCHEMA


def understood(profile: Profile) -> Profile:
    """Return the profile with those of its rules that this version understands."""
    return replace(
        profile,
        rules=tuple(filter(_known, profile.rules)),
        options=tuple(filter(_known_option, profile.options)),
    )


def not_understood(profile: Profile) -> tuple[str, ...]:
    """Return the settings of the other rules, each once: unknown ones, and unknown values."""
    unknown: list[Rule | OptionRule] = [rule for rule in profile.rules if not _known(rule)]
    unknown += [option for option in profile.options if not _known_option(option)]
    return tuple(dict.fromkeys(each.setting for each in unknown))


def _known(rule: Rule) -> bool:
    setting = SETTINGS.get(rule.setting)
    if setting is None or isinstance(rule.effect, Leave):
        return setting is not None
    return setting.check(rule.effect.value) is None


def _known_option(rule: OptionRule) -> bool:
    option = known_options().get(rule.module, {}).get(rule.option)
    if option is None:
        return False
    return allowed(option, rule.effect.value) is None


def fault(snapshot: Snapshot) -> str | None:
    """Return the first thing that does not belong together, in words; None where everything does.

    Every adapter, endpoint, vector and control that another part names is there, adapters and
    endpoints are there once, and there is the health of each and of nothing else.
    """
    return next(_faults(snapshot), None)


def _faults(snapshot: Snapshot) -> Iterator[str]:
    machine, health = snapshot.machine, snapshot.health
    adapters = {adapter.target for adapter in machine.adapters}
    endpoints = {endpoint.target for endpoint in machine.endpoints}
    yield from _twice("adapter", (adapter.target for adapter in machine.adapters))
    yield from _twice("endpoint", (endpoint.target for endpoint in machine.endpoints))
    yield from _twice("id", (endpoint.id for endpoint in machine.endpoints))
    yield from _twice("control", (control.target for control in machine.controls))
    yield from _dangling(machine, adapters, endpoints)
    yield from _unlike("adapters", adapters, health.adapters)
    yield from _unlike("endpoints", endpoints, health.disks)


def _twice(what: str, names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"it has the {what} {_short(name)} twice"
        seen.add(name)


def _dangling(machine: Machine, adapters: set[str], endpoints: set[str]) -> Iterator[str]:
    for endpoint in machine.endpoints:
        if endpoint.adapter not in adapters and endpoint.adapter is not None:
            yield _missing(endpoint.target, "adapter", endpoint.adapter)
        for path in endpoint.paths:
            if path not in endpoints:
                yield _missing(endpoint.target, "path", path)
        if endpoint.map not in endpoints and endpoint.map is not None:
            yield _missing(endpoint.target, "map", endpoint.map)
    of_adapters = (
        *((vector.target, vector.adapter) for vector in machine.vectors),
        *((control.target, control.adapter) for control in machine.controls),
        *(("a list of CPUs", local_cpu) for local_cpu in machine.local_cpus),
    )
    for name, adapter in of_adapters:
        if adapter not in adapters:
            yield _missing(name, "adapter", adapter)


def _unlike(what: str, there: set[str], told: Iterable[str]) -> Iterator[str]:
    for name in sorted(there ^ set(told)):
        yield f"its {what} and their health do not agree about {_short(name)}"


def _missing(name: str, kind: str, other: str) -> str:
    return f"{_short(name)} is of the {kind} {_short(other)}, which is not in it"


def _short(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}…")


LARGEST = 8 << 20
"""Bytes of a file at most; that of a host with 4,096 LUNs has well under one MiB."""

LARGEST_UNPACKED = loader.FOREIGN.bytes
"""Bytes of its content at most: a few kB can unpack to gigabytes."""

_GZIP = zlib.MAX_WBITS | 16  # zlib's flag for gzip's header and checksum

_SCHEMA = re.compile(r"hbatune\.snapshot/(\d{1,6})\Z")


class SnapshotError(UsageError):
    """A file that cannot be used as a snapshot."""

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{str(path)!r}: {problem}", hint=hint)


class _Head(msgspec.Struct):
    schema: str


def encode(snapshot: Snapshot) -> bytes:
    """Return the snapshot as the bytes of a file; equal snapshots give equal bytes."""
    # Unlike gzip.compress with its default, this puts no time into the header.
    engine = zlib.compressobj(wbits=_GZIP)
    return engine.compress(msgspec.json.encode(snapshot)) + engine.flush()


def load(path: Path) -> Snapshot:
    """Return the snapshot in the file; SnapshotError where it has none that can be used."""
    try:
        data = loader.read_bytes(path, LARGEST)
    except UnusableFileError as error:
        raise SnapshotError(path, str(error)) from error
    except OSError as error:
        raise SnapshotError(path, f"cannot be read: {error.strerror}") from error
    return decode(data, path)


def decode(data: bytes, path: Path) -> Snapshot:
    """Return the snapshot in these bytes of the file at ``path``; SnapshotError without one."""
    text = _unpacked(data, path)
    try:
        loader.require_bounded(text, loader.FOREIGN)
    except UnusableFileError as error:
        raise SnapshotError(path, f"not a snapshot: {error}") from error
    try:
        # The schema first: a newer snapshot should be reported as newer, not as broken.
        schema = loader.decode(text, _Head).schema
    except UnusableFileError as error:
        raise SnapshotError(path, "not a snapshot") from error
    _require_known(schema, path)
    try:
        found = loader.decode(text, Snapshot)
    except UnusableFileError as error:
        raise SnapshotError(path, f"a snapshot that makes no sense: {error}") from error
    if (problem := fault(found)) is not None:
        raise SnapshotError(path, f"a snapshot that makes no sense: {problem}")
    return found


def _require_known(schema: str, path: Path) -> None:
    if schema == SCHEMA:
        return
    version = _SCHEMA.match(schema)
    if version is None:
        raise SnapshotError(path, "not a snapshot")
    raise SnapshotError(
        path,
        f"has schema {schema}, and this hbatune reads {SCHEMA}",
        hint="use the hbatune that took it, or a newer one",
    )


def _unpacked(data: bytes, path: Path) -> bytes:
    engine = zlib.decompressobj(wbits=_GZIP)
    try:
        text = engine.decompress(data, LARGEST_UNPACKED)
    except zlib.error as error:
        raise SnapshotError(path, "not a snapshot, or a damaged one") from error
    if engine.unconsumed_tail:
        raise SnapshotError(path, f"larger than {LARGEST_UNPACKED >> 20} MiB when unpacked")
    if not engine.eof:
        raise SnapshotError(path, "truncated" if data else "empty")
    if engine.unused_data:
        raise SnapshotError(path, "something follows the snapshot in it")
    return text
