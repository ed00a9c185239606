"""Read the attributes of devices, and assemble adapters and endpoints to a machine."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from hbatune.errors import HbatuneError
from hbatune.facts import adapters, endpoints, routes
from hbatune.facts.adapters import Found, controls, directories, modules
from hbatune.facts.attributes import Attributes
from hbatune.facts.devices import Devices, mounts
from hbatune.facts.endpoints import ServingAdapter
from hbatune.facts.ids import of_this_boot, shared
from hbatune.facts.model import Attribute, Endpoint, Kind, Machine, Module, TargetKind, Vector
from hbatune.facts.processors import processors, read_list
from hbatune.facts.routes import Branch, Routes, name_of
from hbatune.facts.survey import survey_each
from hbatune.facts.vectors import modes_tell, vectors
from hbatune.workers import WorkerPool

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_MEMINFO = "/proc/meminfo"
_QUEUES = "mq/*/cpu_list"


class ReadRequest(NamedTuple):
    """What to read of disks, and of controllers and hosts, and how: see ``gather``."""

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
        return survey_each(
            requests,
            deadline=self.deadline,
            avoid={devices.disks[name]: self.avoid[name] for name in names},
            worker_pool=self.worker_pool,
        )


def built(
    devices: Devices,
    branches: Sequence[Branch],
    groups: Mapping[str, Found],
    survey: dict[str, Attributes],
    asked: ReadRequest,
) -> Machine:
    """Return the machine from what was read; vectors and controls are those of ``groups``."""
    servers = {
        target: ServingAdapter(*adapters.build(target, found, survey))
        for target, found in adapters.group(branches).items()
    }
    # Attributes that classification needed and the caller did not ask for are not in the result.
    only = selector(asked.requested)
    families = {server.family.name: server.family for server in servers.values()}
    ways = Routes(branches, survey)
    disks = build_disks(devices, survey, servers, only, ways)
    loaded = modules(families.values())
    uname = os.uname()
    return Machine(
        hostname=uname.nodename,
        kernel=uname.release,
        boot_id=boot_id(),
        cpus=os.cpu_count() or 1,
        memory=_memory(),
        adapters=tuple(server.adapter for server in servers.values()),
        endpoints=_with_unique_ids(_joined(devices, survey, disks, only)),
        modules=loaded,
        vectors=tuple(_vectors(devices, groups, servers, survey, loaded)),
        controls=tuple(controls(groups, survey, asked.of, ways)),
        processors=processors(),
        local_cpus={
            target: near
            for target, found in groups.items()
            if (near := read_list(f"{found.first('pci')}/local_cpulist"))
        },
    )


def without_attributes(machine: Machine) -> Machine:
    """Return the machine as ``gather`` does for a call without attributes."""
    return replace(
        machine,
        endpoints=tuple(replace(endpoint, attributes={}) for endpoint in machine.endpoints),
        controls=tuple(replace(control, attributes={}) for control in machine.controls),
    )


def requests_of(
    devices: Devices,
    branches: Iterable[Branch],
    groups: Mapping[str, Found],
    asked: ReadRequest,
) -> dict[str, tuple[str, ...]]:
    """Return the attributes to read from each directory."""
    requests: dict[str, tuple[str, ...]] = {}
    for directory, place in devices.places.items():
        requests[directory] = union(endpoints.wanted(place), asked.requested)
        if place.branch.end_device:
            requests[routes.end_device(place.branch.end_device)] = endpoints.PORT
    for directory in devices.maps.values():
        requests[directory] = union(endpoints.MAP, asked.requested)
    for branch in branches:
        if branch.pci:
            requests[branch.pci] = adapters.PCI
        if branch.controller:
            requests[branch.controller] = adapters.controller_attributes()
    for server in adapters.group(branches).values():
        names = adapters.host_attributes(server)
        requests |= {adapters.host_class(host): names for host in server.hosts}
    for directory, names in routes.requests(branches).items():
        requests[directory] = union(requests.get(directory, ()), names)
    for directory in _witnesses(devices).values():
        requests[directory] = union(requests[directory], (_QUEUES,))
    for found in groups.values():
        for kind, directory in directories(found):
            requests[directory] = union(requests[directory], tuple(asked.of.get(kind, ())))
    return requests


def _witnesses(devices: Devices) -> dict[str, str]:
    """Return one disk of each adapter, whose queues show which CPUs submit to which.

    All disks of an adapter have the same queues, so that one is enough.
    """
    found: dict[str, str] = {}
    for directory, place in devices.places.items():
        if place.branch.adapter and place.branch.pci:
            found.setdefault(place.branch.adapter, directory)
    return found


def _vectors(
    devices: Devices,
    groups: Mapping[str, Found],
    servers: Mapping[str, ServingAdapter],
    survey: Mapping[str, Attributes],
    loaded: Iterable[Module],
) -> Iterator[Vector]:
    """Yield the interrupts of every adapter that is a PCI function."""
    parameters = {module.name: module.parameters for module in loaded}
    witnesses, tell = _witnesses(devices), modes_tell()
    for target, found in groups.items():
        function = found.first("pci")
        if function:
            queues = survey.get(witnesses.get(target, ""), {})
            served = [
                value.text
                for name, value in queues.items()
                if name.endswith("/cpu_list") and isinstance(value, Attribute)
            ]
            adapter, family = servers[target].adapter, servers[target].family
            yield from vectors(
                target,
                family.interrupts,
                function,
                served,
                parameters.get(family.name, {}),
                hw_queues=adapter.hw_queues,
                modes_tell=tell,
            )


@lru_cache(maxsize=64)
def union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of both, each once: cached, since thousands of disks share a few."""
    return tuple(dict.fromkeys((*first, *second)))


