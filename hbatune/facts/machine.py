"""Gather a machine's facts in one pass, for all devices or for the disks that a person named.

A map and its paths are gathered together. A narrowed pass reads only the sysfs paths of the
remaining devices. A disk is therefore excluded only if its id cannot be the id of a named disk. If
the route may lead to another disk, the caller must gather the entire machine.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import routes
from hbatune.facts.adapters import group_branches
from hbatune.facts.assembly import ReadRequest, build_machine, list_requests, merge_names
from hbatune.facts.attributes import Attributes
from hbatune.facts.devices import Devices, find_devices
from hbatune.facts.model import Machine, TargetKind
from hbatune.facts.routes import (
    Branch,
    Place,
    Routes,
    find_port_name_file,
    get_kernel_name,
    is_head,
)
from hbatune.workers import WorkerPool

_DEV = "/dev/"
_BY_PORT = frozenset({"fc", "sas", "iscsi", "ata"})
"""Transports whose routes name a port of the fabric instead of the SCSI target's number."""


def gather_machine(
    attributes: Sequence[str],
    *,
    of: Mapping[TargetKind, Sequence[str]] | None = None,
    disks: Collection[str] = (),
    deadline: float = 10.0,
    avoid: Mapping[str, str] | None = None,
    worker_pool: WorkerPool | None = None,
) -> Machine:
    """Return this machine's adapters and endpoints, with these attributes of each endpoint.

    ``attributes`` are paths below a block device's directory (``attributes.read_attributes``
    describes the patterns). ``of`` contains the attributes of controllers and of SCSI hosts.
    ``deadline`` is in seconds, for each device. ``avoid`` maps kernel names of block devices whose
    queue does not answer to the reason. The ``worker_pool``, if given, does the reading. Maps come
    after the paths that they join.

    With the names of ``disks``, the machine contains only these disks, their maps and paths, and
    the vectors and controls of their adapters. It contains everything if the names cannot be
    resolved otherwise.
    """
    devices = find_devices()
    branches = tuple(
        dict.fromkeys((*(p.branch for p in devices.places.values()), *devices.servers))
    )
    request = ReadRequest(
        tuple(dict.fromkeys(attributes)), of or {}, deadline, avoid or {}, worker_pool
    )
    if disks:
        narrowed = gather_narrowed(devices, branches, disks, request)
        if narrowed is not None:
            return narrowed
    return _gather_all(devices, branches, request)


def _gather_all(devices: Devices, branches: Sequence[Branch], request: ReadRequest) -> Machine:
    groups = group_branches(branches)
    survey = request.read(devices, list_requests(devices, branches, groups, request))
    return build_machine(devices, branches, groups, survey, request)


