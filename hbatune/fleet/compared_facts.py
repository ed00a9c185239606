"""The facts that are compared between peers, and between two hosts. Pure.

Facts ignore positions that differ between hosts by chance, such as PCI addresses, disk names and
interrupt numbers. Their subjects are all adapters of one product, and all disks of one model behind
these.

Two hosts are compared in more facts than peers. If each host has one disk model behind the same
adapter that the other lacks, both models count as one subject. Errors are compared by their sums:
since boot, or since the first of two snapshots of one boot.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.health import (
    COMMAND_ERRORS,
    LOG_COUNTER_PREFIX,
    SERIOUS_COUNTERS,
    ErrorCounters,
    ErrorKind,
    Health,
    collect_counters,
)
from hbatune.facts.model import (
    Adapter,
    Control,
    Endpoint,
    Kind,
    Machine,
    Missing,
    Reason,
    Role,
    TargetKind,
)
from hbatune.facts.names import natural_key
from hbatune.settings.table import QUEUE_DEPTH, SETTINGS
from hbatune.snapshot.file import Snapshot

Scalar = bool | int | float | str | None
"""The value of a fact, or None if the host could not read it."""

HOST_SUBJECT = "host"
"""The subject of facts that belong to no adapter."""

MAPS_SUBJECT = "multipath maps"
"""The subject of facts about maps, which can use several adapters."""

MAX_TEXT_LENGTH = 160
"""Maximum length of a text from a snapshot, in characters."""


class FactKind(StrEnum):
    """The types of facts, in the order of their effect on storage speed."""

    PRESENCE = "presence"  # present adapters, disks and paths
    LINK = "link"  # width and speed of PCI Express
    STATE = "state"  # offline disks
    ERRORS = "errors"  # counted failures (only between two hosts)
    RATE = "port rate"  # of Fibre Channel and SAS
    FIRMWARE = "firmware"
    DRIVER = "driver"
    DEPTH = "depth"
    SETTING = "setting"
    INTERRUPTS = "interrupts"
    OPTION = "module option"
    DRIVE = "drive"
    HOST = "host"
    COUNTERS = "counters"  # counters that mean little by themselves (only between two hosts)


FACT_RANKS = {kind: place for place, kind in enumerate(FactKind)}
"""The rank of each type, most important first."""


class Valued(Struct, frozen=True):
    """A value with the number of its targets and the first of their names."""

    value: Scalar
    count: int
    targets: tuple[str, ...]


class HostFact(Struct, frozen=True):
    """One fact: its subject, its aspect ``what``, and the values found, each once."""

    kind: FactKind
    subject: str
    what: str
    found: tuple[Valued, ...]

    @property
    def values(self) -> tuple[Scalar, ...]:
        """The values without their targets, in natural order."""
        return tuple(valued.value for valued in self.found)

    @property
    def key(self) -> tuple[FactKind, str, str]:
        """The type, subject and aspect, which identify the fact."""
        return self.kind, self.subject, self.what


def format_adapter_type(adapter: Adapter) -> str:
    """Return the driver and the PCI ids of an adapter, which identify its type."""
    pci = adapter.pci
    if pci is None:
        return adapter.family
    ids = (pci.vendor, pci.device, pci.subsystem_vendor, pci.subsystem_device)
    return f"{adapter.family} " + ":".join(
        "?" if isinstance(number, Missing) else f"{number:04x}" for number in ids
    )


def format_adapter_name(adapter: Adapter) -> str:
    """Return the name of an adapter's product, or its driver and PCI ids."""
    return shorten_text(adapter.product or format_adapter_type(adapter))


def shorten_text(text: str) -> str:
    """Return a text from a snapshot, cut to a plausible length."""
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[: MAX_TEXT_LENGTH - 1]}…"


def list_host_facts(snapshot: Snapshot, *, names: int) -> tuple[HostFact, ...]:
    """Return the facts compared between peers, with at most ``names`` target names for each value.

    The most important types come first.
    """
    gathered = GatheredFacts(names)
    add_facts(gathered, snapshot)
    return gathered.facts()


