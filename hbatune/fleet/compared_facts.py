"""The facts of hosts that are compared: of many alike hosts, and of two.

The facts of a host that are compared with those of other hosts. Pure.

No fact names a place that differs from host to host by chance, such as a PCI address, a disk's name
or an interrupt's number: facts are about adapters of one product together, and disks of one model
behind them.

The facts of two hosts, paired: what is compared of them beyond what many alike hosts have. Pure.

Disks of another model are one thing and not two where each host has one such model behind the same
adapter. Errors are compared by their sums: since boot, or since the first of two looks at one boot.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.health import GRAVE, LOGGED, NOT_GOOD, Counted, ErrorKind, Health, counted
from hbatune.facts.model import (
    Adapter,
    Attribute,
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
"""The value of a fact; None where the host could not read it."""

THE_HOST = "host"
"""The subject of facts about no adapter."""

MAPS = "multipath maps"
"""The subject of facts about maps, which may run over several adapters."""

LONGEST = 160
"""Characters of a text from a snapshot that are kept."""


class FactKind(StrEnum):
    """The kinds of facts, those first that bear the most on how fast a host's storage is."""

    PRESENCE = "presence"  # adapters, disks and paths that are there
    LINK = "link"  # width and speed of PCI Express
    STATE = "state"  # disks that the kernel has given up
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
    COUNTERS = "counters"  # what is counted and says little by itself (only between two hosts)


ORDER = {kind: place for place, kind in enumerate(FactKind)}
"""The place of each kind among what matters."""


class Valued(Struct, frozen=True):
    """A value with the number of targets that have it, and their names, of many only the first."""

    value: Scalar
    count: int
    targets: tuple[str, ...]


class HostFact(Struct, frozen=True):
    """One fact: its subject, what it says of it, and the values that are there, each once."""

    kind: FactKind
    subject: str
    what: str
    found: tuple[Valued, ...]

    @property
    def values(self) -> tuple[Scalar, ...]:
        """The values alone, in natural order."""
        return tuple(each.value for each in self.found)

    @property
    def key(self) -> tuple[FactKind, str, str]:
        """What it is about."""
        return self.kind, self.subject, self.what


def adapter_kind(adapter: Adapter) -> str:
    """Return the driver and the PCI ids of an adapter, which all of one kind have in common."""
    pci = adapter.pci
    if pci is None:
        return adapter.family
    ids = (pci.vendor, pci.device, pci.subsystem_vendor, pci.subsystem_device)
    return f"{adapter.family} " + ":".join(
        "?" if isinstance(each, Missing) else f"{each:04x}" for each in ids
    )


def adapter_name(adapter: Adapter) -> str:
    """Return the name of an adapter's product, else its driver and PCI ids."""
    return short(adapter.product or adapter_kind(adapter))


def short(text: str) -> str:
    """Return a text from a snapshot, cut where it is longer than any that makes sense."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def host_facts(snapshot: Snapshot, *, names: int) -> tuple[HostFact, ...]:
    """Return the facts that alike hosts have in common, with so many names of targets for each.

    The kinds that matter most come first.
    """
    found = GatheredFacts(names)
    add_facts(found, snapshot)
    return found.facts()


def add_facts(found: "GatheredFacts", snapshot: Snapshot) -> None:
    """Add the facts of a host."""
    machine, health = snapshot.machine, snapshot.health
    called = adapter_names(machine)
    _add_adapters(found, machine, health, called)
    _add_disks(found, machine, health, called)
    _add_host(found, snapshot)


def adapter_names(machine: Machine) -> dict[str, str]:
    """Return the name of each adapter's product, by target."""
    return {adapter.target: adapter_name(adapter) for adapter in machine.adapters}


class GatheredFacts:
    """Values by what they are about, as they are found, with at most ``names`` targets each.

    ``called`` gives subjects another name.
    """

    def __init__(self, names: int, called: Mapping[str, str] | None = None) -> None:
        self._names = names
        self._called = called or {}
        self._found: dict[tuple[FactKind, str, str], dict[Scalar, list[str]]] = {}

    def add(self, kind: FactKind, subject: str, what: str, value: object, target: str = "") -> None:
        """Add a value; one that is absent by its nature is no fact."""
        if isinstance(value, Missing):
            if value.reason is Reason.ABSENT:
                return
            value = None
        kept = short(value) if isinstance(value, str) else value
        assert kept is None or isinstance(kept, bool | int | float | str)
        key = (kind, self._called.get(subject, subject), what)
        values = self._found.setdefault(key, {})
        values.setdefault(kept, []).append(target)

    def facts(self) -> tuple[HostFact, ...]:
        """Return all facts in their order."""
        made = [HostFact(*key, tuple(self._valued(values))) for key, values in self._found.items()]
        return tuple(sorted(made, key=lambda each: ORDER[each.kind]))

    def _valued(self, values: dict[Scalar, list[str]]) -> Iterator[Valued]:
        for value in sorted(values, key=_value_key):
            targets = sorted((each for each in values[value] if each), key=natural_key)
            named = tuple(short(target) for target in targets[: self._names])
            yield Valued(value, len(values[value]), named)


