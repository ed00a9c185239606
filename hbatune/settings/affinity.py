"""Where an interrupt may go: pure, as the other limits are."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from hbatune import cpulist
from hbatune.facts.model import Processors, Vector
from hbatune.settings.limits import Fixed, Legal
from hbatune.settings.setting import LOCAL, Value

INFERRED = (
    "; told from the driver and the vector's name, since this kernel shows it only to a write"
)


class Room(Struct, frozen=True):
    """Where the vectors of one adapter can go: the spread of all of them, and the CPUs near it."""

    placed: Mapping[str, int]
    processors: Processors
    local: Collection[int]


def resolve_vector(
    vector: Vector, room: Room, name: str, wanted: Value, current: Value, scheduler: Value | None
) -> Legal | Fixed:
    """Return the CPUs that a data vector is to be served by."""
    if vector.managed:
        return Fixed(_managed(vector))
    if wanted != LOCAL:
        return _listed(str(wanted), room.processors)
    cpu = room.placed.get(vector.id)
    if cpu is None:
        return Fixed("every CPU is isolated or nohz_full")
    return Legal(str(cpu), _chosen(cpu, room))


def _chosen(cpu: int, room: Room) -> str:
    if not room.local:
        return "one CPU for each vector"
    if cpu in room.local:
        return f"one CPU of {cpulist.join(room.local)}, which are near the adapter"
    return "isolation leaves no CPU near the adapter: one farther away"


def _listed(wanted: str, processors: Processors) -> Legal | Fixed:
    cpus = cpulist.parse(wanted)
    if not set(cpus) & set(processors.online):
        return Fixed("none of these CPUs is online")  # EINVAL (kernel/irq/proc.c)
    return Legal(cpulist.join(cpus))


def _managed(vector: Vector) -> str:
    """Say who placed it and what would change that (Documentation: isolcpus=managed_irq)."""
    said = "the kernel places it; only booting with isolcpus=managed_irq,… steers it"
    if vector.unmanaged_by:
        said += f", or loading the driver with {vector.unmanaged_by}"
    return said + (INFERRED if vector.inferred else "")
