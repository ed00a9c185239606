"""Read the attributes of devices, and assemble a machine from adapters and endpoints."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune.errors import HbatuneError
from hbatune.facts import adapters, endpoints, model, routes
from hbatune.facts.adapters import AdapterBranches
from hbatune.facts.attributes import Attributes, Survey, read_text
from hbatune.facts.devices import Devices, find_mounts, find_volumes, list_stacks, read_label
from hbatune.facts.ids import escape_text
from hbatune.facts.model import Attribute, Endpoint, Kind, Machine, Storage, TargetKind, Vector
from hbatune.facts.names import matches_glob
from hbatune.facts.processors import read_cpu_list, read_processors
from hbatune.facts.routes import Routes, get_class_dir, get_kernel_name
from hbatune.facts.survey import survey_requests
from hbatune.facts.vectors import has_read_only_modes, read_vectors
from hbatune.workers import WorkerPool

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MEMINFO = "/proc/meminfo"
_QUEUES = "mq/*/cpu_list"
_ALWAYS_ON = "/sys/module/nvme_core/parameters/multipath_always_on"
STACK_ATTRIBUTES = ("queue/scheduler", "queue/max_sectors_kb", "queue/read_ahead_kb")
"""The attributes of a device on disks that decide, instead of the disks' own."""

Requests = dict[str, tuple[str, ...]]  # attributes to read, by directory


class ReadRequest(Struct, frozen=True):
    """The attributes to read from disks, controllers and hosts, and how: see ``gather_machine``."""

    requested: tuple[str, ...]
    of: Mapping[TargetKind, Sequence[str]]
    deadline: float
    avoid: Mapping[str, str]
    worker_pool: WorkerPool | None

    def read(self, devices: Devices, requests: Requests) -> Survey:
        """Return the attributes of each directory."""
        names = self.avoid.keys() & devices.disks
        return survey_requests(
            requests,
            deadline=self.deadline,
            avoid={devices.disks[name]: self.avoid[name] for name in names},
            worker_pool=self.worker_pool,
        )


def build_machine(
    devices: Devices,
    groups: Mapping[str, AdapterBranches],
    survey: Survey,
    request: ReadRequest,
) -> Machine:
    """Build the machine from the survey; only ``groups`` get vectors and controls."""
    servers = {}
    for target, group in adapters.group_branches(devices.branches).items():
        servers[target] = adapters.build_adapter(target, group, survey)
    disk_routes = Routes(devices.branches, survey)
    by_name = build_endpoints(devices, survey, servers, request.requested, disk_routes)
    points = find_mounts(devices.stack, devices.disks)
    volumes = find_volumes(devices.stack, devices.disks)
    for name, endpoint in by_name.items():
        if name in points or name in volumes:
            by_name[name] = replace(
                endpoint,
                mounts=points.get(name, ()),
                holders=devices.stack.holders(name),
                volumes=volumes.get(name, ()),
            )
    local_cpus = {}
    for target, group in groups.items():
        pci = group.first("pci")
        if pci and (cpus := read_cpu_list(f"{pci}/local_cpulist")):
            local_cpus[target] = cpus
    uname = os.uname()
    machine = Machine(
        hostname=uname.nodename,
        kernel=uname.release,
        boot_id=read_boot_id(),
        cpus=os.cpu_count() or 1,
        memory=_read_memory(),
        adapters=tuple(servers.values()),
        endpoints=_with_unique_ids(tuple(by_name.values())),
        modules=adapters.read_modules(servers.values()),
        controls=tuple(adapters.build_controls(groups, survey, request.of, disk_routes)),
        processors=read_processors(),
        local_cpus=local_cpus,
        stacks=tuple(_build_stacks(devices, by_name, survey)),
    )
    return replace(machine, vectors=tuple(_iterate_vectors(devices, groups, machine, survey)))


def _build_stacks(
    devices: Devices, by_name: Mapping[str, Endpoint], survey: Survey
) -> Iterator[model.StackedDevice]:
    """Yield the devices on these endpoints. The paths of a map are below this map only."""
    select = make_selector(STACK_ATTRIBUTES)
    for name, directory, lowers in list_stacks(devices.stack, devices.disks):
        below = [by_name[lower] for lower in sorted(lowers) if lower in by_name]
        if disks := tuple(disk.target for disk in below if disk.map in (None, name)):
            values, holders = select(survey.get(directory, {})), devices.stack.holders(name)
            names = escape_text(name), read_label(name)
            yield model.StackedDevice(*names, disks, holders, values, is_pool=not directory)


def without_attributes(machine: Machine) -> Machine:
    """Return the machine as ``gather_machine`` does for a call without attributes."""
    strip = partial(replace, attributes={})
    endpoints, controls = map(strip, machine.endpoints), map(strip, machine.controls)
    return replace(machine, endpoints=tuple(endpoints), controls=tuple(controls))


def list_requests(
    devices: Devices, groups: Mapping[str, AdapterBranches], request: ReadRequest
) -> Requests:
    """Return the attributes to read from each directory."""
    requests = list_disk_requests(devices, request.requested)
    for branch in devices.branches:
        if branch.pci:
            requests[branch.pci] = adapters.PCI_ATTRIBUTES
        if branch.controller:
            add_requests(requests, {branch.controller: adapters.list_controller_attributes()})
    for server in adapters.group_branches(devices.branches).values():
        names = adapters.list_host_attributes(server)
        for host in server.hosts:
            requests[get_class_dir(host, "scsi_host")] = names
    add_requests(requests, dict.fromkeys(_select_witnesses(devices).values(), (_QUEUES,)))
    disks = {*map(get_kernel_name, devices.places), *devices.maps}
    for _, directory, lowers in list_stacks(devices.stack, devices.disks):
        if directory and request.requested and not lowers.isdisjoint(disks):
            add_requests(requests, {directory: STACK_ATTRIBUTES})
    for group in groups.values():
        for kind, directory in adapters.list_directories(group):
            add_requests(requests, {directory: tuple(request.of.get(kind, ()))})
    return requests


