"""The facts that are compared between peers, and the differences between two hosts. Pure.

Facts ignore positions that differ between hosts by chance, such as PCI addresses, disk names and
interrupt numbers. Their subjects are all adapters of one product, and all disks of one model behind
these.

Two hosts, or one host at two times, are compared in more facts than peers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from hbatune.facts import health, model
from hbatune.facts.health import LOG_COUNTER_PREFIX, ErrorKind
from hbatune.facts.model import Adapter, Endpoint, Kind, Machine, Missing, Reason, Role
from hbatune.facts.names import group_items, natural_key
from hbatune.operations.snapshot import get_error_counters
from hbatune.settings.table import QUEUE_DEPTH, SETTINGS
from hbatune.shipped import fill_message, load_texts
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


def map_adapter_names(machine: Machine) -> dict[str, str]:
    """Return the name of each adapter's product, by target."""
    return {adapter.target: format_adapter_name(adapter) for adapter in machine.adapters}


class GatheredFacts:
    """A host's values, with at most ``names`` targets for each; ``aliases`` rename the subjects."""

    def __init__(
        self, snapshot: Snapshot, names: int, aliases: Mapping[str, str] | None = None
    ) -> None:
        self._snapshot, self._machine, self._health = snapshot, snapshot.machine, snapshot.health
        self._products = map_adapter_names(snapshot.machine)
        self._disks = tuple(_list_disks(self._machine, self._products))
        self._names = names
        self._aliases = aliases or {}
        self._values: dict[tuple[FactKind, str, str], dict[Scalar, list[str]]] = {}
        # The facts that are compared between peers, too.
        self._add_adapters()
        self._add_disks()
        self._add_host()

    def list_facts(self) -> tuple[HostFact, ...]:
        """Return all facts, the most important types first."""
        facts = []
        for key in sorted(self._values, key=lambda key: FACT_RANKS[key[0]]):
            found = []
            for value, holders in sorted(self._values[key].items(), key=_value_key):
                targets = sorted(filter(None, holders), key=natural_key)[: self._names]
                found.append(Valued(value, len(holders), tuple(map(shorten_text, targets))))
            facts.append(HostFact(*key, tuple(found)))
        return tuple(facts)

    def add_details(self) -> None:
        """Add the models and sizes of disks, and the number of CPUs that serve each adapter."""
        for subject, disk in self._disks:
            self._add(FactKind.DRIVE, subject, "model", _format_disk_model(disk), disk.target)
            self._add(FactKind.DRIVE, subject, "bytes", disk.size, disk.target)
        serving: dict[str, set[str]] = defaultdict(set)
        for vector in self._machine.vectors:
            if vector.role is Role.DATA and vector.effective:
                serving[vector.adapter].add(vector.effective)
        name = fill_message("fact_name", "cpus")
        for adapter, cpus in serving.items():
            self._add(FactKind.INTERRUPTS, self._products[adapter], name, len(cpus), adapter)

    def add_counters(self, before: health.ErrorCounters | None) -> None:
        """Add each counter's sum over the disks of a model or the adapters of a product."""
        subjects = {disk.id: subject for subject, disk in self._disks} | self._products
        sums: dict[tuple[str, str], int] = defaultdict(int)
        for target, values in get_error_counters(self._snapshot).values.items():
            for name, count in values.items():
                increase = count - (before.value(target, name) if before else 0)
                if target in subjects and name != health.COMMAND_ERRORS and increase > 0:
                    sums[subjects[target], name] += increase
        for (subject, name), count in sums.items():
            is_logged_error = name.startswith(LOG_COUNTER_PREFIX) and name not in _HARMLESS
            is_serious = name in health.SERIOUS_COUNTERS or is_logged_error
            self._add(FactKind.ERRORS if is_serious else FactKind.COUNTERS, subject, name, count)

    def _add(
        self, kind: FactKind, subject: str, aspect: str, value: object, target: str = ""
    ) -> None:
        """Add a value. A value that does not exist for this device is skipped."""
        if isinstance(value, Missing) and value.reason is Reason.ABSENT:
            return
        if isinstance(value, Missing):
            value = None
        scalar = shorten_text(value) if isinstance(value, str) else value
        assert scalar is None or isinstance(scalar, bool | int | float | str)
        key = (kind, self._aliases.get(subject, subject), aspect)
        self._values.setdefault(key, {}).setdefault(scalar, []).append(target)

    def _add_adapters(self) -> None:
        machine, products = self._machine, self._products
        vectors = Counter(vector.adapter for vector in machine.vectors if vector.role is Role.DATA)
        groups = group_items(machine.adapters, lambda adapter: products[adapter.target])
        for name, adapters in groups.items():
            self._add(FactKind.PRESENCE, name, "adapters", len(adapters))
            for adapter in adapters:
                target = adapter.target
                if adapter.link is not None:
                    self._add(FactKind.LINK, name, "link width", adapter.link.width, target)
                    self._add(FactKind.LINK, name, "link speed", adapter.link.speed, target)
                self._add(FactKind.FIRMWARE, name, "firmware", adapter.firmware, target)
                self._add(FactKind.DRIVER, name, "driver version", adapter.driver_version, target)
                self._add(FactKind.INTERRUPTS, name, "hardware queues", adapter.hw_queues, target)
                self._add(FactKind.INTERRUPTS, name, "data vectors", vectors[target], target)
                for host in adapter.hosts:
                    self._add(FactKind.DEPTH, name, "can_queue", host.can_queue, target)
                if (adapter_health := self._health.adapters.get(target)) is None:
                    continue
                for port, rate in adapter_health.rates.items():
                    self._add(FactKind.RATE, name, "port rate", rate.now, port)
                for option, value in adapter_health.options.items():
                    self._add(FactKind.OPTION, name, shorten_text(option), value, target)
        for control in machine.controls:
            self._add_settings(products.get(control.adapter, control.adapter), control)

    def _add_disks(self) -> None:
        maps = [endpoint for endpoint in self._machine.endpoints if endpoint.kind is Kind.MAP]
        for subject, disk in self._disks:
            self._add(FactKind.STATE, subject, "state", disk.state, disk.target)
            if disk.revision:
                self._add(FactKind.DRIVE, subject, "drive firmware", disk.revision, disk.target)
            if (disk_health := self._health.disks.get(disk.target)) is not None:
                self._add(FactKind.DRIVE, subject, "cache", disk_health.cache, disk.target)
            self._add_settings(subject, disk)
        for subject, count in Counter(subject for subject, _ in self._disks).items():
            self._add(FactKind.PRESENCE, subject, "disks", count)
        if maps:
            self._add(FactKind.PRESENCE, MAPS_SUBJECT, "maps", len(maps))
        for map_ in maps:
            self._add(FactKind.PRESENCE, MAPS_SUBJECT, "paths", len(map_.paths), map_.target)
            self._add_settings(MAPS_SUBJECT, map_)

    def _add_settings(self, subject: str, device: Endpoint | model.Control) -> None:
        kind = model.TargetKind.ENDPOINT if isinstance(device, Endpoint) else device.kind
        for name, setting in SETTINGS.items():
            if setting.on is kind:
                fact_kind = FactKind.DEPTH if name == QUEUE_DEPTH else FactKind.SETTING
                self._add(fact_kind, subject, name, setting.read(device.attributes), device.target)

    def _add_host(self) -> None:
        snapshot, tuned = self._snapshot, self._health.tuned
        profile = snapshot.policy.active or Missing(Reason.ABSENT)  # a host state, not an outlier
        self._add(FactKind.HOST, HOST_SUBJECT, "profile", profile)
        self._add(FactKind.HOST, HOST_SUBJECT, "kernel", self._machine.kernel)
        self._add(FactKind.HOST, HOST_SUBJECT, "CPUs", self._machine.cpus)
        for daemon, runs in self._health.daemons.items():
            self._add(FactKind.HOST, HOST_SUBJECT, f"{shorten_text(daemon)} runs", runs)
        if not isinstance(tuned, Missing):
            self._add(FactKind.HOST, HOST_SUBJECT, fill_message("fact_name", "tuned"), tuned.names)
        self._add(FactKind.HOST, HOST_SUBJECT, "hbatune", snapshot.hbatune)


