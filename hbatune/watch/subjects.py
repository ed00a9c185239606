"""Finds out what is to be watched of a machine, and its limits. Pure."""

from collections.abc import Mapping

from msgspec.structs import replace

from hbatune.facts import names
from hbatune.facts.families import family_named
from hbatune.facts.model import (
    Adapter,
    Attribute,
    Endpoint,
    Kind,
    Machine,
    Medium,
    Protocol,
    Role,
    Storage,
)
from hbatune.policy.library import Yardsticks
from hbatune.policy.match import Traits, objective
from hbatune.policy.profile import Profile
from hbatune.probe.comparison import document_figures, subject_traits
from hbatune.probe.result import Subject
from hbatune.settings.table import SETTINGS
from hbatune.watch.readings import Subjects, WatchedAdapter, WatchedDisk

_DEPTH = SETTINGS["queue_depth"].path

# Behind these, many drives or flash chips work in parallel: with one I/O always in flight they look
# busy all the time, although they could do much more.
_PARALLEL = frozenset({Protocol.NVME, Protocol.VOLUME, Protocol.FC, Protocol.ISCSI})


def subjects(
    machine: Machine,
    profile: Profile | None = None,
    *,
    depths: Mapping[str, int] | None = None,
    knees: Mapping[str, int] | None = None,
    yardsticks: Yardsticks | None = None,
) -> Subjects:
    """Return the subjects of a machine.

    Without a profile there are no objectives. ``depths`` and ``knees`` are by endpoint id: the
    queue depths that were set (where missing, the current ones count), and the knees that probes
    found (where missing, those of the ``yardsticks``).
    """
    endpoints = {each.target: each for each in machine.endpoints}
    adapters = {each.target: each for each in machine.adapters}
    known = yardsticks or Yardsticks()

    def watched(endpoint: Endpoint) -> WatchedDisk:
        paths = tuple(endpoints[path] for path in endpoint.paths if path in endpoints)
        disk = _counted(endpoint, paths, (depths or {}).get(endpoint.id))
        if endpoint.kind is Kind.PATH and endpoint.map in endpoints:
            return disk  # only its map is judged: alerts on each path would repeat it
        behind = (adapters.get(each.adapter or "") for each in (endpoint, *paths))
        serving = tuple(dict.fromkeys(each for each in behind if each is not None))
        it = subject_traits(Subject(endpoint, paths, serving))
        return _judged(disk, it, profile, known, (knees or {}).get(endpoint.id))

    return Subjects(
        tuple(map(watched, machine.endpoints)),
        tuple(_watched_adapter(machine, adapter) for adapter in machine.adapters),
    )


def _counted(endpoint: Endpoint, paths: tuple[Endpoint, ...], depth: int | None) -> WatchedDisk:
    """Return an endpoint for its counters alone, without limits."""
    ramps = family_named(endpoint.family).depth_ramps
    return WatchedDisk(
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
    disk: WatchedDisk, it: Traits, profile: Profile | None, known: Yardsticks, knee: int | None
) -> WatchedDisk:
    goal = None if profile is None else objective(profile, it)
    figures = document_figures(it, known)
    source = None
    if knee is None and figures is not None and figures.knee is not None:
        # The upper end of the documents' range, so that no alert is raised within it.
        knee, source = figures.knee[1], figures.source
    return replace(
        disk,
        objective_ms=None if goal is None else goal.p99_ms,
        knee=knee,
        knee_source=source,
        by_busy_time=it.protocol not in _PARALLEL
        and it.medium is not Medium.NVME
        and it.storage is not Storage.ARRAY,
    )


def _depth_of(endpoint: Endpoint) -> int | None:
    found = endpoint.attributes.get(_DEPTH)
    return int(found.text) if isinstance(found, Attribute) and found.text.isdecimal() else None


def _watched_adapter(machine: Machine, adapter: Adapter) -> WatchedAdapter:
    cpus: set[int] = set()
    for vector in machine.vectors:
        if vector.adapter == adapter.target and vector.role is Role.DATA and vector.effective:
            cpus.update(_listed(vector.effective))
    return WatchedAdapter(adapter.target, adapter.family, tuple(sorted(cpus)))


def _listed(text: str) -> tuple[int, ...]:
    try:
        return names.parse_cpus(text)
    except ValueError:
        return ()
