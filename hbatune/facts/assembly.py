"""Read the attributes of devices, and assemble a machine from adapters and endpoints."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from hbatune.errors import HbatuneError
from hbatune.facts import adapters, endpoints, routes
from hbatune.facts.adapters import AdapterBranches, build_controls, list_directories, read_modules
from hbatune.facts.attributes import Attributes
from hbatune.facts.devices import Devices, find_mounts
from hbatune.facts.endpoints import ServingAdapter
from hbatune.facts.ids import add_boot_suffix, find_duplicates
from hbatune.facts.model import Attribute, Endpoint, Kind, Machine, Module, TargetKind, Vector
from hbatune.facts.processors import read_cpu_list, read_processors
from hbatune.facts.routes import Branch, Routes, get_kernel_name
from hbatune.facts.survey import survey_requests
from hbatune.facts.vectors import has_read_only_modes, read_vectors
from hbatune.workers import WorkerPool

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MEMINFO = "/proc/meminfo"
_QUEUES = "mq/*/cpu_list"


class ReadRequest(NamedTuple):
    """The attributes to read from disks, controllers and hosts, and how: see ``gather_machine``."""

    requested: tuple[str, ...]
    of: Mapping[TargetKind, Sequence[str]]
    deadline: float
    avoid: Mapping[str, str]
    worker_pool: WorkerPool | None

    def read(
        self, devices: Devices, requests: Mapping[str, tuple[str, ...]]
    ) -> dict[str, Attributes]:
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
    branches: Sequence[Branch],
    groups: Mapping[str, AdapterBranches],
    survey: dict[str, Attributes],
    request: ReadRequest,
) -> Machine:
    """Build the machine from the survey; only ``groups`` get vectors and controls."""
    servers = {
        target: ServingAdapter(*adapters.build_adapter(target, grouped, survey))
        for target, grouped in adapters.group_branches(branches).items()
    }
    # Attributes read only for classification are removed from the result.
    select_requested = make_selector(request.requested)
    families = {server.family.name: server.family for server in servers.values()}
    disk_routes = Routes(branches, survey)
    disks = build_disks(devices, survey, servers, select_requested, disk_routes)
    loaded = read_modules(families.values())
    uname = os.uname()
    return Machine(
        hostname=uname.nodename,
        kernel=uname.release,
        boot_id=read_boot_id(),
        cpus=os.cpu_count() or 1,
        memory=_read_memory(),
        adapters=tuple(server.adapter for server in servers.values()),
        endpoints=_with_unique_ids(_build_endpoints(devices, survey, disks, select_requested)),
        modules=loaded,
        vectors=tuple(_iterate_vectors(devices, groups, servers, survey, loaded)),
        controls=tuple(build_controls(groups, survey, request.of, disk_routes)),
        processors=read_processors(),
        local_cpus={
            target: near
            for target, grouped in groups.items()
            if (near := read_cpu_list(f"{grouped.first('pci')}/local_cpulist"))
        },
    )


def without_attributes(machine: Machine) -> Machine:
    """Return the machine as ``gather_machine`` does for a call without attributes."""
    return replace(
        machine,
        endpoints=tuple(replace(endpoint, attributes={}) for endpoint in machine.endpoints),
        controls=tuple(replace(control, attributes={}) for control in machine.controls),
    )


def list_requests(
    devices: Devices,
    branches: Iterable[Branch],
    groups: Mapping[str, AdapterBranches],
    request: ReadRequest,
) -> dict[str, tuple[str, ...]]:
    """Return the attributes to read from each directory."""
    requests: dict[str, tuple[str, ...]] = {}
    for directory, place in devices.places.items():
        requests[directory] = merge_names(endpoints.list_attributes(place), request.requested)
        if place.branch.end_device:
            requests[routes.find_end_device(place.branch.end_device)] = endpoints.PORT_ATTRIBUTES
    for directory in devices.maps.values():
        requests[directory] = merge_names(endpoints.MAP_ATTRIBUTES, request.requested)
    for branch in branches:
        if branch.pci:
            requests[branch.pci] = adapters.PCI_ATTRIBUTES
        if branch.controller:
            requests[branch.controller] = adapters.list_controller_attributes()
    for server in adapters.group_branches(branches).values():
        names = adapters.list_host_attributes(server)
        requests |= {adapters.get_host_class_dir(host): names for host in server.hosts}
    for directory, names in routes.list_route_attributes(branches).items():
        requests[directory] = merge_names(requests.get(directory, ()), names)
    for directory in _select_witnesses(devices).values():
        requests[directory] = merge_names(requests[directory], (_QUEUES,))
    for grouped in groups.values():
        for kind, directory in list_directories(grouped):
            requests[directory] = merge_names(requests[directory], tuple(request.of.get(kind, ())))
    return requests


def _select_witnesses(devices: Devices) -> dict[str, str]:
    """Return one disk of each adapter, whose queues show which CPUs submit to which queue.

    All disks of an adapter have the same queues, so one disk is enough.
    """
    witnesses: dict[str, str] = {}
    for directory, place in devices.places.items():
        if place.branch.adapter and place.branch.pci:
            witnesses.setdefault(place.branch.adapter, directory)
    return witnesses


def _iterate_vectors(
    devices: Devices,
    groups: Mapping[str, AdapterBranches],
    servers: Mapping[str, ServingAdapter],
    survey: Mapping[str, Attributes],
    loaded: Iterable[Module],
) -> Iterator[Vector]:
    """Yield the interrupts of every adapter that is a PCI function."""
    parameters = {module.name: module.parameters for module in loaded}
    witnesses, tell = _select_witnesses(devices), has_read_only_modes()
    for target, grouped in groups.items():
        function = grouped.first("pci")
        if function:
            queues = survey.get(witnesses.get(target, ""), {})
            served = [
                value.text
                for name, value in queues.items()
                if name.endswith("/cpu_list") and isinstance(value, Attribute)
            ]
            adapter, family = servers[target].adapter, servers[target].family
            yield from read_vectors(
                target,
                family.interrupts,
                function,
                served,
                parameters.get(family.name, {}),
                hw_queues=adapter.hw_queues,
                modes_tell=tell,
            )


@lru_cache(maxsize=64)
def merge_names(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of both without duplicates: cached, since thousands of disks share a few."""
    return tuple(dict.fromkeys((*first, *second)))