def _value_key(item: tuple[Scalar, list[str]]) -> tuple[object, ...]:
    value = item[0]
    if isinstance(value, str):
        return (2, natural_key(value))
    return (0, 0) if value is None else (1, value)


def _list_disks(machine: Machine, products: Mapping[str, str]) -> Iterator[tuple[str, Endpoint]]:
    """Yield the disks and paths, each after its subject: its model behind its adapter's product."""
    for disk in machine.endpoints:
        if disk.kind is not Kind.MAP:
            product = products.get(disk.adapter or "", disk.family)
            yield f"{_format_disk_model(disk)} behind {product}", disk


def _format_disk_model(endpoint: Endpoint) -> str:
    """Return vendor and model of a disk, or its protocol if it has neither."""
    name = " ".join(f"{endpoint.vendor} {endpoint.model}".split())
    return shorten_text(name or str(endpoint.protocol))


MAX_NAMES = 64
"""Maximum number of target names stored with a value."""

_HARMLESS = (f"{LOG_COUNTER_PREFIX}{ErrorKind.RESET}", f"{LOG_COUNTER_PREFIX}{ErrorKind.SPACE}")


def _match_models(first: Machine, second: Machine) -> Mapping[str, str]:
    """Map a model of the second host to the first host's if only these two differ on an adapter."""
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
    for subject, disk in _list_disks(machine, products):
        key = (products.get(disk.adapter or "", ""), str(disk.protocol), str(disk.medium))
        subjects[key].add(subject)
    return subjects


