"""Interrupt vectors: whether an adapter has them, and enough of them."""

from collections.abc import Iterator

from hbatune.checks.model import Check, Finding, Seen, Severity, family_of
from hbatune.facts.health import AdapterHealth
from hbatune.facts.levers import Purpose, Vectors
from hbatune.facts.model import Adapter, Missing, Reason

_OWN = frozenset({Vectors.FREE, Vectors.MANAGED, Vectors.MIXED, Vectors.PINNED})


def off(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find adapters on one shared line whose driver would use MSI or MSI-X."""
    for adapter, health in _with_vectors(seen):
        if isinstance(health.vectors, Missing) and health.vectors.reason is Reason.ABSENT:
            options = _options(adapter, health)
            yield check.found(Severity.WARNING, adapter, options=options)


def few(check: Check, seen: Seen) -> Iterator[Finding]:
    """Find adapters with fewer vectors than hardware queues, or than CPUs, whichever is less.

    An adapter with a single queue needs a single vector; one without options that bound the
    number of vectors has what its hardware offers, which is worth knowing and no more.
    """
    for adapter, health in _with_vectors(seen):
        vectors, queues = health.vectors, adapter.hw_queues
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
