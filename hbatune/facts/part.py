"""The machine of earlier scans, and the devices of a partial scan.

If the facts of earlier scans may be outdated, there is no partial scan, and the caller scans
everything.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import itemgetter

from msgspec.structs import replace

from hbatune.errors import HbatuneError
from hbatune.facts import assembly, devices, model, routes
from hbatune.facts.attributes import Attributes
from hbatune.facts.devices import Devices, Stack, find_disk_directory, list_names
from hbatune.facts.ids import extract_lasting_part
from hbatune.facts.names import add_siblings
from hbatune.facts.routes import Branch, Routes, get_kernel_name

_BLOCK = "/sys/class/block"
_ADAPTERS = ("/sys/class/scsi_host", "/sys/class/nvme", "/sys/bus/pci/devices")


class InsufficientFactsError(HbatuneError):
    """The facts of earlier scans are not enough for a partial scan."""


class KnownMachine:
    """A machine as found by the latest scans, without attributes. Mutable: ``update``.

    ``rest`` is the machine without its endpoints and controls.
    """

    def __init__(self, machine: model.Machine) -> None:
        machine = assembly.without_attributes(machine)
        self.rest = replace(machine, endpoints=(), controls=())
        self._controls = machine.controls
        self._endpoints = {endpoint.target: endpoint for endpoint in machine.endpoints}
        self.adapters = {adapter.target: adapter for adapter in machine.adapters}
        self._branches = tuple(_iterate_branches(machine))

    @property
    def machine(self) -> model.Machine:
        """The entire machine."""
        endpoints = tuple(self._endpoints.values())
        return replace(self.rest, endpoints=endpoints, controls=self._controls)

    def __len__(self) -> int:
        return len(self._endpoints)

    def get(self, target: str) -> model.Endpoint | None:
        """Return the endpoint with this kernel name."""
        return self._endpoints.get(target)

    def of_host(self, host: str) -> frozenset[str]:
        """Return the kernel names of the endpoints of a SCSI host."""
        endpoints = self._endpoints.values()
        return frozenset(e.target for e in endpoints if e.host is not None and e.host.name == host)

    def of_scsi_targets(self, addresses: Collection[str]) -> tuple[model.Endpoint, ...]:
        """Return the LUNs of the SCSI targets with these addresses (H:C:T)."""
        return tuple(lun for lun in self._endpoints.values() if lun.scsi_target in addresses)

    def of_controller(self, name: str) -> tuple[model.Endpoint, ...]:
        """Return the disks of the NVMe controller with this kernel name."""
        return tuple(e for e in self._endpoints.values() if e.controller == name)

    def ways(self, branches: Collection[Branch], read: Mapping[str, Attributes]) -> Routes:
        """Return the routes to disks on these branches, using the attributes in ``read``."""
        # The first disk of a host identifies it better than the host itself.
        return Routes((*branches, *self._branches), read)

    def is_ambiguous(self, endpoints: Mapping[str, model.Endpoint]) -> bool:
        """Return whether one of these ids is also the id of another disk that still exists.

        The suffixes that ids get in a boot are ignored.
        """
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

    def update(self, part: model.Machine, removed: Iterable[str] = ()) -> None:
        """Store the endpoints of a partial scan and forget the removed ones, by kernel name."""
        for name in removed:
            self._endpoints.pop(name, None)
        for endpoint in assembly.without_attributes(part).endpoints:
            self._endpoints[endpoint.target] = endpoint


def _iterate_branches(machine: model.Machine) -> Iterator[Branch]:
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
            maps |= devices.find_hidden_paths([name], list_names(_BLOCK))
            waiting += maps[name]
        elif head := devices.find_head(name):
            waiting.append(head)
        elif routes.is_virtual(directory):
            if not devices.is_map(directory):
                continue
            maps[name] = tuple(sorted(devices.list_lower_disks(directory)))
            waiting += maps[name]
        elif not devices.can_be_endpoint(name, directory):
            continue
        else:
            waiting += list_names(f"{directory}/holders")  # maps, and others that are skipped
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
    return Devices(disks, places, joining, devices.list_branches(places), Stack(maps, {}))