def selector(requested: tuple[str, ...]) -> Callable[[Attributes], Attributes]:
    """Return a function that selects the requested ones among all attributes of a device."""
    names = frozenset(requested)
    folders = tuple(name[:-1] for name in requested if name.endswith("/*"))
    within = tuple(tuple(name.split("*")) for name in requested if "/*/" in name)

    @lru_cache(maxsize=64)  # thousands of LUNs have the same names
    def those_of(found: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            name
            for name in found
            if name in names
            or (folders and name.startswith(folders))
            or any(name.startswith(start) and name.endswith(end) for start, end in within)
        )

    return lambda found: {name: found[name] for name in those_of(tuple(found))}


def build_disks(
    devices: Devices,
    survey: Mapping[str, Attributes],
    servers: Mapping[str, ServingAdapter],
    only: Callable[[Attributes], Attributes],
    ways: Routes,
) -> dict[str, Endpoint]:
    """Return the endpoints of all block devices with hardware behind them, by kernel name."""
    disks = {}
    for directory, place in devices.places.items():
        found = survey[directory]
        if endpoints.has_medium(found):
            branch = place.branch
            # What a drive speaks is read at its SAS port, once for all LUNs behind it.
            port = survey[routes.end_device(branch.end_device)] if branch.end_device else {}
            evidence = endpoints.evidence_of(
                place, found, port, parallel=place.target in devices.parallel
            )
            server = servers.get(branch.adapter) if branch.adapter else None
            disks[name_of(directory)] = endpoints.endpoint(
                directory, place, found, port, server, evidence, only(found), ways
            )
    return disks


def _joined(
    devices: Devices,
    survey: Mapping[str, Attributes],
    disks: dict[str, Endpoint],
    only: Callable[[Attributes], Attributes],
) -> tuple[Endpoint, ...]:
    """Return all endpoints, as ``join`` does, with their holders and mount points."""
    found = join(devices, survey, disks, only)
    return tuple(_stacked(devices, mounts(devices.stack, devices.disks), found))


def join(
    devices: Devices,
    survey: Mapping[str, Attributes],
    disks: Mapping[str, Endpoint],
    only: Callable[[Attributes], Attributes],
) -> dict[str, Endpoint]:
    """Return the disks, the paths among them marked, and then the maps, by kernel name."""
    found, maps = dict(disks), {}
    for name, directory in devices.maps.items():
        paths = [found[lower] for lower in devices.stack.below[name] if lower in found]
        maps[name] = endpoints.map_of(directory, survey[directory], paths, only(survey[directory]))
        for path in paths:
            found[path.target] = replace(path, kind=Kind.PATH, map=name)
    return found | maps


def _stacked(
    devices: Devices, points: Mapping[str, tuple[str, ...]], found: Mapping[str, Endpoint]
) -> Iterator[Endpoint]:
    """Yield the endpoints with their holders and mount points."""
    for name, endpoint in found.items():
        holders = devices.stack.holders(name)
        if holders or name in points:
            yield replace(endpoint, mounts=points.get(name, ()), holders=holders)
        else:
            yield endpoint


def _with_unique_ids(found: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Return the endpoints with unique ids: a shared one is made one of this boot only.

    Two drives may report the same name, and the baseline of one must not be taken for the other's.
    """
    ambiguous = shared(each.id for each in found)
    return tuple(
        replace(each, id=of_this_boot(each.id, each.address or each.target))
        if each.id in ambiguous
        else each
        for each in found
    )


class BootUnknownError(HbatuneError):
    """The id of this boot cannot be read."""


def boot_id() -> str:
    """Return the id of this boot (random(4)). BootUnknownError if it cannot be read."""
    try:
        return _read(_BOOT_ID).strip()
    except OSError as error:
        raise BootUnknownError(
            f"{_BOOT_ID} cannot be read: {error.strerror}",
            hint="without it no value can be assigned to this boot: run the command again",
        ) from error


def _memory() -> int:
    """Return MemTotal in bytes (proc(5)), 0 if it cannot be read: nothing then fits into it."""
    with suppress(OSError):
        for line in _read(_MEMINFO).splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
