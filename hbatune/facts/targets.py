"""Which endpoints a name on the command line means. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches

from hbatune.errors import UsageError
from hbatune.facts.model import Endpoint, Machine


class UnknownTargetError(UsageError):
    """No adapter or endpoint goes by this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        close = get_close_matches(name, list(known), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`hbatune list` shows them all"
        super().__init__(f"no target {name!r} on this machine", hint=hint)
        self.name = name


def select(machine: Machine, names: Iterable[str]) -> tuple[Endpoint, ...]:
    """Return the endpoints that the names mean, in the machine's order.

    A name is a disk (``sda``, ``/dev/sda``), an NVMe controller, a PCI address, a SCSI host or a
    stable id, with or without the path that follows its ``@``. A map means its paths as well.
    UnknownTargetError for a name that means nothing.
    """
    chosen: set[str] = set()
    for name in names:
        found = [endpoint for endpoint in machine.endpoints if name in names_of(endpoint)]
        if not found and not _adapter(machine, name):
            known = {each for endpoint in machine.endpoints for each in names_of(endpoint)}
            raise UnknownTargetError(name, known)
        for endpoint in found:
            chosen.update((endpoint.target, *endpoint.paths))
    return tuple(endpoint for endpoint in machine.endpoints if endpoint.target in chosen)


def names_of(endpoint: Endpoint) -> frozenset[str]:
    """Return every name that an endpoint goes by."""
    stable = endpoint.id.partition("@")[0]
    host = endpoint.host.name if endpoint.host else None
    above = (endpoint.adapter, endpoint.controller, endpoint.device_node, host)
    names = (endpoint.target, f"/dev/{endpoint.target}", endpoint.id, stable, *above)
    return frozenset(name for name in names if name)


def _adapter(machine: Machine, name: str) -> bool:
    """Whether the name is an adapter's, which may have no endpoint at all."""
    return any(
        name in (adapter.target, adapter.controller, *(host.name for host in adapter.hosts))
        for adapter in machine.adapters
    )