def list_disk_requests(devices: Devices, requested: tuple[str, ...]) -> Requests:
    """Return the attributes to read from disks, maps and SAS ports, and for routes."""
    requests = routes.list_route_attributes(devices.branches)
    for directory, place in devices.places.items():
        requests[directory] = _merge_names(endpoints.list_attributes(place), requested)
        if place.branch.sas_port:
            requests[place.branch.sas_port] = endpoints.PORT_ATTRIBUTES
    for directory in devices.maps.values():
        requests[directory] = _merge_names(endpoints.MAP_ATTRIBUTES, requested)
    return requests


def add_requests(requests: Requests, additions: Requests) -> None:
    """Add attributes to read, by directory."""
    for directory, names in additions.items():
        requests[directory] = _merge_names(requests.get(directory, ()), names)


def _select_witnesses(devices: Devices) -> dict[str, str]:
    """Return one disk of each adapter, whose queues show which CPUs submit to which queue."""
    witnesses: dict[str, str] = {}
    for directory, place in devices.places.items():
        if place.branch.adapter and place.branch.pci:
            witnesses.setdefault(place.branch.adapter, directory)
    return witnesses


def _iterate_vectors(
    devices: Devices, groups: Mapping[str, AdapterBranches], machine: Machine, survey: Survey
) -> Iterator[Vector]:
    servers, parameters = machine.adapters_by_target, machine.parameters_by_module
    witnesses, modes_tell = _select_witnesses(devices), has_read_only_modes()
    for target, group in groups.items():
        function, adapter = group.first("pci"), servers[target]
        if not function:
            continue
        served = []
        for name, value in survey.get(witnesses.get(target, ""), {}).items():
            if name.endswith("/cpu_list") and isinstance(value, Attribute):
                served.append(value.text)
        options = parameters.get(adapter.family, {})
        yield from read_vectors(adapter, function, served, options, modes_tell)


@lru_cache(maxsize=64)  # thousands of disks share a few
def _merge_names(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def make_selector(requested: tuple[str, ...]) -> Callable[[Attributes], Attributes]:
    """Return a function that selects the requested attributes of a device."""
    exact, patterns = frozenset(requested), tuple(name for name in requested if "*" in name)

    @lru_cache(maxsize=64)  # thousands of LUNs have the same names
    def select_names(all_names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in all_names if name in exact or matches_glob(name, patterns))

    return lambda values: {name: values[name] for name in select_names(tuple(values))}


def build_endpoints(
    devices: Devices,
    survey: Survey,
    servers: Mapping[str, model.Adapter],
    requested: tuple[str, ...],
    disk_routes: Routes,
) -> dict[str, Endpoint]:
    """Return the disks, with paths marked, and then the maps, by kernel name.

    With ``multipath_always_on``, the kernel makes a head of every NVMe drive
    (drivers/nvme/host/multipath.c: nvme_mpath_alloc_disk). A local one's single path stays a disk.
    They have only the ``requested`` attributes, and no holders, volumes or mount points.
    """
    select = make_selector(requested)
    by_name: dict[str, Endpoint] = {}
    for directory, place in devices.places.items():
        attributes = survey[directory]
        if not endpoints.has_medium(attributes):
            continue
        port = survey.get(place.branch.sas_port or "", {})
        adapter, requested_values = servers.get(place.branch.adapter or ""), select(attributes)
        by_name[get_kernel_name(directory)] = endpoints.build_endpoint(
            directory, place, attributes, port, adapter, requested_values, disk_routes
        )
    maps = {}
    for name, directory in devices.maps.items():
        paths = [by_name[lower] for lower in devices.stack.below[name] if lower in by_name]
        attributes = survey[directory]
        maps[name] = endpoints.build_map(directory, attributes, paths, select(attributes))
        is_local = [path.storage for path in paths] == [Storage.LOCAL]
        is_drive = is_local and routes.is_head(directory) and read_text(_ALWAYS_ON)[:1] == "Y"
        kind = Kind.DISK if is_drive else Kind.PATH
        for path in paths:
            by_name[path.target] = replace(path, kind=kind, map=name)
    return by_name | maps


def _with_unique_ids(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    # Two drives can report the same name. Each then gets an id for this boot only, so one drive's
    # baseline is never restored to the other.
    unique = list(endpoints)
    counts = Counter(endpoint.id for endpoint in endpoints)
    for position, endpoint in enumerate(endpoints):
        if counts[endpoint.id] > 1:
            local_id = f"{endpoint.id}~{endpoint.address or endpoint.target}"
            unique[position] = replace(endpoint, id=local_id)
    return tuple(unique)


class BootUnknownError(HbatuneError):
    """The id of this boot cannot be read."""


def read_boot_id() -> str:
    """Return the id of this boot (random(4)). BootUnknownError if it cannot be read."""
    try:
        return Path(_BOOT_ID).read_text(encoding="utf-8").strip()
    except OSError as error:
        hint = "without it no value can be assigned to this boot: run the command again"
        problem = f"{_BOOT_ID} cannot be read: {error.strerror}"
        raise BootUnknownError(problem, hint=hint) from error


def _read_memory() -> int:
    """Return MemTotal in bytes (proc(5)), or 0 if unreadable, so nothing fits into it."""
    for line in read_text(_MEMINFO).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0
