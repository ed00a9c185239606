"""Gather part of a known machine: the named disks and their related devices.

A map, or an NVMe head, and its paths are gathered together, since they are planned together.
Everything else about the machine comes from an earlier scan. If that may be outdated, there is no
partial result, and the caller scans the entire machine.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from hbatune.facts import endpoints, routes
from hbatune.facts.assembly import add_maps, build_disks, make_selector, merge_names
from hbatune.facts.attributes import Attributes
from hbatune.facts.devices import (
    Devices,
    Stack,
    can_be_endpoint,
    find_directory,
    find_head,
    find_hidden_paths,
    is_map,
)
from hbatune.facts.endpoints import ServingAdapter
from hbatune.facts.families import family_named
from hbatune.facts.ids import extract_lasting_part
from hbatune.facts.model import Endpoint, Machine
from hbatune.facts.routes import (
    Branch,
    Place,
    Routes,
    get_kernel_name,
    is_head,
    is_virtual,
    parse_place,
)
from hbatune.facts.survey import survey_requests
from hbatune.workers import WorkerPool

_BLOCK = "/sys/class/block"
_PARALLEL = "/sys/class/spi_transport"
_ADAPTERS = ("/sys/class/scsi_host", "/sys/class/nvme", "/sys/bus/pci/devices")


class KnownMachine:
    """A machine as found by the latest scans, without attributes. Mutable: ``update``."""

    def __init__(self, machine: Machine) -> None:
        self._base = replace(machine, endpoints=(), controls=())
        self._controls = tuple(replace(control, attributes={}) for control in machine.controls)
        self._endpoints: dict[str, Endpoint] = {}
        self._names_by_id: dict[str, set[str]] = defaultdict(set)
        self._hosts: dict[str, set[str]] = defaultdict(set)
        self._targets: dict[str, set[str]] = defaultdict(set)
        self._add(machine.endpoints)
        self.adapters = {adapter.target: adapter for adapter in machine.adapters}
        self._iterate_branches = tuple(_iterate_branches(machine))
        self._routes = Routes(self._iterate_branches, {})

    @property
    def machine(self) -> Machine:
        """The entire machine."""
        endpoints = tuple(self._endpoints.values())
        return replace(self._base, endpoints=endpoints, controls=self._controls)

    @property
    def rest(self) -> Machine:
        """The machine without its endpoints and controls."""
        return self._base

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
        names = self._targets.get(address, ())
        return tuple(self._endpoints[name] for name in sorted(names))

    def of_controller(self, name: str) -> tuple[Endpoint, ...]:
        """Return the disks of the NVMe controller with this kernel name."""
        return tuple(
            endpoint for endpoint in self._endpoints.values() if endpoint.controller == name
        )

    def has_host(self, host: str) -> bool:
        """Return whether this is a SCSI host of the machine."""
        return any(
            known_host.name == host
            for adapter in self.adapters.values()
            for known_host in adapter.hosts
        )

    def alike(self, id: str) -> frozenset[str]:
        """Return the kernel names of the endpoints with this id, ignoring a boot's suffix."""
        return frozenset(self._names_by_id.get(extract_lasting_part(id), ()))

    def ways(self, branches: Collection[Branch], read: Mapping[str, Attributes]) -> Routes:
        """Return the routes to disks on these branches, using the attributes in ``read``."""
        if all(map(self._routes.knows, branches)):
            return self._routes.reading(read)
        # The first disk of a host identifies it better than the host itself.
        return Routes((*branches, *self._iterate_branches), read)

    def update(self, part: Machine, removed: Iterable[str] = ()) -> None:
        """Store the endpoints of a partial scan and forget the removed ones, by kernel name."""
        for name in (*removed, *(endpoint.target for endpoint in part.endpoints)):
            self._forget(name)
        self._add(part.endpoints)

    def _add(self, endpoints: Iterable[Endpoint]) -> None:
        for endpoint in endpoints:
            self._endpoints[endpoint.target] = replace(endpoint, attributes={})
            self._names_by_id[extract_lasting_part(endpoint.id)].add(endpoint.target)
            if endpoint.host is not None:
                self._hosts[endpoint.host.name].add(endpoint.target)
            if endpoint.address is not None:
                self._targets[_get_scsi_target(endpoint.address)].add(endpoint.target)

    def _forget(self, target: str) -> None:
        endpoint = self._endpoints.pop(target, None)
        if endpoint is None:
            return
        for index, key in (
            (self._names_by_id, extract_lasting_part(endpoint.id)),
            (self._hosts, endpoint.host.name if endpoint.host else ""),
            (self._targets, _get_scsi_target(endpoint.address or "")),
        ):
            index[key].discard(target)
            if not index[key]:
                del index[key]