def _value_key(value: Scalar) -> tuple[object, ...]:
    if isinstance(value, str):
        return (2, natural_key(value))
    return (0, 0) if value is None else (1, value)


def _add_adapters(
    found: GatheredFacts, machine: Machine, health: Health, called: dict[str, str]
) -> None:
    vectors: dict[str, int] = defaultdict(int)
    for vector in machine.vectors:
        vectors[vector.adapter] += vector.role is Role.DATA
    for name, adapters in _grouped(machine.adapters, called).items():
        found.add(FactKind.PRESENCE, name, "adapters", len(adapters))
        for adapter in adapters:
            if adapter.link is not None:
                found.add(FactKind.LINK, name, "link width", adapter.link.width, adapter.target)
                found.add(FactKind.LINK, name, "link speed", adapter.link.speed, adapter.target)
            found.add(FactKind.FIRMWARE, name, "firmware", adapter.firmware, adapter.target)
            found.add(
                FactKind.DRIVER, name, "driver version", adapter.driver_version, adapter.target
            )
            found.add(
                FactKind.INTERRUPTS, name, "hardware queues", adapter.hw_queues, adapter.target
            )
            found.add(
                FactKind.INTERRUPTS, name, "data vectors", vectors[adapter.target], adapter.target
            )
            for host in adapter.hosts:
                found.add(FactKind.DEPTH, name, "can_queue", host.can_queue, adapter.target)
            if (fares := health.adapters.get(adapter.target)) is None:
                continue
            for port, rate in fares.rates.items():
                found.add(FactKind.RATE, name, "port rate", rate.now, port)
            for option, value in fares.options.items():
                found.add(FactKind.OPTION, name, short(option), value, adapter.target)
    for control in machine.controls:
        _add_settings(found, called.get(control.adapter, control.adapter), control)


def _grouped(adapters: Iterable[Adapter], called: dict[str, str]) -> dict[str, list[Adapter]]:
    groups: dict[str, list[Adapter]] = {}
    for adapter in adapters:
        groups.setdefault(called[adapter.target], []).append(adapter)
    return groups


def _add_disks(
    found: GatheredFacts, machine: Machine, health: Health, called: dict[str, str]
) -> None:
    disks = [endpoint for endpoint in machine.endpoints if endpoint.kind is not Kind.MAP]
    maps = [endpoint for endpoint in machine.endpoints if endpoint.kind is Kind.MAP]
    for count in _counts(disks, called):
        found.add(FactKind.PRESENCE, *count)
    for disk in disks:
        subject = disk_subject(disk, called)
        found.add(FactKind.STATE, subject, "state", disk.state, disk.target)
        if disk.revision:
            found.add(FactKind.DRIVE, subject, "drive firmware", disk.revision, disk.target)
        if (fares := health.disks.get(disk.target)) is not None:
            found.add(FactKind.DRIVE, subject, "cache", fares.cache, disk.target)
        _add_settings(found, subject, disk)
    if maps:
        found.add(FactKind.PRESENCE, MAPS, "maps", len(maps))
    for each in maps:
        found.add(FactKind.PRESENCE, MAPS, "paths", len(each.paths), each.target)
        _add_settings(found, MAPS, each)


def _counts(disks: Sequence[Endpoint], called: dict[str, str]) -> Iterator[tuple[str, str, int]]:
    counted: dict[str, int] = defaultdict(int)
    for disk in disks:
        counted[disk_subject(disk, called)] += 1
    for subject, number in counted.items():
        yield subject, "disks", number


def disk_subject(endpoint: Endpoint, called: Mapping[str, str]) -> str:
    """Return the model of a disk and the product that it is behind."""
    return f"{disk_model(endpoint)} behind {called.get(endpoint.adapter or '', endpoint.family)}"


def disk_model(endpoint: Endpoint) -> str:
    """Return vendor and model of a disk, its protocol where it has neither."""
    model = " ".join(f"{endpoint.vendor} {endpoint.model}".split())
    return short(model or str(endpoint.protocol))


def _add_settings(found: GatheredFacts, subject: str, it: Endpoint | Control) -> None:
    kind = TargetKind.ENDPOINT if isinstance(it, Endpoint) else it.kind
    for name, setting in SETTINGS.items():
        if setting.on is not kind:
            continue
        attribute = it.attributes.get(setting.path)
        if not isinstance(attribute, Attribute):
            continue
        try:
            value = setting.parse(attribute.text)
        except ValueError:
            value = None
        of = FactKind.DEPTH if name == QUEUE_DEPTH else FactKind.SETTING
        found.add(of, subject, name, value, it.target)


