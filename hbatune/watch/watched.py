"""What is watched, as frozen values: endpoints and adapters, each with its limits."""

from msgspec import Struct

from hbatune.facts.model import Medium, Protocol


class WatchedDisk(Struct, frozen=True, gc=False):
    """An endpoint to watch.

    ``objective_ms`` is the p99 that the profile wants, ``knee`` the depth beyond which more I/Os
    only wait, ``knee_source`` the document that the knee is from, None where a probe found it.
    ``depth`` is the wanted queue_depth, None where the driver does not lower it on a full queue.
    ``by_busy_time`` says whether the time with I/O in flight is a measure of its load. ``paths``
    are the ids of its paths, where it is a map.
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


class WatchedAdapter(Struct, frozen=True):
    """An adapter to watch, with the CPUs that serve its data vectors."""

    target: str
    family: str
    cpus: tuple[int, ...]


class Subjects(Struct, frozen=True):
    """All endpoints and adapters that are watched."""

    disks: tuple[WatchedDisk, ...] = ()
    servers: tuple[WatchedAdapter, ...] = ()
