"""Where an interrupt may go: the spread over the CPUs near its adapter, and its limits. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from hbatune.facts import cpulist
from hbatune.facts.model import Processors, Role, Vector
from hbatune.settings.setting import LOCAL, Device, Fixed, Legal, Room, Value

INFERRED = "; inferred from the driver and the vector's name: this kernel says so only at a write"

_Rank = tuple[int, int, int]


def spread(
    vectors: Iterable[Vector],
    processors: Processors,
    local_cpus: Mapping[str, Collection[int]],
) -> dict[str, int]:
    """Return the CPU of each free data vector, by the vector's id.

    A vector goes to a ``usable`` CPU near its adapter, and to one farther away only if none is
    near. Each vector takes the CPU with the fewest vectors so far, the first thread of a core
    before its siblings, so that no CPU has two while one that is as near has none. Vectors for
    which no CPU is usable are left out.
    """
    allowed = usable(processors)
    rank = {cpu: place for core in processors.cores for place, cpu in enumerate(core)}
    load: Counter[int] = Counter()
    placed: dict[str, int] = {}

    def key(cpu: int) -> _Rank:
        return load[cpu], rank.get(cpu, 0), cpu

    # In the order of the interrupts, so that the same machine always gets the same spread: another
    # order would read as drift.
    for vector in sorted(filter(is_free, vectors), key=lambda vector: vector.irq):
        near = local_cpus.get(vector.adapter, ())
        candidates = [cpu for cpu in allowed if cpu in near] or allowed
        if candidates:
            placed[vector.id] = min(candidates, key=key)
            load[placed[vector.id]] += 1
    return placed


def usable(processors: Processors) -> tuple[int, ...]:
    """Return the CPUs that interrupts may go to.

    They are online, neither isolated nor nohz_full, within ``irqaffinity=`` of the kernel's
    command line, and not banned in irqbalance's settings.
    """
    kept_free = {*processors.isolated, *processors.nohz_full}
    return tuple(
        cpu
        for cpu in processors.online
        if cpu not in kept_free
        and all(
            cpu in each
            for each in (processors.irqaffinity, processors.balanced)
            if each is not None  # None is "not restricted"; an empty tuple allows no CPU at all
        )
    )


def is_free(vector: Vector) -> bool:
    """Whether a vector is an adapter's own, for data, and not managed by the kernel."""
    return vector.role is Role.DATA and not vector.managed


def near_adapter(wanted: Value, current: Value, device: Device) -> Legal | Fixed:
    """Managed vectors stay where the kernel put them; `local` is one CPU near the adapter for each.

    CPUs that are isolated, nohz_full, left out by `irqaffinity=` or banned in irqbalance's settings
    are not used.
    """
    vector, room = device.vector, device.room
    if vector is None or room is None:
        return Legal(wanted)
    if vector.managed:
        return Fixed(_managed(vector))
    if wanted != LOCAL:
        return _listed(str(wanted), room.processors)
    cpu = room.placed.get(vector.id)
    if cpu is None:
        return Fixed(_none(room.processors))
    return Legal(str(cpu), "; ".join([_chosen(cpu, room), *_kept_out(room.processors)]))


def _chosen(cpu: int, room: Room) -> str:
    if not room.local:
        return "one CPU for each vector"
    if cpu in room.local:
        return f"one CPU of {cpulist.join(room.local)}, which are near the adapter"
    return "no CPU near the adapter may be used: one farther away"


def _kept_out(processors: Processors) -> list[str]:
    """Return the reasons why interrupts are kept off some CPUs, in words."""
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
    """Return the reason why no CPU is usable, in words."""
    if processors.irqaffinity == ():
        return "irqaffinity= on the kernel's command line makes no sense"
    if processors.balanced == ():
        return "irqbalance's banned CPUs make no sense, or leave none"
    kept_out = _kept_out(processors)
    if kept_out:
        return f"no CPU is left for interrupts: {'; '.join(kept_out)}"
    return "every CPU is isolated or nohz_full"


def _listed(wanted: str, processors: Processors) -> Legal | Fixed:
    cpus = cpulist.parse(wanted)
    # One that is online is enough for the kernel.
    if not set(cpus) & set(processors.online):
        return Fixed("none of these CPUs is online")  # EINVAL (kernel/irq/proc.c)
    outside = set(cpus) - set(usable(processors))
    kept_out = _kept_out(processors)
    # The rule names these CPUs for these vectors, which outweighs a setting for the whole machine.
    why = f"although {'; '.join(kept_out)}" if outside and kept_out else None
    return Legal(cpulist.join(cpus), why)


def _managed(vector: Vector) -> str:
    """Return why a managed vector stays, and how to have it free.

    See isolcpus=managed_irq in Documentation/admin-guide.
    """
    why = "set by the kernel (managed interrupt); to change it, boot with isolcpus=managed_irq,…"
    if vector.unmanaged_by:
        why += f" or load the driver with {vector.unmanaged_by}"
    return why + (INFERRED if vector.inferred else "")