def add_facts(gathered: "GatheredFacts", snapshot: Snapshot) -> None:
    """Add the facts of a host."""
    machine, health = snapshot.machine, snapshot.health
    products = map_adapter_names(machine)
    _add_adapters(gathered, machine, health, products)
    _add_disks(gathered, machine, health, products)
    _add_host(gathered, snapshot)


def map_adapter_names(machine: Machine) -> dict[str, str]:
    """Return the name of each adapter's product, by target."""
    return {adapter.target: format_adapter_name(adapter) for adapter in machine.adapters}


class GatheredFacts:
    """The values gathered for each fact, with at most ``names`` target names for each value.

    ``aliases`` replaces the names of subjects.
    """

    def __init__(self, names: int, aliases: Mapping[str, str] | None = None) -> None:
        self._names = names
        self._aliases = aliases or {}
        self._values: dict[tuple[FactKind, str, str], dict[Scalar, list[str]]] = {}

    def add(
        self, kind: FactKind, subject: str, aspect: str, value: object, target: str = ""
    ) -> None:
        """Add a value. A value that does not exist for this device is skipped."""
        if isinstance(value, Missing):
            if value.reason is Reason.ABSENT:
                return
            value = None
        scalar = shorten_text(value) if isinstance(value, str) else value
        assert scalar is None or isinstance(scalar, bool | int | float | str)
        key = (kind, self._aliases.get(subject, subject), aspect)
        values = self._values.setdefault(key, {})
        values.setdefault(scalar, []).append(target)

    def facts(self) -> tuple[HostFact, ...]:
        """Return all facts in their order."""
        facts = [
            HostFact(*key, tuple(self._list_values(values))) for key, values in self._values.items()
        ]
        return tuple(sorted(facts, key=lambda fact: FACT_RANKS[fact.kind]))

    def _list_values(self, values: dict[Scalar, list[str]]) -> Iterator[Valued]:
        for value in sorted(values, key=_value_key):
            targets = sorted((target for target in values[value] if target), key=natural_key)
            names = tuple(shorten_text(target) for target in targets[: self._names])
            yield Valued(value, len(values[value]), names)


def _value_key(value: Scalar) -> tuple[object, ...]:
    if isinstance(value, str):
        return (2, natural_key(value))
    return (0, 0) if value is None else (1, value)


def _add_adapters(
    gathered: GatheredFacts, machine: Machine, health: Health, products: dict[str, str]
) -> None:
    vectors: dict[str, int] = defaultdict(int)
    for vector in machine.vectors:
        vectors[vector.adapter] += vector.role is Role.DATA
    for name, adapters in _group_adapters(machine.adapters, products).items():
        gathered.add(FactKind.PRESENCE, name, "adapters", len(adapters))
        for adapter in adapters:
            if adapter.link is not None:
                gathered.add(FactKind.LINK, name, "link width", adapter.link.width, adapter.target)
                gathered.add(FactKind.LINK, name, "link speed", adapter.link.speed, adapter.target)
            gathered.add(FactKind.FIRMWARE, name, "firmware", adapter.firmware, adapter.target)
            gathered.add(
                FactKind.DRIVER, name, "driver version", adapter.driver_version, adapter.target
            )
            gathered.add(
                FactKind.INTERRUPTS, name, "hardware queues", adapter.hw_queues, adapter.target
            )
            gathered.add(
                FactKind.INTERRUPTS, name, "data vectors", vectors[adapter.target], adapter.target
            )
            for host in adapter.hosts:
                gathered.add(FactKind.DEPTH, name, "can_queue", host.can_queue, adapter.target)
            if (adapter_health := health.adapters.get(adapter.target)) is None:
                continue
            for port, rate in adapter_health.rates.items():
                gathered.add(FactKind.RATE, name, "port rate", rate.now, port)
            for option, value in adapter_health.options.items():
                gathered.add(FactKind.OPTION, name, shorten_text(option), value, adapter.target)
    for control in machine.controls:
        _add_settings(gathered, products.get(control.adapter, control.adapter), control)


