"""A snapshot: its content as frozen values, its bytes, and checks of both.

The bytes are compressed JSON. The reader trusts nothing in a file. It checks the references between
the parts of a snapshot: facts gathered from a machine are consistent, facts in a file may not be.

A newer hbatune may write rules that this version does not understand. The snapshot keeps these
rules. A plan is made without them and reports it.
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
from hbatune.facts.health import ErrorCounters, Health
from hbatune.facts.model import Machine
from hbatune.loader import UnusableFileError, WholeMoment
from hbatune.plan.rows import RevertedValue
from hbatune.policy.config import Site
from hbatune.policy.profile import Leave, OptionRule, Profile, Rule
from hbatune.policy.rules import describe_allowed
from hbatune.settings.table import SETTINGS

SCHEMA = "hbatune.snapshot/1"


class HostPolicy(Struct, frozen=True):
    """The policy of a host: its profiles, the name of the active profile, and skipped targets.

    ``rolled_back`` lists the ids that a rollback excluded until an apply names them again,
    ``reverted`` the values that regressed, ``rendered`` the module options for the next load.
    """

    active: str | None
    profiles: tuple[Profile, ...]
    site: Site
    rolled_back: tuple[str, ...]
    reverted: tuple[RevertedValue, ...] = ()
    rendered: tuple[tuple[str, str, str], ...] = ()


class Snapshot(Struct, frozen=True):
    """All facts of a host at one moment, with the attributes of every setting.

    ``hbatune`` is the version that took it. ``taken`` is in seconds since the epoch. ``anonymous``
    is true if names and serial numbers were removed. ``looks`` are earlier error counts.
    """

    machine: Machine
    health: Health
    policy: HostPolicy
    hbatune: str
    taken: WholeMoment
    looks: tuple[ErrorCounters, ...] = ()
    anonymous: bool = False
    schema: str = SCHEMA


def drop_unknown_rules(profile: Profile) -> Profile:
    """Return the profile reduced to the rules that this version understands."""
    return replace(
        profile,
        rules=tuple(filter(_is_understood, profile.rules)),
        options=tuple(filter(_is_option_understood, profile.options)),
    )


def list_unknown_settings(profile: Profile) -> tuple[str, ...]:
    """Return the settings of rules with an unknown setting or value, each once."""
    unknown: list[Rule | OptionRule] = [rule for rule in profile.rules if not _is_understood(rule)]
    unknown += [option for option in profile.options if not _is_option_understood(option)]
    return tuple(dict.fromkeys(rule.setting for rule in unknown))


def _is_understood(rule: Rule) -> bool:
    setting = SETTINGS.get(rule.setting)
    if setting is None or isinstance(rule.effect, Leave):
        return setting is not None
    return setting.format.check(rule.effect.value) is None


def _is_option_understood(rule: OptionRule) -> bool:
    option = known_options().get(rule.module, {}).get(rule.option)
    if option is None:
        return False
    return describe_allowed(option, rule.effect.value) is None


def describe_fault(snapshot: Snapshot) -> str | None:
    """Describe the first inconsistency, or return None if the snapshot is consistent.

    Every referenced adapter, endpoint, vector and control exists. Adapters and endpoints are
    unique, and the health data covers exactly these.
    """
    return next(_find_faults(snapshot), None)


def _find_faults(snapshot: Snapshot) -> Iterator[str]:
    machine, health = snapshot.machine, snapshot.health
    adapters = {adapter.target for adapter in machine.adapters}
    endpoints = {endpoint.target for endpoint in machine.endpoints}
    yield from _find_duplicates("adapter", (adapter.target for adapter in machine.adapters))
    yield from _find_duplicates("endpoint", (endpoint.target for endpoint in machine.endpoints))
    yield from _find_duplicates("id", (endpoint.id for endpoint in machine.endpoints))
    yield from _find_duplicates("control", (control.target for control in machine.controls))
    yield from _find_dangling(machine, adapters, endpoints)
    yield from _find_unmatched("adapters", adapters, health.adapters)
    yield from _find_unmatched("endpoints", endpoints, health.disks)


def _find_duplicates(kind: str, names: Iterable[str]) -> Iterator[str]:
    checked: set[str] = set()
    for name in names:
        if name in checked:
            yield f"it has the {kind} {_shorten(name)} twice"
        checked.add(name)


def _find_dangling(machine: Machine, adapters: set[str], endpoints: set[str]) -> Iterator[str]:
    for endpoint in machine.endpoints:
        if endpoint.adapter not in adapters and endpoint.adapter is not None:
            yield _describe_missing(endpoint.target, "adapter", endpoint.adapter)
        for path in endpoint.paths:
            if path not in endpoints:
                yield _describe_missing(endpoint.target, "path", path)
        if endpoint.map not in endpoints and endpoint.map is not None:
            yield _describe_missing(endpoint.target, "map", endpoint.map)
    references = (
        *((vector.target, vector.adapter) for vector in machine.vectors),
        *((control.target, control.adapter) for control in machine.controls),
        *(("a list of CPUs", local_cpu) for local_cpu in machine.local_cpus),
    )
    for name, adapter in references:
        if adapter not in adapters:
            yield _describe_missing(name, "adapter", adapter)


def _find_unmatched(kind: str, targets: set[str], health_targets: Iterable[str]) -> Iterator[str]:
    for name in sorted(targets ^ set(health_targets)):
        yield f"its {kind} and their health do not agree about {_shorten(name)}"


def _describe_missing(name: str, kind: str, reference: str) -> str:
    return f"{_shorten(name)} is of the {kind} {_shorten(reference)}, which is not in it"


def _shorten(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}…")


MAX_FILE_BYTES = 8 << 20
"""Maximum size of a file in bytes. A host with 4,096 LUNs needs far less than one MiB."""

MAX_UNPACKED_BYTES = loader.FOREIGN_BOUNDS.bytes
"""Maximum size of the unpacked content in bytes: a few kB can unpack to gigabytes."""

_GZIP = zlib.MAX_WBITS | 16  # zlib's flag for gzip's header and checksum

_SCHEMA = re.compile(r"hbatune\.snapshot/(\d{1,6})\Z")


class SnapshotError(UsageError):
    """The error for a file that is not a usable snapshot."""

    def __init__(self, path: Path, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{str(path)!r}: {problem}", hint=hint)


class _Head(msgspec.Struct):
    schema: str


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the snapshot as the bytes of a file. Equal snapshots give equal bytes."""
    # Unlike gzip.compress by default, this writes no time into the header.
    engine = zlib.compressobj(wbits=_GZIP)
    return engine.compress(msgspec.json.encode(snapshot)) + engine.flush()


