"""Where an interrupt may go: pure, as the other limits are."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from hbatune.facts import cpulist
from hbatune.facts.model import Processors, Vector
from hbatune.settings.limits import Fixed, Legal
from hbatune.settings.setting import LOCAL, Value
from hbatune.settings.spread import usable

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
        return Fixed(_none(room.processors))
    return Legal(str(cpu), "; ".join([_chosen(cpu, room), *_said(room.processors)]))


def _chosen(cpu: int, room: Room) -> str:
    if not room.local:
        return "one CPU for each vector"
    if cpu in room.local:
        return f"one CPU of {cpulist.join(room.local)}, which are near the adapter"
    return "no CPU near the adapter may be used: one farther away"


def _said(processors: Processors) -> list[str]:
    """Return what an administrator has said of where interrupts may go."""
    found = []
    if processors.irqaffinity is not None:
        found.append(
            f"irqaffinity={cpulist.join(processors.irqaffinity)} on the kernel's command line"
        )
    if processors.balanced is not None:
        banned = set(processors.online) - set(processors.balanced)
        found.append(f"CPUs {cpulist.join(banned)} are banned in irqbalance's settings")
    return found


def _none(processors: Processors) -> str:
    """Say why there is no CPU that a vector could go to."""
    if processors.irqaffinity == ():
        return "irqaffinity= on the kernel's command line makes no sense"
    if processors.balanced == ():
        return "irqbalance's banned CPUs make no sense, or leave none"
    said = _said(processors)
    if said:
        return f"no CPU is left for interrupts: {'; '.join(said)}"
    return "every CPU is isolated or nohz_full"


def _listed(wanted: str, processors: Processors) -> Legal | Fixed:
    cpus = cpulist.parse(wanted)
    if not set(cpus) & set(processors.online):
        return Fixed("none of these CPUs is online")  # EINVAL (kernel/irq/proc.c)
    outside = set(cpus) - set(usable(processors))
    said = _said(processors)
    # The rule names these CPUs for these vectors, which is the more particular word.
    return Legal(cpulist.join(cpus), f"although {'; '.join(said)}" if outside and said else None)


def _managed(vector: Vector) -> str:
    """Say who placed it and what would change that (Documentation: isolcpus=managed_irq)."""
    said = "the kernel places it; only booting with isolcpus=managed_irq,… steers it"
    if vector.unmanaged_by:
        said += f", or loading the driver with {vector.unmanaged_by}"
    return said + (INFERRED if vector.inferred else "")