class NarrowedDevices(Struct, frozen=True):
    """The ``devices`` to read for the disks with these kernel ``names``, and their ``branches``.

    The devices may include others, not in ``names``, whose ids could be the same. ``branches`` are
    the disks' branches and one for each other host and controller of the machine, in the machine's
    order. ``lookalikes`` are the places of other SCSI disks by directory, whose routes may equal
    the route of a named disk.
    """

    devices: Devices
    names: frozenset[str]
    branches: tuple[Branch, ...]
    lookalikes: Mapping[str, Place]

    @property
    def adapters(self) -> frozenset[str]:
        """The names of the adapters that serve the disks."""
        names = (place.branch.adapter for place in self.devices.places.values())
        return frozenset(name for name in names if name is not None)

    def requests(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield directories with the attributes that give the routes of the lookalikes."""
        for directory, place in self.lookalikes.items():
            if place.branch.transport == "fc":
                yield directory, (find_port_name_file(place),)
        yield from routes.list_route_attributes(
            lookalike.branch for lookalike in self.lookalikes.values()
        ).items()

    def is_ambiguous(self, ways: Routes, read: Mapping[str, Attributes]) -> bool:
        """Return whether a lookalike has the route of one of the disks."""

        def route(directory: str, place: Place) -> str:
            return ways.of_disk(directory, place, read.get(directory, {}))

        routes_in_use = {
            route(directory, place) for directory, place in self.devices.places.items()
        }
        return any(
            route(directory, place) in routes_in_use for directory, place in self.lookalikes.items()
        )


def narrow_devices(
    devices: Devices, branches: Iterable[Branch], names: Iterable[str]
) -> NarrowedDevices | None:
    """Return the machine's devices narrowed to the named ones; ``branches`` are all its branches.

    ``names`` are kernel names of disks, or their paths below ``/dev``. None if a name is not a
    disk, and for NVMe with several paths or over fabrics, whose ids depend on all devices.
    """
    wanted = _add_related(devices, (name.removeprefix(_DEV) for name in names))
    if wanted is None:
        return None
    places = {d: place for d, place in devices.places.items() if get_kernel_name(d) in wanted}
    flat = [place.branch for place in places.values() if place.address is None]
    if any(branch.adapter is None or branch.pci is None for branch in flat):
        return None
    # Several namespaces of one controller share a route: only their names differ.
    serving = {branch.adapter for branch in flat}
    siblings = {
        directory: place
        for directory, place in devices.places.items()
        if place.address is None and place.branch.adapter in serving
    }
    selected = {d: place for d, place in devices.places.items() if d in places or d in siblings}
    maps = {name: directory for name, directory in devices.maps.items() if name in wanted}
    return NarrowedDevices(
        replace(devices, places=selected, maps=maps),
        wanted,
        tuple(_select_branches(branches, {place.branch for place in selected.values()})),
        dict(_find_lookalikes(devices, places)),
    )


def gather_narrowed(
    devices: Devices, branches: Sequence[Branch], names: Iterable[str], request: ReadRequest
) -> Machine | None:
    """Return the machine with only the named disks, or None if their ids depend on all devices.

    ``devices`` and ``branches`` are the entire machine's, ``names`` are as for ``narrow_devices``.
    """
    narrowed = narrow_devices(devices, branches, names)
    if narrowed is None:
        return None
    devices, branches = narrowed.devices, narrowed.branches
    groups = {
        name: adapter
        for name, adapter in group_branches(branches).items()
        if name in narrowed.adapters
    }
    requests = list_requests(devices, branches, groups, request)
    for directory, wanted in narrowed.requests():
        requests[directory] = merge_names(requests.get(directory, ()), wanted)
    survey = request.read(devices, requests)
    if narrowed.is_ambiguous(Routes(branches, survey), survey):
        return None
    machine = build_machine(devices, branches, groups, survey, request)
    chosen = tuple(endpoint for endpoint in machine.endpoints if endpoint.target in narrowed.names)
    return replace(machine, endpoints=chosen) if len(chosen) == len(narrowed.names) else None


def _add_related(devices: Devices, names: Iterable[str]) -> frozenset[str] | None:
    """Return the named disks with their maps and the maps' paths; None for any other name."""
    disks = {get_kernel_name(directory) for directory in devices.places}
    joining: dict[str, list[str]] = {}
    for name in devices.maps:
        for lower in devices.stack.below.get(name, ()):
            joining.setdefault(lower, []).append(name)
    related: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in related:
            continue
        if name in devices.maps and not is_head(devices.maps[name]):
            waiting += [path for path in devices.stack.below[name] if path in disks]
        elif name not in disks:
            return None
        related.add(name)
        waiting += joining.get(name, ())
    return frozenset(related)


def _select_branches(branches: Iterable[Branch], needed: Iterable[Branch]) -> Iterator[Branch]:
    """Yield the required branches, and the first branch of each other host and controller."""
    required, served = set(needed), set[tuple[str | None, ...]]()
    for branch in branches:
        server = (branch.adapter, branch.host, branch.controller)
        if branch in required or server not in served:
            yield branch
        served.add(server)


def _find_lookalikes(devices: Devices, places: Mapping[str, Place]) -> Iterator[tuple[str, Place]]:
    """Yield the other SCSI disks with the same LUN number behind a port of the same adapter."""
    wanted = {
        _get_lun_key(place) for place in places.values() if place.branch.transport in _BY_PORT
    }
    if not wanted:
        return
    for directory, place in devices.places.items():
        if (
            directory not in places
            and place.branch.transport in _BY_PORT
            and _get_lun_key(place) in wanted
        ):
            yield directory, place


def _get_lun_key(place: Place) -> tuple[str | None, str]:
    """Return the PCI function of a SCSI disk, and its LUN number."""
    return place.branch.pci, (place.address or "").rpartition(":")[2]
