"""Gather a machine's facts in one pass: of all devices, or of some disks.

A map, or an NVMe head, and its paths are gathered together, since they are planned together. A
narrowed pass excludes a disk only if its id cannot be the id of a named disk.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import assembly, part, routes
from hbatune.facts.adapters import group_branches
from hbatune.facts.assembly import ReadRequest
from hbatune.facts.devices import Devices, find_devices, list_stacks
from hbatune.facts.model import Machine, TargetKind
from hbatune.facts.names import add_siblings
from hbatune.facts.part import InsufficientFactsError, KnownMachine
from hbatune.facts.routes import Place, Routes, get_kernel_name
from hbatune.workers import WorkerPool

_DEV = "/dev/"
# Transports whose routes name a port of the fabric instead of the SCSI target's number.
_BY_PORT = frozenset({"fc", "sas", "iscsi", "ata"})


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
    devices = part.find_related_devices(cached, names)
    survey = request.read(devices, assembly.list_disk_requests(devices, request.requested))
    servers = {}
    for branch in devices.branches:
        if branch.adapter:
            servers[branch.adapter] = cached.adapters[branch.adapter]
    endpoints = assembly.build_endpoints(
        devices, survey, servers, request.requested, cached.ways(devices.branches, survey)
    )
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
    disks.update(part.find_related_disks(disks)[0])
    paths = {path for name in devices.maps for path in devices.stack.below[name]}
    members = {*map(get_kernel_name, devices.places), *devices.maps} - paths
    stacks = (lowers & members for _, _, lowers in list_stacks(devices.stack, devices.disks))
    disks = add_siblings(disks, filter(None, stacks))
    directories, _ = part.find_related_disks(disks)
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