def make_selector(requested: tuple[str, ...]) -> Callable[[Attributes], Attributes]:
    """Return a function that selects the requested attributes of a device."""
    names = frozenset(requested)
    folders = tuple(name[:-1] for name in requested if name.endswith("/*"))
    within = tuple(tuple(name.split("*")) for name in requested if "/*/" in name)

    @lru_cache(maxsize=64)  # thousands of LUNs have the same names
    def select_names(all_names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            name
            for name in all_names
            if name in names
            or (folders and name.startswith(folders))
            or any(name.startswith(start) and name.endswith(end) for start, end in within)
        )

    return lambda values: {name: values[name] for name in select_names(tuple(values))}


def build_disks(
    devices: Devices,
    survey: Mapping[str, Attributes],
    servers: Mapping[str, ServingAdapter],
    select_requested: Callable[[Attributes], Attributes],
    disk_routes: Routes,
) -> dict[str, Endpoint]:
    """Return the endpoints of all block devices with hardware behind them, by kernel name."""
    disks = {}
    for directory, place in devices.places.items():
        attributes = survey[directory]
        if endpoints.has_medium(attributes):
            branch = place.branch
            # A drive's protocol is read at its SAS port, once for all LUNs behind it.
            port = survey[routes.find_end_device(branch.end_device)] if branch.end_device else {}
            evidence = endpoints.collect_evidence(
                place, attributes, port, parallel=place.target in devices.parallel
            )
            server = servers.get(branch.adapter) if branch.adapter else None
            disks[get_kernel_name(directory)] = endpoints.build_endpoint(
                directory,
                place,
                attributes,
                port,
                server,
                evidence,
                select_requested(attributes),
                disk_routes,
            )
    return disks


def _build_endpoints(
    devices: Devices,
    survey: Mapping[str, Attributes],
    disks: dict[str, Endpoint],
    select_requested: Callable[[Attributes], Attributes],
) -> tuple[Endpoint, ...]:
    """Return all endpoints, as ``add_maps`` does, with their holders and mount points."""
    endpoints = add_maps(devices, survey, disks, select_requested)
    return tuple(_add_stack(devices, find_mounts(devices.stack, devices.disks), endpoints))


def add_maps(
    devices: Devices,
    survey: Mapping[str, Attributes],
    disks: Mapping[str, Endpoint],
    select_requested: Callable[[Attributes], Attributes],
) -> dict[str, Endpoint]:
    """Return the disks, with paths marked, and then the maps, by kernel name."""
    by_name, maps = dict(disks), {}
    for name, directory in devices.maps.items():
        paths = [by_name[lower] for lower in devices.stack.below[name] if lower in by_name]
        maps[name] = endpoints.build_map(
            directory, survey[directory], paths, select_requested(survey[directory])
        )
        for path in paths:
            by_name[path.target] = replace(path, kind=Kind.PATH, map=name)
    return by_name | maps


def _add_stack(
    devices: Devices,
    points: Mapping[str, tuple[str, ...]],
    endpoints_by_name: Mapping[str, Endpoint],
) -> Iterator[Endpoint]:
    """Yield the endpoints with their holders and mount points."""
    for name, endpoint in endpoints_by_name.items():
        holders = devices.stack.holders(name)
        if holders or name in points:
            yield replace(endpoint, mounts=points.get(name, ()), holders=holders)
        else:
            yield endpoint


def _with_unique_ids(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints with unique ids.

    Two drives can report the same name. Each then gets an id for this boot only, so one drive's
    baseline is never restored to the other.
    """
    duplicates = find_duplicates(endpoint.id for endpoint in endpoints)
    unique = []
    for endpoint in endpoints:
        if endpoint.id in duplicates:
            local_id = add_boot_suffix(endpoint.id, endpoint.address or endpoint.target)
            unique.append(replace(endpoint, id=local_id))
        else:
            unique.append(endpoint)
    return tuple(unique)


class BootUnknownError(HbatuneError):
    """The id of this boot cannot be read."""


def read_boot_id() -> str:
    """Return the id of this boot (random(4)). BootUnknownError if it cannot be read."""
    try:
        return _read(_BOOT_ID).strip()
    except OSError as error:
        raise BootUnknownError(
            f"{_BOOT_ID} cannot be read: {error.strerror}",
            hint="without it no value can be assigned to this boot: run the command again",
        ) from error


def _read_memory() -> int:
    """Return MemTotal in bytes (proc(5)), or 0 if unreadable, so nothing fits into it."""
    with suppress(OSError):
        for line in _read(_MEMINFO).splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