def load_snapshot(path: Path) -> Snapshot:
    """Return the snapshot in the file. Raise SnapshotError if it contains no usable snapshot."""
    try:
        data = loader.read_bytes(path, MAX_FILE_BYTES)
    except UnusableFileError as error:
        raise SnapshotError(path, str(error)) from error
    except OSError as error:
        raise SnapshotError(path, f"cannot be read: {error.strerror}") from error
    return decode_snapshot(data, path)


def decode_snapshot(data: bytes, path: Path) -> Snapshot:
    """Return the snapshot in these bytes of the file at ``path``, or raise SnapshotError."""
    text = _unpack(data, path)
    try:
        loader.require_bounded(text, loader.FOREIGN_BOUNDS)
    except UnusableFileError as error:
        raise SnapshotError(path, f"not a snapshot: {error}") from error
    try:
        # Check the schema first, to report a newer snapshot as newer, not as broken.
        schema = loader.decode(text, _Head).schema
    except UnusableFileError as error:
        raise SnapshotError(path, "not a snapshot") from error
    _require_known(schema, path)
    try:
        snapshot = loader.decode(text, Snapshot)
    except UnusableFileError as error:
        raise SnapshotError(path, f"a snapshot that makes no sense: {error}") from error
    if (problem := describe_fault(snapshot)) is not None:
        raise SnapshotError(path, f"a snapshot that makes no sense: {problem}")
    return snapshot


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


def _unpack(data: bytes, path: Path) -> bytes:
    engine = zlib.decompressobj(wbits=_GZIP)
    try:
        text = engine.decompress(data, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise SnapshotError(path, "not a snapshot, or a damaged one") from error
    if engine.unconsumed_tail:
        raise SnapshotError(path, f"larger than {MAX_UNPACKED_BYTES >> 20} MiB when unpacked")
    if not engine.eof:
        raise SnapshotError(path, "truncated" if data else "empty")
    if engine.unused_data:
        raise SnapshotError(path, "something follows the snapshot in it")
    return text
