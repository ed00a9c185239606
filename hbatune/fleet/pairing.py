"""The facts of two hosts, paired: what is compared of them beyond what many alike hosts have. Pure.

Disks of another model are one thing and not two where each host has one such model behind the same
adapter. Errors are compared by their sums: since boot, or since the first of two looks at one boot.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from hbatune.facts.health import GRAVE, LOGGED, NOT_GOOD, Counted, ErrorKind, counted
from hbatune.facts.model import Endpoint, Kind, Machine, Role
from hbatune.fleet.facts import (
    FactKind,
    GatheredFacts,
    HostFact,
    adapter_names,
    add_facts,
    disk_model,
    disk_subject,
)
from hbatune.snapshot.model import Snapshot

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
    for each in _disks(machine):
        place = (called.get(each.adapter or "", ""), str(each.protocol), str(each.medium))
        found[place].add(disk_subject(each, called))
    return found


def _disks(machine: Machine) -> Iterator[Endpoint]:
    return (each for each in machine.endpoints if each.kind is not Kind.MAP)


def _add_models(facts: GatheredFacts, machine: Machine) -> None:
    called = adapter_names(machine)
    for each in _disks(machine):
        model = disk_model(each)
        facts.add(FactKind.DRIVE, disk_subject(each, called), "model", model, each.target)
        facts.add(FactKind.DRIVE, disk_subject(each, called), "bytes", each.size, each.target)


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
    subjects = {each.id: disk_subject(each, called) for each in _disks(machine)} | called
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for target, values in _counted(snapshot).values.items():
        for name, count in values.items():
            risen = count - (before.value(target, name) if before else 0)
            if target in subjects and name != NOT_GOOD and risen > 0:
                sums[subjects[target], name] += risen
    for (subject, name), count in sums.items():
        grave = name in GRAVE or (name.startswith(LOGGED) and name not in _HARMLESS)
        facts.add(FactKind.ERRORS if grave else FactKind.COUNTERS, subject, name, count)