def _group_adapters(
    adapters: Iterable[Adapter], products: dict[str, str]
) -> dict[str, list[Adapter]]:
    groups: dict[str, list[Adapter]] = {}
    for adapter in adapters:
        groups.setdefault(products[adapter.target], []).append(adapter)
    return groups


def _add_disks(
    gathered: GatheredFacts, machine: Machine, health: Health, products: dict[str, str]
) -> None:
    disks = [endpoint for endpoint in machine.endpoints if endpoint.kind is not Kind.MAP]
    maps = [endpoint for endpoint in machine.endpoints if endpoint.kind is Kind.MAP]
    for count in _count_disks(disks, products):
        gathered.add(FactKind.PRESENCE, *count)
    for disk in disks:
        subject = format_disk_subject(disk, products)
        gathered.add(FactKind.STATE, subject, "state", disk.state, disk.target)
        if disk.revision:
            gathered.add(FactKind.DRIVE, subject, "drive firmware", disk.revision, disk.target)
        if (disk_health := health.disks.get(disk.target)) is not None:
            gathered.add(FactKind.DRIVE, subject, "cache", disk_health.cache, disk.target)
        _add_settings(gathered, subject, disk)
    if maps:
        gathered.add(FactKind.PRESENCE, MAPS_SUBJECT, "maps", len(maps))
    for map_ in maps:
        gathered.add(FactKind.PRESENCE, MAPS_SUBJECT, "paths", len(map_.paths), map_.target)
        _add_settings(gathered, MAPS_SUBJECT, map_)


def _count_disks(
    disks: Sequence[Endpoint], products: dict[str, str]
) -> Iterator[tuple[str, str, int]]:
    counts: dict[str, int] = defaultdict(int)
    for disk in disks:
        counts[format_disk_subject(disk, products)] += 1
    for subject, number in counts.items():
        yield subject, "disks", number


def format_disk_subject(endpoint: Endpoint, products: Mapping[str, str]) -> str:
    """Return the model of a disk and the product that it is behind."""
    return (
        f"{format_disk_model(endpoint)} behind "
        f"{products.get(endpoint.adapter or '', endpoint.family)}"
    )


def format_disk_model(endpoint: Endpoint) -> str:
    """Return vendor and model of a disk, or its protocol if it has neither."""
    model = " ".join(f"{endpoint.vendor} {endpoint.model}".split())
    return shorten_text(model or str(endpoint.protocol))


def _add_settings(gathered: GatheredFacts, subject: str, device: Endpoint | Control) -> None:
    kind = TargetKind.ENDPOINT if isinstance(device, Endpoint) else device.kind
    for name, setting in SETTINGS.items():
        if setting.on is not kind:
            continue
        fact_kind = FactKind.DEPTH if name == QUEUE_DEPTH else FactKind.SETTING
        gathered.add(fact_kind, subject, name, setting.read(device.attributes), device.target)


def _add_host(gathered: GatheredFacts, snapshot: Snapshot) -> None:
    machine, health = snapshot.machine, snapshot.health
    gathered.add(FactKind.HOST, HOST_SUBJECT, "profile", snapshot.policy.active)
    gathered.add(FactKind.HOST, HOST_SUBJECT, "kernel", machine.kernel)
    gathered.add(FactKind.HOST, HOST_SUBJECT, "CPUs", machine.cpus)
    for daemon, runs in health.daemons.items():
        gathered.add(FactKind.HOST, HOST_SUBJECT, f"{shorten_text(daemon)} runs", runs)
    if not isinstance(health.tuned, Missing):
        gathered.add(FactKind.HOST, HOST_SUBJECT, "profile of tuned", health.tuned.names)
    gathered.add(FactKind.HOST, HOST_SUBJECT, "hbatune", snapshot.hbatune)


MAX_NAMES = 64
"""Maximum number of target names stored with a value."""

