"""Find the devices of a machine to watch, and their limits. Pure."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from hbatune.facts import names
from hbatune.facts.families import family_named
from hbatune.facts.model import Endpoint, Machine, Medium, Protocol, Role, Storage
from hbatune.policy.library import Yardsticks
from hbatune.policy.match import find_objective
from hbatune.policy.profile import Profile
from hbatune.probe.comparison import find_medium_figures, get_subject_traits
from hbatune.probe.result import Subject
from hbatune.settings.table import QUEUE_DEPTH, SETTINGS
from hbatune.watch.readings import Subjects, WatchedAdapter, WatchedDisk

# Behind these, many drives or flash chips work in parallel. With one I/O always in flight they look
# busy all the time, although they have much more capacity.
_PARALLEL = frozenset({Protocol.VOLUME, Protocol.FC, Protocol.ISCSI})


def find_subjects(
    machine: Machine,
    profile: Profile | None = None,
    *,
    depths: Mapping[str, int] | None = None,
    knees: Mapping[str, int] | None = None,
    yardsticks: Yardsticks | None = None,
) -> Subjects:
    """Return the subjects of a machine.

    Without a profile there are no objectives. ``depths`` and ``knees`` are by endpoint id.
    ``depths`` are the queue depths that were set; a missing one defaults to the current depth.
    ``knees`` were found by probes; a missing one comes from the ``yardsticks``.
    """
    endpoints, adapters = machine.endpoints_by_target, machine.adapters_by_target
    references = yardsticks or Yardsticks()
    disks = []
    for endpoint in machine.endpoints:
        paths = tuple(endpoints[path] for path in endpoint.paths if path in endpoints)
        path_ids, depth = tuple(path.id for path in paths), None
        if family_named(endpoint.family).depth_ramps:  # the kernel may lower it
            current = SETTINGS[QUEUE_DEPTH].read_number(endpoint.attributes)
            depth = (depths or {}).get(endpoint.id) or current
        disk = WatchedDisk(
            endpoint.id, endpoint.target, endpoint.adapter, depth=depth, paths=path_ids
        )
        # Only a map has limits: alerts on each path would repeat it.
        if endpoint.map not in endpoints:
            candidates = [adapters.get(member.adapter or "") for member in (endpoint, *paths)]
            serving = tuple(dict.fromkeys(adapter for adapter in candidates if adapter))
            disk_traits = get_subject_traits(Subject(endpoint, paths, serving))
            goal = None if profile is None else find_objective(profile, disk_traits)
            figures = find_medium_figures(disk_traits, references)
            knee = (knees or {}).get(endpoint.id)
            if knee is None and figures is not None and figures.knee is not None:
                # The upper end of the documents' range, so no alert is raised within it.
                knee = figures.knee[1]
            disk = replace(
                disk,
                objective_ms=None if goal is None else goal.p99_ms,
                knee=knee,
                by_busy_time=disk_traits.protocol not in _PARALLEL
                and disk_traits.medium is not Medium.NVME
                and disk_traits.storage not in (Storage.ARRAY, Storage.FABRIC),
                commands=_count_commands(paths or (endpoint,)),
            )
        disks.append(disk)
    servers = []
    for adapter in machine.adapters:
        cpus: set[int] = set()
        for vector in machine.vectors:
            if vector.adapter == adapter.target and vector.role is Role.DATA and vector.effective:
                cpus.update(names.find_cpus(vector.effective) or ())
        servers.append(WatchedAdapter(adapter.target, tuple(sorted(cpus))))
    return Subjects(tuple(disks), tuple(servers))


def _count_commands(disks: Iterable[Endpoint]) -> int | None:
    """Return the number of commands that the disks may have in flight, or None if unknown."""
    total = 0
    for endpoint in disks:
        depth = SETTINGS[QUEUE_DEPTH].read_number(endpoint.attributes)
        if depth is not None:
            total += depth
        elif isinstance(endpoint.tags, int) and isinstance(endpoint.hw_queues, int):
            total += endpoint.tags * endpoint.hw_queues
        else:
            return None
    return total
