"""Checks that the parts of a snapshot belong together: one of each, and none that is not there.

Facts that were gathered from a machine do; those in a file need not.
"""

from collections.abc import Iterable, Iterator

from hbatune.facts.model import Machine
from hbatune.snapshot.model import Snapshot


def fault(snapshot: Snapshot) -> str | None:
    """Return the first thing that does not belong together, in words; None where everything does.

    Every adapter, endpoint, vector and control that another part names is there, adapters and
    endpoints are there once, and there is the health of each and of nothing else.
    """
    return next(_faults(snapshot), None)


def _faults(snapshot: Snapshot) -> Iterator[str]:
    machine, health = snapshot.machine, snapshot.health
    adapters = {each.target for each in machine.adapters}
    endpoints = {each.target for each in machine.endpoints}
    yield from _twice("adapter", (each.target for each in machine.adapters))
    yield from _twice("endpoint", (each.target for each in machine.endpoints))
    yield from _twice("id", (each.id for each in machine.endpoints))
    yield from _twice("control", (each.target for each in machine.controls))
    yield from _dangling(machine, adapters, endpoints)
    yield from _unlike("adapters", adapters, health.adapters)
    yield from _unlike("endpoints", endpoints, health.disks)


def _twice(what: str, names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"it has the {what} {_short(name)} twice"
        seen.add(name)


def _dangling(machine: Machine, adapters: set[str], endpoints: set[str]) -> Iterator[str]:
    for endpoint in machine.endpoints:
        if endpoint.adapter not in adapters and endpoint.adapter is not None:
            yield _missing(endpoint.target, "adapter", endpoint.adapter)
        for path in endpoint.paths:
            if path not in endpoints:
                yield _missing(endpoint.target, "path", path)
        if endpoint.map not in endpoints and endpoint.map is not None:
            yield _missing(endpoint.target, "map", endpoint.map)
    of_adapters = (
        *((each.target, each.adapter) for each in machine.vectors),
        *((each.target, each.adapter) for each in machine.controls),
        *(("a list of CPUs", each) for each in machine.local_cpus),
    )
    for name, adapter in of_adapters:
        if adapter not in adapters:
            yield _missing(name, "adapter", adapter)


def _unlike(what: str, there: set[str], told: Iterable[str]) -> Iterator[str]:
    for name in sorted(there ^ set(told)):
        yield f"its {what} and their health do not agree about {_short(name)}"


def _missing(name: str, kind: str, other: str) -> str:
    return f"{_short(name)} is of the {kind} {_short(other)}, which is not in it"


def _short(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}…")
