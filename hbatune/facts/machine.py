"""Gather a machine's facts in one pass: of all devices, or of some disks.

A map, or an NVMe head, and its paths are gathered together, since they are planned together. A
narrowed pass excludes a disk only if its id cannot be the id of a named disk. A partial pass also
uses the facts of earlier passes. If they may be outdated, the caller scans everything.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from hbatune.errors import HbatuneError
from hbatune.facts import assembly, routes
from hbatune.facts import devices as block
from hbatune.facts.adapters import group_branches
from hbatune.facts.assembly import ReadRequest
from hbatune.facts.devices import Devices, find_devices, find_disk_directory, list_stacks
from hbatune.facts.ids import extract_lasting_part
from hbatune.facts.model import Endpoint, Machine, TargetKind
from hbatune.facts.names import add_siblings
from hbatune.facts.routes import Branch, Place, Routes, get_kernel_name
from hbatune.workers import WorkerPool

_BLOCK = "/sys/class/block"
_ADAPTERS = ("/sys/class/scsi_host", "/sys/class/nvme", "/sys/bus/pci/devices")
_DEV = "/dev/"
# Transports whose routes name a port of the fabric instead of the SCSI target's number.
_BY_PORT = frozenset({"fc", "sas", "iscsi", "ata"})


class InsufficientFactsError(HbatuneError):
    """The facts of earlier scans are not enough for a partial scan."""


class KnownMachine:
    """A machine as found by the latest scans, without attributes. Mutable: ``update``."""

    def __init__(self, machine: Machine) -> None:
        machine = assembly.without_attributes(machine)
        self.rest = replace(machine, endpoints=(), controls=())
        self._controls = machine.controls
        self._endpoints = {endpoint.target: endpoint for endpoint in machine.endpoints}
        self.adapters = {adapter.target: adapter for adapter in machine.adapters}
        self.branches = tuple(_iterate_branches(machine))

    @property
    def machine(self) -> Machine:
        """The entire machine."""
        endpoints = tuple(self._endpoints.values())
        return replace(self.rest, endpoints=endpoints, controls=self._controls)

    def __len__(self) -> int:
        return len(self._endpoints)

    def get(self, target: str) -> Endpoint | None:
        """Return the endpoint with this kernel name."""
        return self._endpoints.get(target)

    def of_host(self, host: str) -> frozenset[str]:
        """Return the kernel names of the endpoints of a SCSI host."""
        endpoints = self._endpoints.values()
        return frozenset(e.target for e in endpoints if e.host is not None and e.host.name == host)

    def of_scsi_targets(self, addresses: Collection[str]) -> tuple[Endpoint, ...]:
        """Return the LUNs of the SCSI targets with these addresses (H:C:T)."""
        return tuple(lun for lun in self._endpoints.values() if lun.scsi_target in addresses)

    def of_controller(self, name: str) -> tuple[Endpoint, ...]:
        """Return the disks of the NVMe controller with this kernel name."""
        return tuple(e for e in self._endpoints.values() if e.controller == name)

    def is_ambiguous(self, endpoints: Mapping[str, Endpoint]) -> bool:
        """Return whether one of these ids is also another present disk's, apart from suffixes."""
        ids = {endpoint.id for endpoint in endpoints.values()}
        lasting = set(map(extract_lasting_part, ids))
        names = set()
        for name, endpoint in self._endpoints.items():
            if extract_lasting_part(endpoint.id) in lasting:
                names.add(name)
        return len(ids) < len(endpoints) or any(map(find_disk_directory, names - endpoints.keys()))

    def has_server(self, branch: Branch) -> bool:
        """Return whether the adapter of a disk, and its host or controller, are known."""
        if branch.adapter is None:
            return True
        adapter = self.adapters.get(branch.adapter)
        if adapter is None:
            return False
        if branch.host is not None:
            return adapter.find_host(branch.host_name) is not None
        return branch.controller is None or adapter.controller == get_kernel_name(branch.controller)

    def update(self, part: Machine, removed: Iterable[str] = ()) -> None:
        """Store the endpoints of a partial scan and forget the removed ones, by kernel name."""
        for name in removed:
            self._endpoints.pop(name, None)
        for endpoint in assembly.without_attributes(part).endpoints:
            self._endpoints[endpoint.target] = endpoint


