"""Choose the endpoints to probe: one for each adapter, medium and model that a plan changes.

A map represents its paths, so no I/O bypasses the multipath layer. A chosen subject contains the
current values of its settings and its adapters': a result is only valid with them (D1-3).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import model, names
from hbatune.facts.model import Endpoint, Kind, Machine, Medium, Missing, Protocol, Storage
from hbatune.facts.names import NaturalKey, natural_key
from hbatune.plan.rows import Outcome, Row
from hbatune.probe.result import InForce, Skip, Skipped, Subject
from hbatune.settings.table import SETTINGS, Value

SHARED_PROTOCOLS = frozenset({Protocol.FC, Protocol.ISCSI})  # other hosts use the same array ports
REMOTE_STORAGE = frozenset({Storage.ARRAY, Storage.FABRIC})
RUNNING_STATES = frozenset({"running", "live"})  # a usable device's state in SCSI and NVMe
_Group = tuple[str | None, Medium, str]


class Selection(Struct, frozen=True):
    """The subjects to probe, and for each group without one a member with its reason."""

    subjects: tuple[Subject, ...]
    skipped: tuple[Skipped, ...]


def choose_representatives(
    machine: Machine, targets: Collection[str], *, shared: bool = False, busy: Collection[str] = ()
) -> Selection:
    """Choose one endpoint for each (adapter, medium, model) among ``targets``.

    ``targets`` are kernel names of endpoints, or of adapters for all their endpoints. Endpoints
    that are ``busy``, mounted or in use are a group's last choice. fc and iscsi need ``shared``.
    """
    groups: dict[_Group, list[Subject]] = {}
    for subject in list_subjects(machine, targets):
        for group in _list_groups(subject):
            groups.setdefault(group, []).append(subject)
    chosen: dict[str, Subject] = {}
    skipped: dict[str, Skipped] = {}
    for members in groups.values():
        members.sort(key=lambda member: _rank_endpoint(member.endpoint, busy))
        usable = [m for m in members if find_probe_refusal(m, shared=shared) is None]
        if usable:
            chosen[usable[0].target] = usable[0]
        elif refusal := find_probe_refusal(members[0], shared=shared):
            # Only the preferred member's reason: the other reasons would mostly repeat it.
            skipped[members[0].target] = refusal
    return Selection(
        tuple(sorted(chosen.values(), key=_get_order)),
        tuple(sorted(skipped.values(), key=_get_order)),
    )


def _get_order(item: Subject | Skipped) -> NaturalKey:
    return natural_key(item.target)


def prefer_subject(selection: Selection, subject: Subject) -> Selection:
    """Return the selection with this subject instead of all that only represent its groups."""
    groups = {*_list_groups(subject)}
    retained = [m for m in selection.subjects if not set(_list_groups(m)) <= groups]
    return replace(selection, subjects=tuple(sorted((subject, *retained), key=_get_order)))


def order_by_adapter(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    """Return the subjects in order of measurement: first one for each adapter."""
    covered: set[str] = set()
    first, others = [], []
    for subject in subjects:
        serving = {adapter.target for adapter in subject.adapters} or {subject.target}
        if serving <= covered:
            others.append(subject)
        else:
            first.append(subject)
            covered |= serving
    return (*first, *others)


def list_subjects(machine: Machine, targets: Collection[str]) -> Iterator[Subject]:
    """Yield the subjects of ``targets``, each map once and instead of its paths."""
    endpoints = machine.endpoints_by_target
    adapters = machine.adapters_by_target
    visited: set[str] = set()
    for endpoint in machine.endpoints:
        if endpoint.target not in targets and endpoint.adapter not in targets:
            continue
        top = endpoints.get(endpoint.map or endpoint.target, endpoint)
        if top.target not in visited:
            visited.add(top.target)
            paths = tuple(endpoints[path] for path in top.paths if path in endpoints)
            serving = _list_adapters((top, *paths))
            served = tuple(adapters[name] for name in serving if name in adapters)
            interrupted = _find_serving_cpus(machine, serving)
            cpus = _choose_probe_cpus(machine, interrupted)
            settings = list_current_settings(machine, (top, *paths), serving)
            yield Subject(top, paths, served, cpus, interrupted or (), settings)


def find_probe_refusal(subject: Subject, *, shared: bool) -> Skipped | None:
    """Return why the subject must not be probed, or None if it may be."""
    endpoint = subject.endpoint
    protocols = {path.protocol for path in subject.paths}
    if not protocols or endpoint.protocol is not Protocol.UNKNOWN:  # a map has its paths' protocol
        protocols = {endpoint.protocol, *(protocols & SHARED_PROTOCOLS)}
    # An array that is attached by SAS, and NVMe over fabrics, are shared too.
    elsewhere = {member.storage for member in subject.members} & REMOTE_STORAGE
    shared_by = [*sorted(protocols & SHARED_PROTOCOLS), *sorted(elsewhere)]
    unread = False
    for fact in (endpoint.state, endpoint.zoned, endpoint.size):
        unread |= isinstance(fact, Missing) and fact.reason is not model.Reason.ABSENT
    if shared_by and not shared:
        return Skipped(endpoint.target, Skip.NOT_ASKED, detail=shared_by[0])
    if Protocol.UNKNOWN in protocols:
        return Skipped(endpoint.target, Skip.UNCLASSIFIED)
    if unread:
        return Skipped(endpoint.target, Skip.UNREADABLE)
    if isinstance(endpoint.state, str) and endpoint.state not in RUNNING_STATES:
        return Skipped(endpoint.target, Skip.NOT_RUNNING, detail=endpoint.state)
    if endpoint.zoned is True:
        return Skipped(endpoint.target, Skip.ZONED)
    if isinstance(endpoint.size, Missing) or endpoint.size <= 0:
        return Skipped(endpoint.target, Skip.NO_SIZE)
    if endpoint.device_node is None or endpoint.kind is Kind.PATH:
        return Skipped(endpoint.target, Skip.NO_NODE)
    return None


def list_current_settings(
    machine: Machine, endpoints: Sequence[Endpoint], adapters: Collection[str]
) -> tuple[InForce, ...]:
    """Return the settings of these endpoints and their adapters that could be read."""
    devices: list[Endpoint | model.Control] = [*endpoints]
    devices += [control for control in machine.controls if control.adapter in adapters]
    values = []
    for device in devices:
        kind = model.TargetKind.ENDPOINT if isinstance(device, Endpoint) else device.kind
        for setting in SETTINGS.values():
            if setting.on is kind:
                value = setting.read(device.attributes)
                if not isinstance(value, Missing):  # it is shown as unreadable elsewhere
                    values.append(InForce(device.target, setting.name, value))
    return tuple(values)


def merge_written(before: Iterable[InForce], rows: Iterable[Row]) -> tuple[InForce, ...]:
    """Return the values, updated with the values that an apply has written."""
    new = {}
    for row in rows:
        if row.outcome is Outcome.WRITTEN and row.value is not None:
            new[row.target, row.setting] = row.value
    return replace_values(before, new)


def replace_values(
    before: Iterable[InForce], new: Mapping[tuple[str, str], Value]
) -> tuple[InForce, ...]:
    """Return the values with the ``new`` ones, which are by target and setting."""
    return tuple(
        replace(entry, value=new.get((entry.target, entry.setting), entry.value))
        for entry in before
    )


def _find_serving_cpus(machine: Machine, adapters: Collection[str]) -> tuple[int, ...] | None:
    cpus: set[int] = set()
    for vector in machine.vectors:
        if vector.adapter in adapters:
            served = names.find_cpus(vector.effective or "")
            if served is None:
                return None
            cpus.update(served)
    return tuple(sorted(cpus))


def _choose_probe_cpus(machine: Machine, serving: Collection[int] | None) -> tuple[int, ...]:
    """Return the online CPUs that are neither ``serving`` nor isolated, for the load (D0-13).

    Return isolated CPUs instead if the configuration gives them; none if ``serving`` is unknown.
    """
    if serving is None:
        return ()
    reserved = tuple(cpu for cpu in machine.processors.probing if cpu not in serving)
    if reserved:
        return reserved
    # Isolated CPUs were set aside by an administrator; a probe must not run on them.
    processors = machine.processors
    allowed = set(processors.online).difference(serving, processors.isolated, processors.nohz_full)
    for restriction in (model.CpuRestriction.PARTITION, model.CpuRestriction.TUNED):
        allowed.intersection_update(processors.restrictions.get(restriction, allowed))
    return tuple(sorted(allowed))


def _list_groups(subject: Subject) -> list[_Group]:
    """Return the groups that the subject can represent: for a map, one for each adapter below."""
    # A map has the medium and the model of its paths.
    media = (member.medium for member in subject.members if member.medium is not Medium.UNKNOWN)
    medium = next(media, Medium.UNKNOWN)
    model_name = next((member.model for member in subject.members if member.model), "")
    serving = _list_adapters(subject.members)
    return [(adapter, medium, model_name) for adapter in serving] or [(None, medium, model_name)]


def _rank_endpoint(endpoint: Endpoint, busy: Collection[str]) -> tuple[object, ...]:
    # The name comes last, so the choice is the same in each run.
    in_use = (endpoint.target in busy, bool(endpoint.mounts), bool(endpoint.holders))
    return *in_use, natural_key(endpoint.target)


def _list_adapters(endpoints: Iterable[Endpoint]) -> list[str]:
    return list(dict.fromkeys(endpoint.adapter for endpoint in endpoints if endpoint.adapter))
