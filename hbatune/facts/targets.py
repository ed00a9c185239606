"""Find the targets that settings are set on, and resolve names on the command line. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter

from msgspec import Struct

from hbatune.errors import UsageError
from hbatune.facts import model
from hbatune.facts.ids import list_spellings, normalise_name
from hbatune.facts.model import Adapter, Attribute, Control, Endpoint, Machine, Missing, Vector


class Target(Struct, frozen=True):
    """An object that settings are set on, with its ``attributes`` below its ``directory``.

    ``name`` is its name in a plan. ``identity`` are files below the directory whose texts
    distinguish this device from a later one with the same path.
    """

    name: str
    id: str
    adapter: str | None
    map: str | None
    kind: model.TargetKind
    directory: str
    attributes: Mapping[str, Attribute | Missing]
    identity: tuple[tuple[str, str], ...] = ()
    diskseq: int | None = None


def make_target(source: Endpoint | Vector | Control) -> Target:
    """Return an endpoint, a vector or a control as a target."""
    match source:
        case Endpoint():
            diskseq = source.diskseq if isinstance(source.diskseq, int) else None
            tags: Attribute | Missing = Attribute(str(source.tags), False)
            if isinstance(source.tags, Missing):
                tags = source.tags
            return Target(
                name=source.target,
                id=source.id,
                adapter=source.adapter,
                map=source.map,
                kind=model.TargetKind.ENDPOINT,
                directory=source.sysfs,
                attributes={model.TAG_COUNT_FILE: tags, **source.attributes},
                identity=() if diskseq is None else ((model.DISKSEQ_FILE, str(diskseq)),),
                diskseq=diskseq,
            )
        case Vector():
            # A directory for each handler (kernel/irq/proc.c: register_handler_proc), empty.
            handlers = tuple((f"{name}/", "") for name in source.names if "/" not in name)
            position = (source.adapter, None, model.TargetKind.VECTOR, source.directory)
            affinity = {model.AFFINITY_FILE: source.affinity}
            return Target(source.target, source.id, *position, affinity, handlers)
        case Control():
            position = (source.adapter, None, source.kind, source.sysfs)
            return Target(source.target, source.id, *position, source.attributes)


def list_targets(machine: Machine) -> dict[str, Target]:
    """Return, by id, all targets: endpoints, the controls of adapters, data vectors."""
    return {target.id: target for target in map(make_target, _iterate_settable(machine))}


def _iterate_settable(machine: Machine) -> Iterator[Endpoint | Vector | Control]:
    yield from machine.endpoints
    yield from machine.controls
    yield from (vector for vector in machine.vectors if vector.role is model.Role.DATA)


_MAX_NAME_LENGTH = 200  # of a name in an error: no id is longer


class UnknownTargetError(UsageError):
    """No adapter, endpoint or interrupt has this name."""

    def __init__(self, name: str, all_names: Iterable[str], *, hint: str | None = None) -> None:
        from difflib import get_close_matches  # needed only for an unknown name

        close = get_close_matches(name[:_MAX_NAME_LENGTH], list(all_names), n=3)
        matches = f"did you mean {' or '.join(close)}?" if close else None
        short = name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"
        hint = hint or matches or "`hbatune list` shows them all"
        super().__init__(f"no target {short!r} on this machine", hint=hint)
        self.name = name


class ChosenTargets(Struct, frozen=True):
    """The meaning of names on a machine; without a name, everything, and ``ids`` are None."""

    ids: frozenset[str] | None
    endpoints: tuple[Endpoint, ...]
    adapters: tuple[Adapter, ...]  # named adapters, and the adapters of named targets
    vectors: tuple[Vector, ...]  # all interrupts of these adapters


def choose_targets(machine: Machine, names: Iterable[str]) -> ChosenTargets:
    """Return the targets that the names mean, or all; raise UnknownTargetError for other names."""
    requested = tuple(names)
    if not requested:
        return ChosenTargets(None, machine.endpoints, machine.adapters, machine.vectors)
    ids = find_named_targets(machine, requested)
    adapters = find_adapters(machine, ids)
    serving = set(map(attrgetter("target"), adapters))
    vectors = tuple(vector for vector in machine.vectors if vector.adapter in serving)
    return ChosenTargets(ids, _select_by_id(machine, ids), adapters, vectors)


def find_adapters(machine: Machine, ids: Collection[str]) -> tuple[Adapter, ...]:
    """Return the adapters with these ids, and the adapters of the targets with these ids."""
    names = {target.adapter for id, target in list_targets(machine).items() if id in ids}
    return tuple(a for a in machine.adapters if a.target in names or a.target in ids)


def select_endpoints(machine: Machine, names: Iterable[str]) -> tuple[Endpoint, ...]:
    """Return the endpoints that the names mean, in the machine's order."""
    return _select_by_id(machine, find_named_targets(machine, names))