def _add_host(found: GatheredFacts, snapshot: Snapshot) -> None:
    machine, health = snapshot.machine, snapshot.health
    found.add(FactKind.HOST, THE_HOST, "profile", snapshot.policy.active)
    found.add(FactKind.HOST, THE_HOST, "kernel", machine.kernel)
    found.add(FactKind.HOST, THE_HOST, "CPUs", machine.cpus)
    for daemon, runs in health.daemons.items():
        found.add(FactKind.HOST, THE_HOST, f"{short(daemon)} runs", runs)
    if not isinstance(health.tuned, Missing):
        found.add(FactKind.HOST, THE_HOST, "profile of tuned", health.tuned.names)
    found.add(FactKind.HOST, THE_HOST, "hbatune", snapshot.hbatune)


NAMES = 64
"""Names of targets that are kept for a value."""

_HARMLESS = frozenset({f"{LOGGED}{ErrorKind.RESET}", f"{LOGGED}{ErrorKind.SPACE}"})


def paired_facts(
    first: Snapshot, second: Snapshot
) -> tuple[tuple[HostFact, ...], tuple[HostFact, ...]]:
    """Return the facts of both hosts, with the same names for what is the same place in both."""
    renamed = _other_models(first.machine, second.machine)
    found = []
    since = _counted(first) if first.machine.boot_id == second.machine.boot_id else None
    for snapshot, called, before in ((first, {}, None), (second, renamed, since)):
        facts = GatheredFacts(NAMES, called)
        add_facts(facts, snapshot)
        _add_models(facts, snapshot.machine)
        _add_interrupts(facts, snapshot.machine)
        if since is None or before is not None:
            _add_counters(facts, snapshot, before)
        found.append(facts.facts())
    return found[0], found[1]


def _other_models(first: Machine, second: Machine) -> Mapping[str, str]:
    """Return the names of the first host's disks for those of the second that take their place."""
    own, others = _by_place(first), _by_place(second)
    found = {}
    for place in own.keys() & others.keys():
        gone, came = own[place] - others[place], others[place] - own[place]
        if len(gone) == len(came) == 1:
            found[came.pop()] = gone.pop()
    return found


def _by_place(machine: Machine) -> dict[tuple[str, str, str], set[str]]:
    called = adapter_names(machine)
    found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for disk in _disks(machine):
        place = (called.get(disk.adapter or "", ""), str(disk.protocol), str(disk.medium))
        found[place].add(disk_subject(disk, called))
    return found


def _disks(machine: Machine) -> Iterator[Endpoint]:
    return (endpoint for endpoint in machine.endpoints if endpoint.kind is not Kind.MAP)


def _add_models(facts: GatheredFacts, machine: Machine) -> None:
    called = adapter_names(machine)
    for disk in _disks(machine):
        model = disk_model(disk)
        facts.add(FactKind.DRIVE, disk_subject(disk, called), "model", model, disk.target)
        facts.add(FactKind.DRIVE, disk_subject(disk, called), "bytes", disk.size, disk.target)


def _add_interrupts(facts: GatheredFacts, machine: Machine) -> None:
    """Add how many CPUs serve each adapter."""
    called = adapter_names(machine)
    serving: dict[str, set[str]] = defaultdict(set)
    for vector in machine.vectors:
        if vector.role is not Role.DATA:
            continue
        if vector.effective:
            serving[vector.adapter].add(vector.effective)
    for adapter, cpus in serving.items():
        name = called[adapter]
        facts.add(FactKind.INTERRUPTS, name, "CPUs that serve it", len(cpus), adapter)


def _counted(snapshot: Snapshot) -> Counted:
    return counted(snapshot.machine, snapshot.health, snapshot.taken)


def _add_counters(facts: GatheredFacts, snapshot: Snapshot, before: Counted | None) -> None:
    """Add the sum of each counter over the disks of a model or the adapters of a product."""
    machine = snapshot.machine
    called = adapter_names(machine)
    subjects = {disk.id: disk_subject(disk, called) for disk in _disks(machine)} | called
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for target, values in _counted(snapshot).values.items():
        for name, count in values.items():
            risen = count - (before.value(target, name) if before else 0)
            if target in subjects and name != NOT_GOOD and risen > 0:
                sums[subjects[target], name] += risen
    for (subject, name), count in sums.items():
        grave = name in GRAVE or (name.startswith(LOGGED) and name not in _HARMLESS)
        facts.add(FactKind.ERRORS if grave else FactKind.COUNTERS, subject, name, count)