def _iterate_branches(machine: Machine) -> Iterator[Branch]:
    """Yield a branch of each SCSI host: if possible a disk's, which identifies it better."""
    hosts = set()
    for endpoint in machine.endpoints:
        if endpoint.host is not None and endpoint.host.name not in hosts:
            hosts.add(endpoint.host.name)
            yield routes.parse_place(endpoint.sysfs).branch
    for control in machine.controls:
        above, is_host, _ = control.sysfs.rpartition("/scsi_host/")
        if is_host and control.target not in hosts:
            yield routes.parse_branch(above)


def find_related_disks(names: Iterable[str]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return the directories of the named disks, their maps and these maps' paths, and the maps.

    A name of anything else is skipped. The maps are the names of their paths, by name.
    """
    directories: dict[str, str] = {}
    maps: dict[str, tuple[str, ...]] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        directory = find_disk_directory(name)
        if name in directories or directory is None:
            continue
        if routes.is_head(directory):
            maps |= block.find_hidden_paths([name], block.list_names(_BLOCK))
            waiting += maps[name]
        elif head := block.find_head(name):
            waiting.append(head)
        elif routes.is_virtual(directory):
            if not block.is_map(directory):
                continue
            maps[name] = tuple(sorted(block.list_lower_disks(directory)))
            waiting += maps[name]
        elif not block.can_be_endpoint(name, directory):
            continue
        else:
            waiting += block.list_names(f"{directory}/holders")  # maps, and others that are skipped
        directories[name] = directory
    return directories, maps


def find_related_devices(cached: KnownMachine, names: Iterable[str]) -> Devices:
    """Return the named disks, the disks of named SCSI hosts, and their related devices.

    InsufficientFactsError for an adapter, a new host, and a disk on a new host.
    """
    disk_names = set[str]()
    for name in names:
        if any(adapter.find_host(name) for adapter in cached.adapters.values()):
            disk_names |= cached.of_host(name)
        elif any(os.path.exists(f"{folder}/{name}") for folder in _ADAPTERS):
            raise InsufficientFactsError(f"{name} is an adapter or a new host")
        else:
            disk_names.add(name)
    # Volumes on paths name only the map.
    disk_names.update(find_related_disks(disk_names)[0])
    siblings = add_siblings(disk_names, (stack.disks for stack in cached.rest.stacks))
    directories, maps = find_related_disks(siblings)
    disks = dict(sorted(directories.items(), key=itemgetter(1)))
    joining = {name: path for name, path in disks.items() if name in maps}
    places = {path: routes.parse_place(path) for name, path in disks.items() if name not in maps}
    if not all(cached.has_server(place.branch) for place in places.values()):
        raise InsufficientFactsError("a disk is on a new adapter or host")
    return Devices(disks, places, joining, block.list_branches(places), block.Stack(maps, {}))


class Scope(Struct, frozen=True):
    """The part of a machine to gather: everything, unless ``disks`` are named.

    ``disks`` are kernel names, or paths below ``/dev``. Their maps, the maps' other paths, and the
    vectors and controls of their adapters belong to the scope.

    With a ``known_machine``, the machine of earlier scans, only the disks' own files are read, and
    ``disks`` may include SCSI hosts. Adapters are then the known ones. Vectors, controls, mounts,
    holders and disks that no longer exist are omitted.
    """

    disks: Collection[str] = ()
    known_machine: KnownMachine | None = None


WHOLE_MACHINE = Scope()


def gather_machine(
    attributes: Sequence[str],
    scope: Scope = WHOLE_MACHINE,
    *,
    of: Mapping[TargetKind, Sequence[str]] | None = None,
    deadline: float = 10.0,
    avoid: Mapping[str, str] | None = None,
    worker_pool: WorkerPool | None = None,
) -> Machine:
    """Return the adapters and endpoints in the scope; maps come after the paths that they join.

    ``attributes`` are paths below a block device's directory (``attributes.read_attributes``
    describes the patterns). ``of`` contains the attributes of controllers and of SCSI hosts.
    ``deadline`` is in seconds, for each device. ``avoid`` maps kernel names of block devices whose
    queue does not answer to the reason. The ``worker_pool``, if given, does the reading.

    The result contains everything if the named disks cannot be resolved otherwise, except with a
    known machine: InsufficientFactsError if its facts are not enough.
    """
    requested = tuple(dict.fromkeys(attributes))
    request = ReadRequest(requested, of or {}, deadline, avoid or {}, worker_pool)
    if scope.known_machine is not None:
        return _gather_known(scope.known_machine, scope.disks, request)
    devices = find_devices()
    if scope.disks and (machine := _gather_disks(devices, scope.disks, request)):
        return machine
    groups = group_branches(devices.branches)
    survey = request.read(devices, assembly.list_requests(devices, groups, request))
    return assembly.build_machine(devices, groups, survey, request)


def _gather_known(cached: KnownMachine, names: Iterable[str], request: ReadRequest) -> Machine:
    """Return only these disks and their related devices, or raise InsufficientFactsError."""
    devices = find_related_devices(cached, names)
    survey = request.read(devices, assembly.list_disk_requests(devices, request.requested))
    servers = {}
    for branch in devices.branches:
        if branch.adapter:
            servers[branch.adapter] = cached.adapters[branch.adapter]
    # The first disk of a host identifies it better than the host itself.
    disk_routes = Routes((*devices.branches, *cached.branches), survey)
    requested = request.requested
    endpoints = assembly.build_endpoints(devices, survey, servers, requested, disk_routes)
    if cached.is_ambiguous(endpoints):
        raise InsufficientFactsError("the id of a disk is not unique")
    families = {adapter.family for adapter in servers.values()}
    return replace(
        cached.rest,
        adapters=tuple(servers.values()),
        endpoints=tuple(endpoints.values()),
        modules=tuple(module for module in cached.rest.modules if module.name in families),
        vectors=(),
    )


def _gather_disks(devices: Devices, names: Iterable[str], request: ReadRequest) -> Machine | None:
    """Return the machine with only these disks and their stacks; ``devices`` are all of it.

    None if a name is not a disk or another disk may have the same route. None for NVMe with several
    paths or over fabrics, since their ids depend on all devices.
    """
    disks = {name.removeprefix(_DEV) for name in names}
    disks.update(find_related_disks(disks)[0])
    paths = {path for name in devices.maps for path in devices.stack.below[name]}
    members = {*map(get_kernel_name, devices.places), *devices.maps} - paths
    stacks = (lowers & members for _, _, lowers in list_stacks(devices.stack, devices.disks))
    disks = add_siblings(disks, filter(None, stacks))
    directories, _ = find_related_disks(disks)
    wanted = directories.keys()
    if disks - wanted or any(map(routes.is_head, directories.values())):
        return None
    selected: dict[str, Place] = {}
    serving = set()
    for directory, place in devices.places.items():
        if get_kernel_name(directory) in wanted:
            selected[directory] = place
            if place.address is None:
                if place.branch.adapter is None or place.branch.pci is None:
                    return None
                serving.add(place.branch.adapter)
    lookalikes = dict(_find_lookalikes(devices, selected))
    # Several namespaces of one controller share a route: only their names differ.
    for directory, place in devices.places.items():
        if place.address is None and place.branch.adapter in serving:
            selected[directory] = place
    maps = {name: directory for name, directory in devices.maps.items() if name in wanted}
    devices = replace(devices, places=selected, maps=maps)
    adapters = {place.branch.adapter for place in selected.values()}
    all_groups = group_branches(devices.branches)
    groups = {name: group for name, group in all_groups.items() if name in adapters}
    requests = assembly.list_requests(devices, groups, request)
    for directory, place in lookalikes.items():
        if place.branch.transport == "fc":
            assembly.add_requests(requests, {directory: (routes.find_port_name_file(place),)})
    survey = request.read(devices, requests)
    disk_routes = Routes(devices.branches, survey)
    if disk_routes.of_disks(selected) & disk_routes.of_disks(lookalikes):
        return None
    machine = assembly.build_machine(devices, groups, survey, request)
    chosen = tuple(endpoint for endpoint in machine.endpoints if endpoint.target in wanted)
    return replace(machine, endpoints=chosen) if len(chosen) == len(wanted) else None


def _find_lookalikes(devices: Devices, places: Mapping[str, Place]) -> Iterator[tuple[str, Place]]:
    """Yield the other SCSI disks with the same LUN number behind a port of the same adapter."""

    def get_lun_key(place: Place) -> tuple[str | None, str] | None:
        if place.branch.transport not in _BY_PORT:
            return None
        return place.branch.pci, (place.address or "").rpartition(":")[2]

    wanted = set(map(get_lun_key, places.values())) - {None}
    for directory, place in devices.places.items():
        if directory not in places and get_lun_key(place) in wanted:
            yield directory, place