class Difference(Struct, frozen=True):
    """A fact in which two hosts differ. A host without the fact has no values."""

    kind: FactKind
    subject: str
    what: str
    first: tuple[Valued, ...]
    second: tuple[Valued, ...]
    source: str | None


class ComparedHost(Struct, frozen=True):
    """One of the hosts: its name, kernel and snapshot time (seconds since the epoch)."""

    name: str
    kernel: str
    taken: int


class HostComparison(Struct, frozen=True, kw_only=True):
    """The JSON document of `compare`; ``differences`` start with the most important one.

    ``same`` counts the equal facts. ``one_host`` is true if both snapshots are of one host,
    ``one_boot`` if they are of one boot. Within one boot, errors are counted since the first
    snapshot, otherwise since each boot.
    """

    schema: str = "hbatune.compare/1"
    first: ComparedHost
    second: ComparedHost
    one_host: bool
    one_boot: bool
    differences: tuple[Difference, ...]
    same: int


def compare_hosts(first: Snapshot, second: Snapshot) -> HostComparison:
    """Compare the second host with the first."""
    first_facts = GatheredFacts(first, MAX_NAMES)
    second_facts = GatheredFacts(second, MAX_NAMES, _match_models(first.machine, second.machine))
    first_facts.add_details()
    second_facts.add_details()
    one_boot = first.machine.boot_id == second.machine.boot_id
    if not one_boot:
        first_facts.add_counters(None)
    second_facts.add_counters(get_error_counters(first) if one_boot else None)
    differences, same = _find_differences(first_facts.list_facts(), second_facts.list_facts())
    return HostComparison(
        first=ComparedHost(first.machine.hostname, first.machine.kernel, first.taken),
        second=ComparedHost(second.machine.hostname, second.machine.kernel, second.taken),
        one_host=first.machine.hostname == second.machine.hostname,
        one_boot=one_boot,
        differences=tuple(differences),
        same=same,
    )


def _find_differences(
    first_facts: Sequence[HostFact], second_facts: Sequence[HostFact]
) -> tuple[list[Difference], int]:
    first = {fact.key: fact for fact in first_facts}
    second = {fact.key: fact for fact in second_facts}
    # A subject that only one host has counts as a single difference: its presence.
    both = {fact.subject for fact in first_facts} & {fact.subject for fact in second_facts}
    differences, same = list[Difference](), 0
    sources = load_texts("messages.toml")["fact_source"]
    for key in dict.fromkeys((*first, *second)):
        kind, subject, aspect = key
        first_fact, second_fact = first.get(key), second.get(key)
        if subject not in both and kind is not FactKind.PRESENCE:
            continue
        if first_fact and second_fact and first_fact.values == second_fact.values:
            same += 1
            continue
        sides = (_get_values(first_fact, kind), _get_values(second_fact, kind))
        is_setting = kind is FactKind.SETTING and aspect in SETTINGS
        source = SETTINGS[aspect].source if is_setting else sources.get(kind.name)
        differences.append(Difference(kind, subject, aspect, *sides, source))
    # The depth of disks precedes the depth of the host.
    differences.sort(key=lambda row: (FACT_RANKS[row.kind], row.what not in SETTINGS))
    return differences, same


def _get_values(fact: HostFact | None, kind: FactKind) -> tuple[Valued, ...]:
    if fact is not None:
        return fact.found
    return (Valued(0, 1, ()),) if kind in (FactKind.ERRORS, FactKind.COUNTERS) else ()
