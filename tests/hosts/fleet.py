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
    """Write the snapshots of a fleet to the folder. Return the oddity of each odd host by name.

    All hosts differ in name, boot, identities, times, error counts and slots.
    """
    chance = random.Random(17)
    odd = dict(zip(chance.sample(range(hosts), len(ODD)), ODD.items(), strict=True))
    named = {}
    for number in range(hosts):
        snapshot = _one_of_many(kinds[number % len(kinds)], number)
        if number in odd:
            oddity, make = odd[number]
            snapshot = make(snapshot)
            named[snapshot.machine.hostname] = oddity
        (folder / f"{snapshot.machine.hostname}.snap").write_bytes(encode_snapshot(snapshot))
    return named


def _one_of_many(kind: Snapshot, number: int) -> Snapshot:
    machine = kind.machine
    endpoints = tuple(
        endpoint
        if endpoint.paths
        else replace(endpoint, id=f"wwn-{number:08x}-{place}@{_route(endpoint)}")
        for place, endpoint in enumerate(machine.endpoints)
    )
    host_machine = replace(
        machine,
        hostname=f"host{number}",
        boot_id=f"{number:08x}-0000-4000-8000-000000000000",
        endpoints=endpoints,
        memory=machine.memory + number * 4096,
    )
    disks = {
        name: replace(disk_health, done=number * 977, errors=number % 7)
        for name, disk_health in kind.health.disks.items()
    }
    return replace(
        kind,
        machine=host_machine,
        health=replace(kind.health, disks=disks),
        policy=replace(kind.policy, active="oltp" if number % 2 else "balanced"),
        taken=kind.taken + number,
    )


def _route(endpoint: Endpoint) -> str:
    return endpoint.id.rpartition("@")[2]


def _adapter(**facts: object) -> Oddness:
    def make(snapshot: Snapshot) -> Snapshot:
        first, *more_adapters = snapshot.machine.adapters
        adapters = (replace(first, **facts), *more_adapters)
        return replace(snapshot, machine=replace(snapshot.machine, adapters=adapters))

    return make


def _link(**facts: object) -> Oddness:
    def make(snapshot: Snapshot) -> Snapshot:
        link = snapshot.machine.adapters[0].link
        assert isinstance(link, Link)
        return _adapter(link=replace(link, **facts))(snapshot)

    return make


def _disk(change: Callable[[Endpoint], Endpoint]) -> Oddness:
    def make(snapshot: Snapshot) -> Snapshot:
        first, *more_endpoints = snapshot.machine.endpoints
        return replace(
            snapshot, machine=replace(snapshot.machine, endpoints=(change(first), *more_endpoints))
        )

    return make


def _attribute(path: str, text: str) -> Oddness:
    def change(disk: Endpoint) -> Endpoint:
        return replace(disk, attributes={**disk.attributes, path: Attribute(text, True)})

    return _disk(change)


def _host(**facts: object) -> Oddness:
    return lambda snapshot: replace(snapshot, machine=replace(snapshot.machine, **facts))


def _daemon(snapshot: Snapshot) -> Snapshot:
    daemons = {**snapshot.health.daemons, "irqbalance": not snapshot.health.daemons["irqbalance"]}
    return replace(snapshot, health=replace(snapshot.health, daemons=daemons))


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
