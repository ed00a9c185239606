"""A fleet of a thousand described hosts of six kinds, ten of which are odd, each in its own way."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from hbatune.facts.model import Attribute, Endpoint, Link
from hbatune.snapshot.file import Snapshot, encode_snapshot, load_snapshot
from tests.hosts.namespace import run
from tests.hosts.tree import Described, build

HOSTS = 1000
KINDS = ("mpt3sas", "mpi3mr", "megaraid_sas", "nvme", "fc_multipath", "smartpqi")

Oddness = Callable[[Snapshot], Snapshot]


def snapshot_of(described: Described, folder: Path) -> Snapshot:
    """Return the snapshot that hbatune takes of a described machine, built in the folder."""
    root, path = folder / "root", folder / "host.snap"
    build(described, root)
    take = "from hbatune.cli import main; import sys; sys.exit(main(['snapshot', sys.argv[1]]))"
    run(root, [sys.executable, "-c", take, str(path)])
    return load_snapshot(path)


def save_fleet(folder: Path, kinds: list[Snapshot], hosts: int = HOSTS) -> dict[str, str]:
    """Write the snapshots of a fleet to the folder; return what each odd host is odd in, by name.

    Hosts differ by what differs in any fleet: name, boot, identities, times, error counts, slots.
    """
    chance = random.Random(17)
    odd = dict(zip(chance.sample(range(hosts), len(ODD)), ODD.items(), strict=True))
    named = {}
    for number in range(hosts):
        taken = _one_of_many(kinds[number % len(kinds)], number)
        if number in odd:
            what, make = odd[number]
            taken = make(taken)
            named[taken.machine.hostname] = what
        (folder / f"{taken.machine.hostname}.snap").write_bytes(encode_snapshot(taken))
    return named


def _one_of_many(kind: Snapshot, number: int) -> Snapshot:
    machine = kind.machine
    endpoints = tuple(
        each if each.paths else replace(each, id=f"wwn-{number:08x}-{place}@{_route(each)}")
        for place, each in enumerate(machine.endpoints)
    )
    own = replace(
        machine,
        hostname=f"host{number}",
        boot_id=f"{number:08x}-0000-4000-8000-000000000000",
        endpoints=endpoints,
        memory=machine.memory + number * 4096,
    )
    disks = {
        name: replace(each, done=number * 977, errors=number % 7)
        for name, each in kind.health.disks.items()
    }
    return replace(
        kind,
        machine=own,
        health=replace(kind.health, disks=disks),
        policy=replace(kind.policy, active="oltp" if number % 2 else "balanced"),
        taken=kind.taken + number,
    )


def _route(endpoint: Endpoint) -> str:
    return endpoint.id.rpartition("@")[2]


def _adapter(**facts: object) -> Oddness:
    def make(taken: Snapshot) -> Snapshot:
        first, *others = taken.machine.adapters
        adapters = (replace(first, **facts), *others)
        return replace(taken, machine=replace(taken.machine, adapters=adapters))

    return make


def _link(**facts: object) -> Oddness:
    def make(taken: Snapshot) -> Snapshot:
        link = taken.machine.adapters[0].link
        assert isinstance(link, Link)
        return _adapter(link=replace(link, **facts))(taken)

    return make


def _disk(change: Callable[[Endpoint], Endpoint]) -> Oddness:
    def make(taken: Snapshot) -> Snapshot:
        first, *others = taken.machine.endpoints
        return replace(taken, machine=replace(taken.machine, endpoints=(change(first), *others)))

    return make


def _attribute(path: str, text: str) -> Oddness:
    def change(disk: Endpoint) -> Endpoint:
        return replace(disk, attributes={**disk.attributes, path: Attribute(text, True)})

    return _disk(change)


def _host(**facts: object) -> Oddness:
    return lambda taken: replace(taken, machine=replace(taken.machine, **facts))


def _daemon(taken: Snapshot) -> Snapshot:
    daemons = {**taken.health.daemons, "irqbalance": not taken.health.daemons["irqbalance"]}
    return replace(taken, health=replace(taken.health, daemons=daemons))


ODD: dict[str, Oddness] = {
    "link width": _link(width=1),
    "link speed": _link(speed=2.5),
    "firmware": _adapter(firmware="0.0.1"),
    "driver version": _adapter(driver_version="0.1"),
    "nr_requests": _attribute("queue/nr_requests", "31"),
    "read_ahead_kb": _attribute("queue/read_ahead_kb", "9999"),
    "drive firmware": _disk(lambda disk: replace(disk, revision="ODD1")),
    "kernel": _host(kernel="5.10.0-old"),
    "CPUs": _host(cpus=3),
    "irqbalance runs": _daemon,
}