def _iterate_branches(machine: Machine) -> Iterable[Branch]:
    """Yield a branch of each SCSI host: if possible a disk's, which identifies it better."""
    hosts = set()
    for endpoint in machine.endpoints:
        if endpoint.host is not None and endpoint.host.name not in hosts:
            hosts.add(endpoint.host.name)
            yield parse_place(endpoint.sysfs).branch
    for control in machine.controls:
        above, is_host, _ = control.sysfs.rpartition("/scsi_host/")
        if is_host and control.target not in hosts:
            yield routes.parse_branch(above)


def _get_scsi_target(address: str) -> str:
    return address.rpartition(":")[0]


def gather_part(
    known_machine: KnownMachine,
    names: Iterable[str],
    attributes: Sequence[str],
    *,
    deadline: float = 10.0,
    avoid: Mapping[str, str] | None = None,
    worker_pool: WorkerPool | None = None,
) -> Machine | None:
    """Return the machine with only the named disks and their related devices.

    ``names`` are kernel names of disks, or of SCSI hosts with known disks. Devices that no longer
    exist are omitted. Other arguments are as for ``gather_machine``. The result has no vectors and
    no controls. Its adapters are the known ones, and mounts and holders are not read.

    None if the known machine is not sufficient: for an adapter, a new host, a disk on a new host,
    and a disk whose id is not unique.
    """
    devices = _find(known_machine, names)
    if devices is None:
        return None
    requested, avoided = tuple(dict.fromkeys(attributes)), avoid or {}
    branches = dict.fromkeys(place.branch for place in devices.places.values())
    survey = survey_requests(
        _build_requests(devices, requested, branches),
        deadline=deadline,
        avoid={devices.disks[name]: avoided[name] for name in avoided.keys() & devices.disks},
        worker_pool=worker_pool,
    )
    serving = {
        name: known_machine.adapters[name] for branch in branches if (name := branch.adapter)
    }
    servers = {
        name: ServingAdapter(adapter, family_named(adapter.family))
        for name, adapter in serving.items()
    }
    select_attributes = make_selector(requested)
    disk_routes = known_machine.ways(branches, survey)
    endpoints = add_maps(
        devices,
        survey,
        build_disks(devices, survey, servers, select_attributes, disk_routes),
        select_attributes,
    )
    if _is_ambiguous(known_machine, endpoints):
        return None
    return replace(
        known_machine.rest,
        adapters=tuple(serving.values()),
        endpoints=tuple(endpoints.values()),
        modules=tuple(
            module
            for module in known_machine.rest.modules
            if any(module.name == server.family.name for server in servers.values())
        ),
        vectors=(),
    )


