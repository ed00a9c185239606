"""Gathers a part of a machine that is known: the disks that are named, and what hangs on them.

The paths of a map, or of an NVMe head, and the map hang together: one is planned like the others.
Everything else that is needed of the machine is known from an earlier look. Where that may no
longer be true, there is no part, and the caller looks at everything.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from hbatune.facts import endpoints, routes
from hbatune.facts.assembly import build_disks, join, selector, union
from hbatune.facts.attributes import Attributes
from hbatune.facts.devices import (
    Devices,
    Stack,
    directory_of,
    head_of,
    hidden_paths,
    is_map,
    may_be_endpoint,
)
from hbatune.facts.endpoints import ServingAdapter
from hbatune.facts.families import family_named
from hbatune.facts.ids import lasting
from hbatune.facts.model import Endpoint, Machine
from hbatune.facts.routes import Branch, Place, Routes, is_head, is_virtual, name_of, place
from hbatune.facts.survey import survey_each
from hbatune.workers import WorkerPool

_BLOCK = "/sys/class/block"
_PARALLEL = "/sys/class/spi_transport"
_ADAPTERS = ("/sys/class/scsi_host", "/sys/class/nvme", "/sys/bus/pci/devices")


class KnownMachine:
    """A machine as the last looks have found it, without attributes. Mutable: ``update``."""

    def __init__(self, machine: Machine) -> None:
        self._rest = replace(machine, endpoints=(), controls=())
        self._controls = tuple(replace(control, attributes={}) for control in machine.controls)
        self._endpoints: dict[str, Endpoint] = {}
        self._alike: dict[str, set[str]] = defaultdict(set)
        self._hosts: dict[str, set[str]] = defaultdict(set)
        self._targets: dict[str, set[str]] = defaultdict(set)
        self._add(machine.endpoints)
        self.adapters = {adapter.target: adapter for adapter in machine.adapters}
        self._branches = tuple(_branches(machine))
        self._routes = Routes(self._branches, {})

    @property
    def machine(self) -> Machine:
        """The whole machine."""
        found = tuple(self._endpoints.values())
        return replace(self._rest, endpoints=found, controls=self._controls)

    @property
    def rest(self) -> Machine:
        """The machine without its endpoints and controls."""
        return self._rest

    def __len__(self) -> int:
        return len(self._endpoints)

    def get(self, target: str) -> Endpoint | None:
        """Return the endpoint with this kernel name."""
        return self._endpoints.get(target)

    def of_host(self, host: str) -> frozenset[str]:
        """Return the kernel names of the endpoints of a SCSI host."""
        return frozenset(self._hosts.get(host, ()))

    def of_scsi_target(self, address: str) -> tuple[Endpoint, ...]:
        """Return the LUNs of the SCSI target with this address (H:C:T)."""
        found = self._targets.get(address, ())
        return tuple(self._endpoints[name] for name in sorted(found))

    def of_controller(self, name: str) -> tuple[Endpoint, ...]:
        """Return the disks of the NVMe controller with this kernel name."""
        return tuple(
            endpoint for endpoint in self._endpoints.values() if endpoint.controller == name
        )

    def has_host(self, host: str) -> bool:
        """Whether this is a SCSI host of the machine."""
        return any(each.name == host for it in self.adapters.values() for each in it.hosts)

    def alike(self, id: str) -> frozenset[str]:
        """Return the kernel names of the endpoints with this id, apart from this boot's part."""
        return frozenset(self._alike.get(lasting(id), ()))

    def ways(self, branches: Collection[Branch], read: Mapping[str, Attributes]) -> Routes:
        """Return the routes to disks on these branches, of which the attributes were read."""
        if all(map(self._routes.knows, branches)):
            return self._routes.reading(read)
        # The first disk of a host says more of it than the host itself did.
        return Routes((*branches, *self._branches), read)

    def update(self, part: Machine, gone: Iterable[str] = ()) -> None:
        """Take the endpoints of a part, and forget those that are gone, by kernel name."""
        for name in (*gone, *(endpoint.target for endpoint in part.endpoints)):
            self._forget(name)
        self._add(part.endpoints)

    def _add(self, found: Iterable[Endpoint]) -> None:
        for each in found:
            self._endpoints[each.target] = replace(each, attributes={})
            self._alike[lasting(each.id)].add(each.target)
            if each.host is not None:
                self._hosts[each.host.name].add(each.target)
            if each.address is not None:
                self._targets[_target(each.address)].add(each.target)

    def _forget(self, target: str) -> None:
        known = self._endpoints.pop(target, None)
        if known is None:
            return
        for index, key in (
            (self._alike, lasting(known.id)),
            (self._hosts, known.host.name if known.host else ""),
            (self._targets, _target(known.address or "")),
        ):
            index[key].discard(target)
            if not index[key]:
                del index[key]


def _branches(machine: Machine) -> Iterable[Branch]:
    """Yield a branch of each SCSI host: of one with disks a disk's, which says more of it."""
    seen = set()
    for endpoint in machine.endpoints:
        if endpoint.host is not None and endpoint.host.name not in seen:
            seen.add(endpoint.host.name)
            yield place(endpoint.sysfs).branch
    for control in machine.controls:
        above, is_host, _ = control.sysfs.rpartition("/scsi_host/")
        if is_host and control.target not in seen:
            yield routes.branch(above)


def _target(address: str) -> str:
    return address.rpartition(":")[0]


