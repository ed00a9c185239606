"""Where free data vectors go: a pure function of what is there, never of where they are now."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from hbatune.facts.model import Processors, Role, Vector

Key = tuple[int, int, int]


def spread(
    vectors: Iterable[Vector],
    processors: Processors,
    local_cpus: Mapping[str, Collection[int]],
) -> dict[str, int]:
    """Return by id the CPU for each free data vector; one that has none to go to is left out.

    A vector goes to a CPU near its adapter that is usable (``usable``), to one farther away only
    where there is none. Each gets the CPU with the fewest of them so far, the first
    thread of a core before its siblings, so that no CPU has two while one that is as near has none.
    """
    allowed = usable(processors)
    rank = {cpu: place for core in processors.cores for place, cpu in enumerate(core)}
    load: Counter[int] = Counter()
    placed: dict[str, int] = {}

    def key(cpu: int) -> Key:
        return load[cpu], rank.get(cpu, 0), cpu

    for vector in sorted(filter(is_free, vectors), key=lambda vector: vector.irq):
        near = local_cpus.get(vector.adapter, ())
        candidates = [cpu for cpu in allowed if cpu in near] or allowed
        if candidates:
            placed[vector.id] = min(candidates, key=key)
            load[placed[vector.id]] += 1
    return placed


def usable(processors: Processors) -> tuple[int, ...]:
    """Return the CPUs that interrupts may go to.

    Those that are online and neither isolated nor nohz_full, and that an administrator has not
    kept them from: by ``irqaffinity=`` or by irqbalance's banned CPUs.
    """
    kept_free = {*processors.isolated, *processors.nohz_full}
    return tuple(
        cpu
        for cpu in processors.online
        if cpu not in kept_free
        and all(
            cpu in each
            for each in (processors.irqaffinity, processors.balanced)
            if each is not None
        )
    )


def is_free(vector: Vector) -> bool:
    """Whether a vector is one of an adapter's own for data, and not the kernel's to place."""
    return vector.role is Role.DATA and not vector.managed