def _find(known_machine: KnownMachine, names: Iterable[str]) -> Devices | None:
    """Return the named block devices and their related devices."""
    directories: dict[str, str] = {}
    maps: dict[str, tuple[str, ...]] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in directories:
            continue
        if known_machine.has_host(name):
            waiting += known_machine.of_host(name)
            continue
        directory = _find_directory(name)
        if directory is None and any(os.path.exists(f"{folder}/{name}") for folder in _ADAPTERS):
            return None
        if directory is None:
            continue
        if is_head(directory):
            maps |= find_hidden_paths([name], _list_names(_BLOCK))
            waiting += maps[name]
        elif head := find_head(name):
            waiting.append(head)
        elif is_virtual(directory):
            if not is_map(directory):
                continue
            maps[name] = tuple(sorted(_list_whole_disks(f"{directory}/slaves")))
            waiting += maps[name]
        elif not can_be_endpoint(name, directory):
            continue
        else:
            waiting += [holder for holder in _list_names(f"{directory}/holders") if _is_map(holder)]
        directories[name] = directory
    disks = {get_kernel_name(directory): directory for directory in sorted(directories.values())}
    places = {path: parse_place(path) for name, path in disks.items() if name not in maps}
    if not all(_is_known(known_machine, disk_place) for disk_place in places.values()):
        return None
    targets = {disk_place.target for disk_place in places.values() if disk_place.target}
    return Devices(
        disks=disks,
        places=places,
        maps={name: path for name, path in disks.items() if name in maps},
        servers=(),
        parallel=frozenset(target for target in targets if os.path.exists(f"{_PARALLEL}/{target}")),
        stack=Stack(maps, {}),
    )


def _build_requests(
    devices: Devices, requested: tuple[str, ...], branches: Iterable[Branch]
) -> dict[str, tuple[str, ...]]:
    """Return the attributes to read from each directory."""
    requests: dict[str, tuple[str, ...]] = {}
    for directory, disk_place in devices.places.items():
        requests[directory] = merge_names(endpoints.list_attributes(disk_place), requested)
        if disk_place.branch.end_device:
            requests[routes.find_end_device(disk_place.branch.end_device)] = (
                endpoints.PORT_ATTRIBUTES
            )
    for directory in devices.maps.values():
        requests[directory] = merge_names(endpoints.MAP_ATTRIBUTES, requested)
    for directory, names in routes.list_route_attributes(branches).items():
        requests[directory] = merge_names(requests.get(directory, ()), names)
    return requests


def _is_known(known_machine: KnownMachine, place: Place) -> bool:
    """Return whether the adapter of a disk, and its host or controller, are known."""
    branch = place.branch
    if branch.adapter is None:
        return True
    adapter = known_machine.adapters.get(branch.adapter)
    if adapter is None:
        return False
    if branch.host is not None:
        return any(host.name == get_kernel_name(branch.host) for host in adapter.hosts)
    return branch.controller is None or adapter.controller == get_kernel_name(branch.controller)


def _is_ambiguous(known_machine: KnownMachine, endpoints: Mapping[str, Endpoint]) -> bool:
    """Return whether one of these ids is also the id of another disk that still exists."""
    ids = [endpoint.id for endpoint in endpoints.values()]
    if len(set(ids)) < len(ids):
        return True
    other_names = {name for id in ids for name in known_machine.alike(id)} - endpoints.keys()
    return any(_find_directory(name) is not None for name in other_names)


def _find_directory(name: str) -> str | None:
    """Return the sysfs directory of the block device with this name, or None."""
    try:
        path = find_directory("block", name)
    except OSError:
        return None
    return path if "/" not in name and get_kernel_name(path) == name else None


def _is_map(name: str) -> bool:
    directory = _find_directory(name)
    return directory is not None and is_virtual(directory) and is_map(directory)


def _list_whole_disks(links_dir: str) -> set[str]:
    """Return the disks that the links in a directory point to, directly or as partitions."""
    disks = set()
    for name in _list_names(links_dir):
        directory = os.path.realpath(f"{links_dir}/{name}")
        is_partition = os.path.exists(f"{directory}/partition")
        disks.add(get_kernel_name(os.path.dirname(directory)) if is_partition else name)
    return disks


def _list_names(folder: str) -> list[str]:
    with suppress(OSError):
        return os.listdir(folder)
    return []
