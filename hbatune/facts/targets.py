"""The targets that settings are set on, and the meaning of names on the command line. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from hbatune.errors import UsageError
from hbatune.facts.endpoints import DISKSEQ
from hbatune.facts.ids import former_id, lasting, stable_part
from hbatune.facts.model import (
    TAGS,
    Adapter,
    Attribute,
    Control,
    Endpoint,
    Machine,
    Missing,
    Role,
    TargetKind,
    Vector,
)
from hbatune.facts.vectors import AFFINITY


class Target(NamedTuple):
    """Anything that settings are set on: its place and its attributes.

    ``name`` is its name in a plan, ``directory`` the one that its attributes are below.
    ``identity`` are files below it whose texts distinguish this very device from a later one at
    the same place; ``diskseq`` is the kernel's number of the very disk, None for any other target.
    """

    name: str
    id: str
    adapter: str | None
    map: str | None
    kind: TargetKind
    directory: str
    attributes: Mapping[str, Attribute | Missing]
    identity: tuple[tuple[str, str], ...] = ()
    diskseq: int | None = None


def target_of(it: Endpoint | Vector | Control) -> Target:
    """Return an endpoint, a vector or a control as a target."""
    match it:
        case Endpoint():
            where = (it.adapter, it.map, TargetKind.ENDPOINT, it.sysfs)
            diskseq = it.diskseq if isinstance(it.diskseq, int) else None
            seen = ((DISKSEQ, str(diskseq)),) if diskseq is not None else ()
            tags = it.tags if isinstance(it.tags, Missing) else Attribute(str(it.tags), False)
            found = {TAGS: tags, **it.attributes}
            return Target(it.target, it.id, *where, found, seen, diskseq)
        case Vector():
            affinity = {AFFINITY: it.affinity}
            # A folder for each handler (kernel/irq/proc.c: register_handler_proc), empty.
            handlers = tuple((f"{name}/", "") for name in it.names if "/" not in name)
            where = (it.adapter, None, TargetKind.VECTOR, it.directory)
            return Target(it.target, it.id, *where, affinity, handlers)
        case Control():
            return Target(it.target, it.id, it.adapter, None, it.kind, it.sysfs, it.attributes)


def targets(machine: Machine) -> dict[str, Target]:
    """Return, by id, all targets: endpoints, the controls of adapters, data vectors."""
    return {target.id: target for target in map(target_of, _settable(machine))}


def _settable(machine: Machine) -> Iterator[Endpoint | Vector | Control]:
    yield from machine.endpoints
    yield from machine.controls
    yield from (vector for vector in machine.vectors if vector.role is Role.DATA)


class UnknownTargetError(UsageError):
    """No adapter, endpoint or interrupt goes by this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        close = get_close_matches(name, list(known), n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`hbatune list` shows them all"
        super().__init__(f"no target {name!r} on this machine", hint=hint)
        self.name = name


def select(machine: Machine, names: Iterable[str]) -> tuple[Endpoint, ...]:
    """Return the endpoints that the names mean, in the machine's order.

    A name is a disk (``sda``, ``/dev/sda``), an NVMe controller, a PCI address, a SCSI host, an
    interrupt (``irq27``) or a stable id, with or without the path that follows its ``@``. A map
    means its paths as well. UnknownTargetError for a name that means nothing.
    """
    meant = named(machine, names)
    return tuple(endpoint for endpoint in machine.endpoints if endpoint.id in meant)


def named(machine: Machine, names: Iterable[str]) -> frozenset[str]:
    """Return the ids of all targets that the names mean: an adapter's name means all of its own.

    UnknownTargetError as for ``select``.
    """
    known = all_names(machine)
    paths = {endpoint.id: endpoint.paths for endpoint in machine.endpoints}
    chosen: set[str] = set()
    for name in names:
        found = {id for id, each in known.items() if name in each}
        if not found and not _adapter(machine, name):
            raise UnknownTargetError(name, {each for names in known.values() for each in names})
        # The adapter itself as well: rows of its module's options and coalescing go by its name.
        chosen |= {each.target for each in machine.adapters if name in adapter_names(each)}
        # With a map its paths, whose queue_depth and nr_requests still cap the map's requests.
        below = {path for id in found for path in paths.get(id, ())}
        chosen |= found | {each.id for each in machine.endpoints if each.target in below}
    return frozenset(chosen)


def all_names(machine: Machine) -> dict[str, frozenset[str]]:
    """Return, by id, all names of each target, those of its adapter among them."""
    adapters = {each.target: adapter_names(each) for each in machine.adapters}
    found = {endpoint.id: names_of(endpoint) for endpoint in machine.endpoints}
    for it in _settable(machine):
        if not isinstance(it, Endpoint):
            own = {it.target, it.id, former_id(it)}
            found[it.id] = frozenset(own | adapters.get(it.adapter, frozenset()))
    return found


def adapter_names(adapter: Adapter) -> frozenset[str]:
    """Return all names of an adapter."""
    hosts = (host.name for host in adapter.hosts)
    return frozenset(name for name in (adapter.target, adapter.controller, *hosts) if name)


def names_of(endpoint: Endpoint) -> frozenset[str]:
    """Return all names of an endpoint."""
    host = endpoint.host.name if endpoint.host else None
    ids = (endpoint.id, lasting(endpoint.id), stable_part(endpoint.id), former_id(endpoint))
    above = (endpoint.adapter, endpoint.controller, endpoint.device_node, host)
    names = (endpoint.target, f"/dev/{endpoint.target}", *ids, *above)
    return frozenset(name for name in names if name)


def _adapter(machine: Machine, name: str) -> bool:
    """Whether the name is an adapter's, which may have no endpoint at all."""
    return any(name in adapter_names(adapter) for adapter in machine.adapters)