_HARMLESS = frozenset(
    {f"{LOG_COUNTER_PREFIX}{ErrorKind.RESET}", f"{LOG_COUNTER_PREFIX}{ErrorKind.SPACE}"}
)


def pair_facts(
    first: Snapshot, second: Snapshot
) -> tuple[tuple[HostFact, ...], tuple[HostFact, ...]]:
    """Return the facts of both hosts, with equal names for corresponding disk models."""
    second_aliases = _match_models(first.machine, second.machine)
    fact_lists = []
    since = _count_errors(first) if first.machine.boot_id == second.machine.boot_id else None
    for snapshot, aliases, before in ((first, {}, None), (second, second_aliases, since)):
        facts = GatheredFacts(MAX_NAMES, aliases)
        add_facts(facts, snapshot)
        _add_models(facts, snapshot.machine)
        _add_interrupts(facts, snapshot.machine)
        if since is None or before is not None:
            _add_counters(facts, snapshot, before)
        fact_lists.append(facts.facts())
    return fact_lists[0], fact_lists[1]


def _match_models(first: Machine, second: Machine) -> Mapping[str, str]:
    """Map disk models of the second host to the first host's models that they replace."""
    first_disks, second_disks = _group_subjects(first), _group_subjects(second)
    aliases = {}
    for key in first_disks.keys() & second_disks.keys():
        removed, added = first_disks[key] - second_disks[key], second_disks[key] - first_disks[key]
        if len(removed) == len(added) == 1:
            aliases[added.pop()] = removed.pop()
    return aliases


def _group_subjects(machine: Machine) -> dict[tuple[str, str, str], set[str]]:
    products = map_adapter_names(machine)
    subjects: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for disk in _list_disks(machine):
        key = (products.get(disk.adapter or "", ""), str(disk.protocol), str(disk.medium))
        subjects[key].add(format_disk_subject(disk, products))
    return subjects


def _list_disks(machine: Machine) -> Iterator[Endpoint]:
    return (endpoint for endpoint in machine.endpoints if endpoint.kind is not Kind.MAP)


def _add_models(facts: GatheredFacts, machine: Machine) -> None:
    products = map_adapter_names(machine)
    for disk in _list_disks(machine):
        model = format_disk_model(disk)
        facts.add(FactKind.DRIVE, format_disk_subject(disk, products), "model", model, disk.target)
        facts.add(
            FactKind.DRIVE, format_disk_subject(disk, products), "bytes", disk.size, disk.target
        )


def _add_interrupts(facts: GatheredFacts, machine: Machine) -> None:
    """Add the number of CPUs that serve each adapter."""
    products = map_adapter_names(machine)
    serving: dict[str, set[str]] = defaultdict(set)
    for vector in machine.vectors:
        if vector.role is not Role.DATA:
            continue
        if vector.effective:
            serving[vector.adapter].add(vector.effective)
    for adapter, cpus in serving.items():
        name = products[adapter]
        facts.add(FactKind.INTERRUPTS, name, "CPUs that serve it", len(cpus), adapter)


def _count_errors(snapshot: Snapshot) -> ErrorCounters:
    return collect_counters(snapshot.machine, snapshot.health, snapshot.taken)


def _add_counters(facts: GatheredFacts, snapshot: Snapshot, before: ErrorCounters | None) -> None:
    """Add each counter's sum over the disks of a model or the adapters of a product."""
    machine = snapshot.machine
    products = map_adapter_names(machine)
    subjects = {
        disk.id: format_disk_subject(disk, products) for disk in _list_disks(machine)
    } | products
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for target, values in _count_errors(snapshot).values.items():
        for name, count in values.items():
            increase = count - (before.value(target, name) if before else 0)
            if target in subjects and name != COMMAND_ERRORS and increase > 0:
                sums[subjects[target], name] += increase
    for (subject, name), count in sums.items():
        grave = name in SERIOUS_COUNTERS or (
            name.startswith(LOG_COUNTER_PREFIX) and name not in _HARMLESS
        )
        facts.add(FactKind.ERRORS if grave else FactKind.COUNTERS, subject, name, count)