def gather_part(
    known: KnownMachine,
    names: Iterable[str],
    attributes: Sequence[str],
    *,
    deadline: float = 10.0,
    avoid: Mapping[str, str] | None = None,
    worker_pool: WorkerPool | None = None,
) -> Machine | None:
    """Return the machine with the named disks and what hangs together with them, and nothing else.

    ``names`` are kernel names of disks, or of SCSI hosts, whose known disks are meant; those that
    are gone are left out. Other arguments are as for ``gather``. The part has no vectors and no
    controls, the adapters are those that are known, and mounts and holders are not looked for.

    None where what is known does not suffice: for an adapter, for a host that is new, and for a
    disk on such a one, or one whose id another disk has, too.
    """
    devices = _find(known, names)
    if devices is None:
        return None
    requested, avoided = tuple(dict.fromkeys(attributes)), avoid or {}
    branches = dict.fromkeys(each.branch for each in devices.places.values())
    survey = survey_each(
        _requests(devices, requested, branches),
        deadline=deadline,
        avoid={devices.disks[name]: avoided[name] for name in avoided.keys() & devices.disks},
        worker_pool=worker_pool,
    )
    serving = {name: known.adapters[name] for branch in branches if (name := branch.adapter)}
    servers = {
        name: ServingAdapter(each, family_named(each.family)) for name, each in serving.items()
    }
    only = selector(requested)
    ways = known.ways(branches, survey)
    found = join(devices, survey, build_disks(devices, survey, servers, only, ways), only)
    if _ambiguous(known, found):
        return None
    return replace(
        known.rest,
        adapters=tuple(serving.values()),
        endpoints=tuple(found.values()),
        modules=tuple(
            module
            for module in known.rest.modules
            if any(module.name == server.family.name for server in servers.values())
        ),
        vectors=(),
    )


def _find(known: KnownMachine, names: Iterable[str]) -> Devices | None:
    """Return the block devices that are named, and those that hang together with them."""
    found: dict[str, str] = {}
    maps: dict[str, tuple[str, ...]] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if known.has_host(name):
            waiting += known.of_host(name)
            continue
        directory = _directory(name)
        if directory is None and any(os.path.exists(f"{folder}/{name}") for folder in _ADAPTERS):
            return None
        if directory is None:
            continue
        if is_head(directory):
            maps |= hidden_paths([name], _names(_BLOCK))
            waiting += maps[name]
        elif head := head_of(name):
            waiting.append(head)
        elif is_virtual(directory):
            if not is_map(directory):
                continue
            maps[name] = tuple(sorted(_whole_disks(f"{directory}/slaves")))
            waiting += maps[name]
        elif not may_be_endpoint(name, directory):
            continue
        else:
            waiting += [each for each in _names(f"{directory}/holders") if _joins(each)]
        found[name] = directory
    disks = {name_of(directory): directory for directory in sorted(found.values())}
    places = {each: place(each) for name, each in disks.items() if name not in maps}
    if not all(_is_known(known, each) for each in places.values()):
        return None
    targets = {each.target for each in places.values() if each.target}
    return Devices(
        disks=disks,
        places=places,
        maps={name: each for name, each in disks.items() if name in maps},
        servers=(),
        parallel=frozenset(target for target in targets if os.path.exists(f"{_PARALLEL}/{target}")),
        stack=Stack(maps, {}),
    )


def _requests(
    devices: Devices, requested: tuple[str, ...], branches: Iterable[Branch]
) -> dict[str, tuple[str, ...]]:
    """Return the attributes to read from each directory."""
    requests: dict[str, tuple[str, ...]] = {}
    for directory, found in devices.places.items():
        requests[directory] = union(endpoints.wanted(found), requested)
        if found.branch.end_device:
            requests[routes.end_device(found.branch.end_device)] = endpoints.PORT
    for directory in devices.maps.values():
        requests[directory] = union(endpoints.MAP, requested)
    for directory, names in routes.requests(branches).items():
        requests[directory] = union(requests.get(directory, ()), names)
    return requests


def _is_known(known: KnownMachine, found: Place) -> bool:
    """Whether the adapter of a disk is known, and the host or controller that it is on."""
    branch = found.branch
    if branch.adapter is None:
        return True
    adapter = known.adapters.get(branch.adapter)
    if adapter is None:
        return False
    if branch.host is not None:
        return any(host.name == name_of(branch.host) for host in adapter.hosts)
    return branch.controller is None or adapter.controller == name_of(branch.controller)


def _ambiguous(known: KnownMachine, found: Mapping[str, Endpoint]) -> bool:
    """Whether an id of these is also that of another disk, which is still there."""
    ids = [each.id for each in found.values()]
    if len(set(ids)) < len(ids):
        return True
    others = {name for id in ids for name in known.alike(id)} - found.keys()
    return any(_directory(name) is not None for name in others)


def _directory(name: str) -> str | None:
    """Return the sysfs directory of the block device with this name, None where there is none."""
    try:
        path = directory_of("block", name)
    except OSError:
        return None
    return path if "/" not in name and name_of(path) == name else None


def _joins(name: str) -> bool:
    directory = _directory(name)
    return directory is not None and is_virtual(directory) and is_map(directory)


def _whole_disks(folder: str) -> set[str]:
    """Return the disks that the links in a folder lead to, themselves or as their partitions."""
    found = set()
    for name in _names(folder):
        directory = os.path.realpath(f"{folder}/{name}")
        is_partition = os.path.exists(f"{directory}/partition")
        found.add(name_of(os.path.dirname(directory)) if is_partition else name)
    return found


def _names(folder: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []
