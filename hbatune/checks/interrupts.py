"""Interrupt vectors: whether an adapter has them, enough of them, and where they are served."""

from collections.abc import Iterator, Sequence

from hbatune.checks.model import Check, Finding, Seen, Severity, family_of
from hbatune.facts import cpulist
from hbatune.facts.family import Purpose, Vectors
from hbatune.facts.health import AdapterHealth
from hbatune.facts.model import Adapter, Missing, Reason, Role, Vector
from hbatune.settings.affinity import usable

_OWN = frozenset({Vectors.FREE, Vectors.MANAGED, Vectors.MIXED, Vectors.PINNED})


def off(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find adapters on one shared line whose driver would use MSI or MSI-X."""
    for adapter, health in _with_vectors(seen):
        if isinstance(health.vectors, Missing) and health.vectors.reason is Reason.ABSENT:
            options = _options(adapter, health)
            yield check.found(Severity.WARNING, adapter, options=options)


def few(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find adapters with fewer vectors than hardware queues, or than CPUs, whichever is less.

    Only those that serve data count, where it is known which those are. An adapter with a single
    queue needs a single vector; one without options that bound the number of vectors has what its
    hardware offers, which is worth knowing and no more.
    """
    for adapter, health in _with_vectors(seen):
        vectors, queues = len(_data(seen, adapter)) or health.vectors, adapter.hw_queues
        if isinstance(vectors, Missing) or isinstance(queues, Missing) or queues < 2:
            continue
        cpus = seen.machine.cpus
        options = _options(adapter, health)
        if vectors >= cpus:
            continue
        short = vectors < min(queues, cpus) and bool(options)
        yield check.found(
            Severity.ADVICE if short else Severity.INFO,
            adapter,
            vectors=vectors,
            queues=queues,
            cpus=cpus,
            options=options,
        )


def crowded(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find adapters all of whose data vectors are served by one CPU, where there are more.

    Only CPUs count that interrupts may go to.
    """
    online = seen.machine.processors.online
    allowed = usable(seen.machine.processors)
    for adapter in seen.adapters:
        data = _data(seen, adapter)
        cpus = {vector.effective for vector in data}
        local = seen.machine.local_cpus.get(adapter.target, online)
        near = [cpu for cpu in local if cpu in allowed]
        if len(data) > 1 and len(near) > 1 and len(cpus) == 1 and None not in cpus:
            yield check.found(
                Severity.ADVICE, adapter, vectors=len(data), cpu=data[0].effective, near=len(near)
            )


def far(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find adapters with data vectors that are served by CPUs of another NUMA node."""
    for adapter in seen.adapters:
        near = seen.machine.local_cpus.get(adapter.target, ())
        away = [each for each in _data(seen, adapter) if near and _elsewhere(each, near)]
        if away:
            yield check.found(
                Severity.INFO if all(each.managed for each in away) else Severity.ADVICE,
                adapter,
                vectors=tuple(each.target for each in away),
                near=cpulist.join(near),
            )


def _elsewhere(vector: Vector, near: Sequence[int]) -> bool:
    """Whether none of the CPUs that serve a vector is near its adapter."""
    try:
        served = cpulist.parse(vector.effective or "")
    except ValueError:
        return False
    return bool(served) and not set(served) & set(near)


def _data(seen: Seen, adapter: Adapter) -> list[Vector]:
    """Return the vectors that serve an adapter's data; none where it is not known which do."""
    own = (vector for vector in seen.machine.vectors if vector.adapter == adapter.target)
    return [vector for vector in own if vector.role is Role.DATA]


def _with_vectors(seen: Seen) -> Iterator[tuple[Adapter, AdapterHealth]]:
    for adapter in seen.adapters:
        health = seen.of_adapter(adapter)
        wanted = family_of(adapter).interrupts.vectors in _OWN
        if wanted and health is not None and adapter.pci is not None:
            yield adapter, health


def _options(adapter: Adapter, health: AdapterHealth) -> tuple[str, ...]:
    """Return the module's options for vectors with their values."""
    names = [o.name for o in family_of(adapter).options if o.purpose is Purpose.VECTORS]
    return tuple(
        f"{name}={value}"
        for name in names
        if not isinstance(value := health.options.get(name, Missing(Reason.ABSENT)), Missing)
    )
