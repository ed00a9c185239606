"""What is watched: the endpoints and adapters, each with what it is measured by. Pure."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import cpulist
from hbatune.facts.families import family_named
from hbatune.facts.model import Adapter, Attribute, Endpoint, Kind, Machine, Medium, Protocol, Role
from hbatune.policy.match import Traits, objective
from hbatune.policy.model import Profile
from hbatune.policy.references import Yardsticks
from hbatune.probe.model import Subject
from hbatune.probe.standing import document, traits_of
from hbatune.settings.table import SETTINGS

_DEPTH = SETTINGS["queue_depth"].path

# Many drives, or many flash chips, work at once behind these: one I/O in flight at any time makes
# them look busy, and says nothing of how much more they could do.
_PARALLEL = frozenset({Protocol.NVME, Protocol.VOLUME, Protocol.FC, Protocol.ISCSI})


class Disk(Struct, frozen=True):
    """An endpoint to watch.

    ``objective_ms`` is the p99 that the profile wants, ``knee`` the depth beyond which more in
    flight only waits, ``knee_source`` the document it is from where no probe has found it.
    ``depth`` is the queue_depth that it is to have, where a full queue makes the kernel lower it.
    ``by_busy_time`` says whether the time with I/O in flight tells how loaded it is. ``paths`` are
    the ids of the ways to its data, where it is a map.
    """

    id: str
    target: str
    adapter: str | None
    medium: Medium
    protocol: Protocol
    objective_ms: float | None
    knee: int | None
    knee_source: str | None
    depth: int | None
    by_busy_time: bool
    paths: tuple[str, ...]


class Server(Struct, frozen=True):
    """An adapter to watch, with the CPUs that serve its data vectors."""

    target: str
    family: str
    cpus: tuple[int, ...]


class Subjects(Struct, frozen=True):
    """All that is watched."""

    disks: tuple[Disk, ...] = ()
    servers: tuple[Server, ...] = ()


def subjects(
    machine: Machine,
    profile: Profile | None = None,
    *,
    depths: Mapping[str, int] | None = None,
    knees: Mapping[str, int] | None = None,
    yardsticks: Yardsticks | None = None,
) -> Subjects:
    """Return what is watched of a machine.

    Without a profile there are no objectives. ``depths`` and ``knees`` are by endpoint id: the
    queue depths that were set, without which those of now are, and the knees that probes found,
    without which the ``yardsticks`` have them.
    """
    endpoints = {each.target: each for each in machine.endpoints}
    adapters = {each.target: each for each in machine.adapters}
    known = yardsticks or Yardsticks()

    def watched(endpoint: Endpoint) -> Disk:
        paths = tuple(endpoints[path] for path in endpoint.paths if path in endpoints)
        disk = _counted(endpoint, paths, (depths or {}).get(endpoint.id))
        if endpoint.kind is Kind.PATH and endpoint.map in endpoints:
            return disk  # it is its map that is fast or slow
        behind = (adapters.get(each.adapter or "") for each in (endpoint, *paths))
        serving = tuple(dict.fromkeys(each for each in behind if each is not None))
        it = traits_of(Subject(endpoint, paths, serving))
        return _judged(disk, it, profile, known, (knees or {}).get(endpoint.id))

    return Subjects(
        tuple(map(watched, machine.endpoints)),
        tuple(_server(machine, adapter) for adapter in machine.adapters),
    )


def _counted(endpoint: Endpoint, paths: tuple[Endpoint, ...], depth: int | None) -> Disk:
    """Return an endpoint with what its counters are read by, and no judgement on it."""
    ramps = family_named(endpoint.family).depth_ramps
    return Disk(
        id=endpoint.id,
        target=endpoint.target,
        adapter=endpoint.adapter,
        medium=endpoint.medium,
        protocol=endpoint.protocol,
        objective_ms=None,
        knee=None,
        knee_source=None,
        depth=(depth or _depth_of(endpoint)) if ramps else None,
        by_busy_time=False,
        paths=tuple(path.id for path in paths),
    )


def _judged(
    disk: Disk, it: Traits, profile: Profile | None, known: Yardsticks, knee: int | None
) -> Disk:
    goal = None if profile is None else objective(profile, it)
    figures = document(it, known)
    source = None
    if knee is None and figures is not None and figures.knee is not None:
        knee, source = figures.knee[1], figures.source
    return replace(
        disk,
        objective_ms=None if goal is None else goal.p99_ms,
        knee=knee,
        knee_source=source,
        by_busy_time=it.protocol not in _PARALLEL and it.medium is not Medium.NVME,
    )


def _depth_of(endpoint: Endpoint) -> int | None:
    found = endpoint.attributes.get(_DEPTH)
    return int(found.text) if isinstance(found, Attribute) and found.text.isdecimal() else None


def _server(machine: Machine, adapter: Adapter) -> Server:
    cpus: set[int] = set()
    for vector in machine.vectors:
        if vector.adapter == adapter.target and vector.role is Role.DATA and vector.effective:
            cpus.update(_listed(vector.effective))
    return Server(adapter.target, adapter.family, tuple(sorted(cpus)))


def _listed(text: str) -> tuple[int, ...]:
    try:
        return cpulist.parse(text)
    except ValueError:
        return ()
