"""The targets that settings are set on, and the meaning of names on the command line. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts.endpoints import DISKSEQ
from hbatune.facts.ids import canonical, former_id, lasting, stable_part
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


class Target(Struct, frozen=True):
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


_LONGEST = 200
"""Characters of a name that is shown in an error: ids are no longer."""


class UnknownTargetError(UsageError):
    """No adapter, endpoint or interrupt goes by this name."""

    def __init__(self, name: str, known: Iterable[str], *, hint: str | None = None) -> None:
        from difflib import get_close_matches  # only a mistake needs it

        close = get_close_matches(name[:_LONGEST], list(known), n=3)
        told = f"did you mean {' or '.join(close)}?" if close else "`hbatune list` shows them all"
        short = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…"
        super().__init__(f"no target {short!r} on this machine", hint=hint or told)
        self.name = name


class Chosen(Struct, frozen=True):
    """The meaning of names on a machine: the ids of targets, and what they are or belong to.

    ``ids`` are None where no name was given: then it is everything. ``adapters`` are those named
    and those behind the targets named, ``vectors`` all interrupts of these.
    """

    ids: frozenset[str] | None
    endpoints: tuple[Endpoint, ...]
    adapters: tuple[Adapter, ...]
    vectors: tuple[Vector, ...]


def choose(machine: Machine, names: Iterable[str]) -> Chosen:
    """Return the meaning of the names, or everything where there are none.

    UnknownTargetError as for ``named``.
    """
    given = tuple(names)
    if not given:
        return Chosen(None, machine.endpoints, machine.adapters, machine.vectors)
    ids = named(machine, given)
    adapters = adapters_of(machine, ids)
    serving = {adapter.target for adapter in adapters}
    return Chosen(
        ids,
        tuple(endpoint for endpoint in machine.endpoints if endpoint.id in ids),
        adapters,
        tuple(vector for vector in machine.vectors if vector.adapter in serving),
    )


def adapters_of(machine: Machine, ids: Collection[str]) -> tuple[Adapter, ...]:
    """Return the adapters among these ids, and those behind the targets with these ids."""
    behind = {target.adapter for id, target in targets(machine).items() if id in ids}
    return tuple(
        adapter for adapter in machine.adapters if adapter.target in behind or adapter.target in ids
    )


def select(machine: Machine, names: Iterable[str]) -> tuple[Endpoint, ...]:
    """Return the endpoints that the names mean, in the machine's order, as ``named`` does."""
    meant = named(machine, names)
    return tuple(endpoint for endpoint in machine.endpoints if endpoint.id in meant)


def named(machine: Machine, names: Iterable[str]) -> frozenset[str]:
    """Return the ids of all targets that the names mean: an adapter's name means all of its own.

    A name is a disk (``sda``, ``/dev/sda``), an NVMe controller, a PCI address, a SCSI host, an
    interrupt (``irq27``) or a stable id, with or without the route that follows its ``@`` and in
    any spelling (``ids.canonical``). A map means its paths as well. The id of an adapter is its
    ``target``. UnknownTargetError for a name that means nothing.
    """
    known = all_names(machine)
    paths = {endpoint.id: endpoint.paths for endpoint in machine.endpoints}
    chosen: set[str] = set()
    for name in names:
        found = {id for id, each in known.items() if name in each} or _spelled(machine, name)
        adapters = {
            adapter.target for adapter in machine.adapters if name in adapter_names(adapter)
        }
        if not found and not adapters:
            raise _unknown(machine, name, known.values())
        # The adapter itself as well: rows of its module's options and coalescing go by its name.
        chosen |= adapters
        # With a map its paths, whose queue_depth and nr_requests still cap the map's requests.
        below = {path for id in found for path in paths.get(id, ())}
        chosen |= found | {each.id for each in machine.endpoints if each.target in below}
    return frozenset(chosen)


def _spelled(machine: Machine, name: str) -> set[str]:
    """Return the ids of endpoints whose stable name is this one in another spelling."""
    wanted = canonical(name)
    return {
        endpoint.id
        for endpoint in machine.endpoints
        if wanted
        in {canonical(own) for own in (stable_part(endpoint.id), lasting(endpoint.id), endpoint.id)}
    }


def _unknown(machine: Machine, name: str, known: Iterable[frozenset[str]]) -> UnknownTargetError:
    """Return the error for a name that means no target of the machine."""
    for vector in machine.vectors:
        if vector.target == name:
            why = f"it is an interrupt of {vector.adapter} that carries no data, and is left alone"
            return UnknownTargetError(name, (), hint=why)
    every = {each for names in known for each in names}
    of_adapters = (each for adapter in machine.adapters for each in adapter_names(adapter))
    return UnknownTargetError(name, every.union(of_adapters))


def all_names(machine: Machine) -> dict[str, frozenset[str]]:
    """Return, by id, all names of each target, those of its adapter among them."""
    adapters = {adapter.target: adapter_names(adapter) for adapter in machine.adapters}
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
