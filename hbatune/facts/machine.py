"""Gathers a machine's facts in one pass: finds the devices, reads them in parallel, builds them."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from hbatune.facts import adapters, endpoints, routes
from hbatune.facts.adapters import Found, controls, directories, modules
from hbatune.facts.attributes import Attributes
from hbatune.facts.devices import Devices, find, mounts
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


def gather(
    attributes: Sequence[str],
    *,
    of: Mapping[TargetKind, Sequence[str]] | None = None,
    deadline: float = 10.0,
    avoid: Mapping[str, str] | None = None,
    worker_pool: WorkerPool | None = None,
) -> Machine:
    """Return this machine's adapters and endpoints, with these attributes of each endpoint.

    ``attributes`` are paths below a block device's directory (``attributes.read`` describes the
    patterns), ``of`` has those below a controller's and a SCSI host's; ``deadline`` is in
    seconds, for each device. ``avoid`` are the kernel names of block devices whose queue is known
    not to answer, with the reason. The ``worker_pool``, if given, does the reading. Maps come
    after the paths that they join.
    """
    devices = find()
    requested = tuple(dict.fromkeys(attributes))
    wanted = of or {}
    groups = adapters.group(_branches(devices))
    survey = survey_each(
        _requests(devices, requested, groups, wanted),
        deadline=deadline,
        avoid={
            devices.disks[name]: why for name, why in (avoid or {}).items() if name in devices.disks
        },
        worker_pool=worker_pool,
    )
    servers = {
        target: ServingAdapter(*adapters.build(target, found, survey))
        for target, found in groups.items()
    }
    # Attributes that classification needed and the caller did not ask for are not in the result.
    only = _selector(requested)
    families = {server.family.name: server.family for server in servers.values()}
    ways = Routes(_branches(devices), survey)
    disks = _disks(devices, survey, servers, only, ways)
    loaded = modules(families.values())
    uname = os.uname()
    return Machine(
        hostname=uname.nodename,
        kernel=uname.release,
        boot_id=boot_id(),
        cpus=os.cpu_count() or 1,
        memory=_memory(),
        adapters=tuple(server.adapter for server in servers.values()),
        endpoints=_told_apart(_joined(devices, survey, disks, only)),
        modules=loaded,
        vectors=tuple(_vectors(devices, groups, servers, survey, loaded)),
        controls=tuple(controls(groups, survey, wanted, ways)),
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
        endpoints=tuple(replace(each, attributes={}) for each in machine.endpoints),
        controls=tuple(replace(each, attributes={}) for each in machine.controls),
    )


def _requests(
    devices: Devices,
    requested: tuple[str, ...],
    groups: Mapping[str, Found],
    wanted: Mapping[TargetKind, Sequence[str]],
) -> dict[str, tuple[str, ...]]:
    """Return the attributes to read from each directory."""
    requests: dict[str, tuple[str, ...]] = {}
    for directory, place in devices.places.items():
        requests[directory] = _union(endpoints.wanted(place), requested)
        if place.branch.end_device:
            requests[routes.end_device(place.branch.end_device)] = endpoints.PORT
    for directory in devices.maps.values():
        requests[directory] = _union(endpoints.MAP, requested)
    for branch in _branches(devices):
        if branch.pci:
            requests[branch.pci] = adapters.PCI
        if branch.host:
            requests[adapters.host_class(branch.host)] = adapters.host_attributes()
        if branch.controller:
            requests[branch.controller] = adapters.controller_attributes()
    for directory, names in routes.requests(_branches(devices)).items():
        requests[directory] = _union(requests.get(directory, ()), names)
    for directory in _witnesses(devices).values():
        requests[directory] = _union(requests[directory], (_QUEUES,))
    for found in groups.values():
        for kind, directory in directories(found):
            requests[directory] = _union(requests[directory], tuple(wanted.get(kind, ())))
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
            family = servers[target].family
            own = parameters.get(family.name, {})
            yield from vectors(target, family.interrupts, function, served, own, modes_tell=tell)


@lru_cache(maxsize=64)
def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _branches(devices: Devices) -> dict[Branch, None]:
    """Return every branch once, those with disks first."""
    return dict.fromkeys((*(p.branch for p in devices.places.values()), *devices.servers))


def _selector(requested: tuple[str, ...]) -> Callable[[Attributes], Attributes]:
    """Return a function that selects the requested ones among all attributes of a device."""
    names = frozenset(requested)
    folders = tuple(name[:-1] for name in requested if name.endswith("/*"))
    within = tuple(tuple(name.split("*")) for name in requested if "/*/" in name)

    def only(found: Attributes) -> Attributes:
        return {
            name: value
            for name, value in found.items()
            if name in names
            or (folders and name.startswith(folders))
            or any(name.startswith(start) and name.endswith(end) for start, end in within)
        }

    return only


def _disks(
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
                directory, place, found, server, evidence, only(found), ways
            )
    return disks


def _joined(
    devices: Devices,
    survey: Mapping[str, Attributes],
    disks: dict[str, Endpoint],
    only: Callable[[Attributes], Attributes],
) -> tuple[Endpoint, ...]:
    """Return all endpoints: the disks, the paths among them marked, and then the maps."""
    stack, maps = devices.stack, {}
    for name, directory in devices.maps.items():
        paths = [disks[lower] for lower in stack.below[name] if lower in disks]
        maps[name] = endpoints.map_of(directory, survey[directory], paths, only(survey[directory]))
        for path in paths:
            disks[path.target] = replace(path, kind=Kind.PATH, map=name)
    points = mounts(stack, devices.disks)
    return tuple(_stacked(devices, points, {**disks, **maps}))


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


def _told_apart(found: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
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


def boot_id() -> str:
    """Return the id of this boot (random(4))."""
    return _read(_BOOT_ID).strip()


def _memory() -> int:
    """Return MemTotal in bytes (proc(5))."""
    for line in _read(_MEMINFO).splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
