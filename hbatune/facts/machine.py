"""Gather a machine's facts in one pass, of everything or of the disks that a person named.

The paths of a map and the map hang together. Nothing is known of the rest of the machine but its
devices' places, so that a disk is left out of consideration only if its id cannot be that of one
of these: where another disk may be reached by the same route, the caller has to look at that, too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import routes
from hbatune.facts.adapters import group
from hbatune.facts.assembly import ReadRequest, built, requests_of, union
from hbatune.facts.attributes import Attributes
from hbatune.facts.devices import Devices, find
from hbatune.facts.model import Machine, TargetKind
from hbatune.facts.routes import Branch, Place, Routes, is_head, name_of, port_name
from hbatune.workers import WorkerPool

_DEV = "/dev/"
_BY_PORT = frozenset({"fc", "sas", "iscsi", "ata"})
"""Transports whose routes name a port of the fabric in place of the SCSI target's number."""


def gather(
    attributes: Sequence[str],
    *,
    of: Mapping[TargetKind, Sequence[str]] | None = None,
    disks: Collection[str] = (),
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

    With the names of ``disks`` the machine has only these and what hangs together with them, and
    the vectors and controls of their adapters; it has everything where only everything tells what
    the names mean.
    """
    devices = find()
    branches = tuple(
        dict.fromkeys((*(p.branch for p in devices.places.values()), *devices.servers))
    )
    asked = ReadRequest(
        tuple(dict.fromkeys(attributes)), of or {}, deadline, avoid or {}, worker_pool
    )
    found = None
    if disks:
        found = gather_narrowed(devices, branches, disks, asked)
    return found or _gather_all(devices, branches, asked)


def _gather_all(devices: Devices, branches: Sequence[Branch], asked: ReadRequest) -> Machine:
    groups = group(branches)
    survey = asked.read(devices, requests_of(devices, branches, groups, asked))
    return built(devices, branches, groups, survey, asked)


class Narrowed(Struct, frozen=True):
    """The ``devices`` to look at for the disks with these kernel ``names``, and ``branches``.

    Among the devices are those that ``names`` does not have, whose ids could be the same.
    ``branches`` are those of the disks, and one for each other host and controller of the machine,
    in the order of the whole. ``lookalikes`` are the places of other SCSI disks by directory: their
    routes may turn out to be those of named ones.
    """

    devices: Devices
    names: frozenset[str]
    branches: tuple[Branch, ...]
    lookalikes: Mapping[str, Place]

    @property
    def adapters(self) -> frozenset[str]:
        """The names of the adapters that serve the disks."""
        found = (place.branch.adapter for place in self.devices.places.values())
        return frozenset(each for each in found if each is not None)

    def requests(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield directories, and the attributes there that tell the routes of the lookalikes."""
        for directory, found in self.lookalikes.items():
            if found.branch.transport == "fc":
                yield directory, (port_name(found),)
        yield from routes.requests(
            lookalike.branch for lookalike in self.lookalikes.values()
        ).items()

    def is_ambiguous(self, ways: Routes, read: Mapping[str, Attributes]) -> bool:
        """Whether a lookalike has the route of one of the disks."""

        def route(directory: str, found: Place) -> str:
            return ways.of_disk(directory, found, read.get(directory, {}))

        own = {route(directory, found) for directory, found in self.devices.places.items()}
        return any(route(directory, found) in own for directory, found in self.lookalikes.items())


def narrow(devices: Devices, branches: Iterable[Branch], names: Iterable[str]) -> Narrowed | None:
    """Return the machine's devices narrowed to the named ones; ``branches`` are all of its own.

    ``names`` are kernel names of disks, or their paths below ``/dev``. None where a name means
    anything else, and for NVMe with several paths or over fabrics, whose ids only the whole tells.
    """
    wanted = _together(devices, (name.removeprefix(_DEV) for name in names))
    if wanted is None:
        return None
    places = {d: found for d, found in devices.places.items() if name_of(d) in wanted}
    flat = [place.branch for place in places.values() if place.address is None]
    if any(each.adapter is None or each.pci is None for each in flat):
        return None
    # Namespaces of one controller, say, have one route: only their names tell them apart.
    serving = {each.adapter for each in flat}
    beside = {
        directory: found
        for directory, found in devices.places.items()
        if found.address is None and found.branch.adapter in serving
    }
    looked_at = {d: found for d, found in devices.places.items() if d in places or d in beside}
    maps = {name: each for name, each in devices.maps.items() if name in wanted}
    return Narrowed(
        replace(devices, places=looked_at, maps=maps),
        wanted,
        tuple(_one_each(branches, {each.branch for each in looked_at.values()})),
        dict(_lookalikes(devices, places)),
    )


def gather_narrowed(
    devices: Devices, branches: Sequence[Branch], names: Iterable[str], asked: ReadRequest
) -> Machine | None:
    """Return the machine with the named disks alone, None where only the whole tells their ids.

    ``devices`` and ``branches`` are those of the whole machine, ``names`` as for ``narrow``.
    """
    narrowed = narrow(devices, branches, names)
    if narrowed is None:
        return None
    devices, branches = narrowed.devices, narrowed.branches
    groups = {name: each for name, each in group(branches).items() if name in narrowed.adapters}
    requests = requests_of(devices, branches, groups, asked)
    for directory, wanted in narrowed.requests():
        requests[directory] = union(requests.get(directory, ()), wanted)
    found = asked.read(devices, requests)
    if narrowed.is_ambiguous(Routes(branches, found), found):
        return None
    machine = built(devices, branches, groups, found, asked)
    named = tuple(endpoint for endpoint in machine.endpoints if endpoint.target in narrowed.names)
    return replace(machine, endpoints=named) if len(named) == len(narrowed.names) else None


def _together(devices: Devices, names: Iterable[str]) -> frozenset[str] | None:
    """Return the named disks with their maps and the maps' paths; None for any other name."""
    known = {name_of(directory) for directory in devices.places}
    joining: dict[str, list[str]] = {}
    for name in devices.maps:
        for lower in devices.stack.below.get(name, ()):
            joining.setdefault(lower, []).append(name)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if name in devices.maps and not is_head(devices.maps[name]):
            waiting += [each for each in devices.stack.below[name] if each in known]
        elif name not in known:
            return None
        found.add(name)
        waiting += joining.get(name, ())
    return frozenset(found)


def _one_each(branches: Iterable[Branch], needed: Iterable[Branch]) -> Iterator[Branch]:
    """Yield the branches that are needed, and the first of each other host and controller."""
    wanted, seen = set(needed), set[tuple[str | None, ...]]()
    for branch in branches:
        server = (branch.adapter, branch.host, branch.controller)
        if branch in wanted or server not in seen:
            yield branch
        seen.add(server)


def _lookalikes(devices: Devices, places: Mapping[str, Place]) -> Iterator[tuple[str, Place]]:
    """Yield the other SCSI disks with the number of one of these LUNs, where a port names both."""
    wanted = {_behind(place) for place in places.values() if place.branch.transport in _BY_PORT}
    if not wanted:
        return
    for directory, found in devices.places.items():
        if (
            directory not in places
            and found.branch.transport in _BY_PORT
            and _behind(found) in wanted
        ):
            yield directory, found


def _behind(place: Place) -> tuple[str | None, str]:
    """Return the PCI function of a SCSI disk, and the number of its LUN."""
    return place.branch.pci, (place.address or "").rpartition(":")[2]