def _select_by_id(machine: Machine, ids: Collection[str]) -> tuple[Endpoint, ...]:
    return tuple(endpoint for endpoint in machine.endpoints if endpoint.id in ids)


def find_named_targets(
    machine: Machine, names: Iterable[str], past: Collection[tuple[str, str]] = ()
) -> frozenset[str]:
    """Return the ids of all targets that the names mean; an adapter's name means all its targets.

    A name is a disk (``sda``, ``/dev/sda``), an NVMe controller, a PCI address, a SCSI host, an
    interrupt (``irq27``) or a stable id. The route after the ``@`` of an id is optional, and any
    spelling is accepted (``ids.normalise_name``). A map also means its paths. The id of an adapter
    is its ``target``. ``past`` has the names and ids of targets that may be removed since: a name
    that a present target has means only this one. UnknownTargetError for a name that means nothing.
    """
    # Include the adapter itself: rows of its module's options and coalescing have its name.
    all_names = _list_adapter_names(machine) | list_all_names(machine)
    chosen: set[str] = set()
    for name in names:
        ids = {id for id, aliases in all_names.items() if name in aliases}
        ids = ids or _find_by_spelling(machine, name)
        ids = ids or {id for target, id in past if name in (target, id)}
        if not ids:
            for vector in machine.vectors:
                if vector.target == name:
                    hint = "it is an interrupt of {} that carries no data, so hbatune skips it"
                    raise UnknownTargetError(name, (), hint=hint.format(vector.adapter))
            raise UnknownTargetError(name, set().union(*all_names.values()))
        chosen |= ids
    # Include a map's paths: their queue_depth and nr_requests still limit the map's requests.
    below = set[str]().union(*map(attrgetter("paths"), _select_by_id(machine, chosen)))
    return frozenset(chosen).union(e.id for e in machine.endpoints if e.target in below)


def _find_by_spelling(machine: Machine, name: str) -> set[str]:
    """Return the ids of endpoints whose stable name is another spelling of this one."""
    wanted, ids = normalise_name(name), set()
    for endpoint in machine.endpoints:
        if wanted in map(normalise_name, list_spellings(endpoint.id)):
            ids.add(endpoint.id)
    return ids


def list_all_names(machine: Machine) -> dict[str, frozenset[str]]:
    """Return, by id, all names of each target, including its adapter's names."""
    adapters = _list_adapter_names(machine)
    names_by_id = {}
    for source in _iterate_settable(machine):
        if isinstance(source, Endpoint):
            names_by_id[source.id] = list_endpoint_names(source)
        else:
            names = {source.target, source.id}
            names_by_id[source.id] = adapters.get(source.adapter, frozenset()) | names
    return names_by_id


def _list_adapter_names(machine: Machine) -> dict[str, frozenset[str]]:
    return {adapter.target: list_adapter_names(adapter) for adapter in machine.adapters}


def list_adapter_names(adapter: Adapter) -> frozenset[str]:
    """Return all names of an adapter."""
    hosts = map(attrgetter("name"), adapter.hosts)
    return frozenset(filter(None, (adapter.target, adapter.controller, *hosts)))


def list_endpoint_names(endpoint: Endpoint) -> frozenset[str]:
    """Return all names of an endpoint."""
    host = endpoint.host.name if endpoint.host else None
    ids = list_spellings(endpoint.id)
    above = (endpoint.adapter, endpoint.controller, endpoint.device_node, host)
    names = (endpoint.target, f"/dev/{endpoint.target}", endpoint.alias, *ids, *above)
    return frozenset(filter(None, names))
