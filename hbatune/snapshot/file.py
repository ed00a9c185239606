"""A snapshot: its content as frozen values, its bytes, and checks of both.

The bytes are compressed JSON. The reader trusts nothing in a file, so it also checks the references
between the parts of a snapshot. It keeps the rules of a newer hbatune that this version does not
understand. A plan is made without them and reports it.
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hbatune import loader
from hbatune.errors import UsageError
from hbatune.facts import families, model
from hbatune.facts.health import ErrorCounters, Health
from hbatune.loader import LongText, ShortText, UnusableFileError, WholeMoment
from hbatune.plan.rows import RevertedValue
from hbatune.policy.config import Site
from hbatune.policy.profile import Leave, OptionRule, Profile, Rule
from hbatune.policy.rules import describe_allowed
from hbatune.settings.table import SETTINGS

SCHEMA = "hbatune.snapshot/1"


class HostPolicy(Struct, frozen=True):
    """The policy of a host: its profiles, the name of the active profile, and skipped targets.

    ``rolled_back`` lists the ids that a rollback excluded until an apply names them again.
    ``rolled_back_all`` is whether the last rollback was of everything. ``reverted`` are the
    values that regressed, ``rendered`` the module options for the next load.
    """

    active: ShortText | None
    profiles: tuple[Profile, ...]
    site: Site
    rolled_back: tuple[ShortText, ...]
    reverted: tuple[RevertedValue, ...] = ()
    rendered: tuple[tuple[LongText, LongText, LongText], ...] = ()
    rolled_back_all: bool = False


class Snapshot(Struct, frozen=True):
    """All facts of a host at one moment, with the attributes of every setting.

    ``hbatune`` is the version that took it. ``taken`` is in seconds since the epoch. ``anonymous``
    is true if names and serial numbers were removed. ``looks`` are earlier error counts.
    """

    machine: model.Machine
    health: Health
    policy: HostPolicy
    hbatune: ShortText
    taken: WholeMoment
    looks: tuple[ErrorCounters, ...] = ()
    anonymous: bool = False
    schema: ShortText = SCHEMA


def drop_unknown_rules(profile: Profile) -> Profile:
    """Return the profile reduced to the rules that this version understands."""
    rules = tuple(filter(_is_understood, profile.rules))
    return replace(profile, rules=rules, options=tuple(filter(_is_understood, profile.options)))


def list_unknown_settings(profile: Profile) -> tuple[str, ...]:
    """Return the settings of rules with an unknown setting or value, each once."""
    rules: list[Rule | OptionRule] = [*profile.rules, *profile.options]
    return tuple(dict.fromkeys(rule.setting for rule in rules if not _is_understood(rule)))


def _is_understood(rule: Rule | OptionRule) -> bool:
    if isinstance(rule, OptionRule):
        option = families.known_options().get(rule.module, {}).get(rule.option)
        return option is not None and describe_allowed(option, rule.effect.value) is None
    setting = SETTINGS.get(rule.setting)
    if setting is None or isinstance(rule.effect, Leave):
        return setting is not None
    return setting.format.check(rule.effect.value) is None


def _find_faults(snapshot: Snapshot) -> Iterator[str]:
    """Describe each inconsistent name or reference of a snapshot."""
    machine, health = snapshot.machine, snapshot.health
    adapters = machine.adapters_by_target
    endpoints = machine.endpoints_by_target
    names_by_kind = {
        "adapter": [adapter.target for adapter in machine.adapters],
        "endpoint": [endpoint.target for endpoint in machine.endpoints],
        "id": [endpoint.id for endpoint in machine.endpoints],
        "control": [control.target for control in machine.controls],
    }
    for kind, names in names_by_kind.items():
        for name, count in Counter(names).items():
            if count > 1:
                yield f"it has the {kind} {_shorten(name)} twice"
    for name, kind, reference in _iterate_references(machine):
        if reference not in (adapters if kind == "adapter" else endpoints):
            yield f"{_shorten(name)} is of the {kind} {_shorten(reference)}, which is not in it"
    for name in sorted(adapters.keys() ^ health.adapters.keys()):
        yield f"its adapters and their health do not agree about {_shorten(name)}"
    for name in sorted(endpoints.keys() ^ health.disks.keys()):
        yield f"its endpoints and their health do not agree about {_shorten(name)}"


def _iterate_references(machine: model.Machine) -> Iterator[tuple[str, str, str]]:
    """Yield targets, with the role and the name of the target to which each refers."""
    for endpoint in machine.endpoints:
        if endpoint.adapter is not None:
            yield endpoint.target, "adapter", endpoint.adapter
        for path in endpoint.paths:
            yield endpoint.target, "path", path
        if endpoint.map is not None:
            yield endpoint.target, "map", endpoint.map
    parts: list[model.Vector | model.Control] = [*machine.vectors, *machine.controls]
    for part in parts:
        yield part.target, "adapter", part.adapter
    for adapter in machine.local_cpus:
        yield "a list of CPUs", "adapter", adapter


def _shorten(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}…")


# Maximum size of a file in bytes. A host with 4,096 LUNs needs far less than one MiB.
MAX_FILE_BYTES = 8 << 20
# Maximum size of the unpacked content in bytes: a few kB can unpack to gigabytes.
MAX_UNPACKED_BYTES = loader.FOREIGN_BOUNDS.bytes
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
        # Check the schema first, to report a newer snapshot as newer, not as broken.
        schema = loader.decode(text, _Head).schema
    except UnusableFileError as error:
        raise SnapshotError(path, f"not a snapshot: {error}") from error
    if _SCHEMA.match(schema) is None:
        raise SnapshotError(path, "not a snapshot")
    if schema != SCHEMA:
        problem = f"has schema {schema}, and this hbatune reads {SCHEMA}"
        raise SnapshotError(path, problem, hint="use the hbatune that took it, or a newer one")
    try:
        snapshot = loader.decode(text, Snapshot)
    except UnusableFileError as error:
        raise SnapshotError(path, f"a snapshot that makes no sense: {error}") from error
    if (fault := next(_find_faults(snapshot), None)) is not None:
        raise SnapshotError(path, f"a snapshot that makes no sense: {fault}")
    return snapshot


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
