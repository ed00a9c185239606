"""Chooses the endpoints to probe: one for each adapter, medium and model that a plan touches.

A map represents its paths, so that no I/O bypasses the multipath layer. A chosen subject carries
the values in force on it and its adapters: a result is only valid with them (D1-3).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import names
from hbatune.facts.model import (
    Adapter,
    Attribute,
    Endpoint,
    Kind,
    Machine,
    Medium,
    Missing,
    Protocol,
    Reason,
    Storage,
    TargetKind,
)
from hbatune.facts.names import natural_key
from hbatune.plan.rows import Outcome, Row
from hbatune.probe.result import InForce, Skip, Skipped, Subject
from hbatune.settings.table import SETTINGS, Value

SHARED = frozenset({Protocol.FC, Protocol.ISCSI})  # other hosts use the same array ports
ELSEWHERE = frozenset({Storage.ARRAY, Storage.FABRIC})
RUNNING = frozenset({"running", "live"})  # SCSI's and NVMe's words for a usable device
_Group = tuple[str | None, Medium, str]


class Selection(Struct, frozen=True):
    """The subjects to probe, and one member with a reason for each group that has none."""

    subjects: tuple[Subject, ...]
    skipped: tuple[Skipped, ...]


def choose_representatives(
    machine: Machine,
    targets: Collection[str],
    *,
    shared: bool = False,
    busy: Collection[str] = (),
) -> Selection:
    """Choose one endpoint for each (adapter, medium, model) among ``targets``.

    ``targets`` are kernel names of endpoints, or of adapters for all of their endpoints. Those in
    ``busy`` and the mounted and held ones are taken where a group has no others; fc and iscsi
    only if ``shared``.
    """
    groups: dict[_Group, list[Subject]] = {}
    for subject in subjects_of(machine, targets):
        for group in _groups(subject):
            groups.setdefault(group, []).append(subject)
    chosen: dict[str, Subject] = {}
    skipped: dict[str, Skipped] = {}
    for members in groups.values():
        members.sort(key=lambda subject: _preference(subject.endpoint, busy))
        refusals = [probe_refusal(subject, shared=shared) for subject in members]
        usable = [m for m, refused in zip(members, refusals, strict=True) if refused is None]
        if usable:
            chosen[usable[0].target] = usable[0]
        elif refusals[0]:
            # Only the preferred member's reason: those of the others would mostly repeat it.
            skipped[members[0].target] = refusals[0]
    return Selection(
        tuple(chosen[target] for target in sorted(chosen, key=natural_key)),
        tuple(skipped[target] for target in sorted(skipped, key=natural_key)),
    )


def prefer(selection: Selection, subject: Subject) -> Selection:
    """Return the selection with this subject in place of all that only represent its like."""
    own = _groups(subject)
    others = [each for each in selection.subjects if not set(_groups(each)) <= set(own)]
    chosen = sorted((subject, *others), key=lambda each: natural_key(each.target))
    return replace(selection, subjects=tuple(chosen))


def one_for_each_adapter(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    """Return the subjects with one for each adapter first, to measure where time is short."""
    seen: set[str] = set()
    first: list[Subject] = []
    for subject in subjects:
        serving = {adapter.target for adapter in subject.adapters} or {subject.target}
        if not serving <= seen:
            first.append(subject)
            seen |= serving
    return (*first, *(each for each in subjects if each not in first))


def medium_of(subject: Subject) -> Medium:
    """Return the medium; a map has that of its paths."""
    known = (path.medium for path in (subject.endpoint, *subject.paths))
    return next((each for each in known if each is not Medium.UNKNOWN), Medium.UNKNOWN)


def subjects_of(machine: Machine, targets: Collection[str]) -> Iterator[Subject]:
    """Yield the subjects of ``targets``, each map once and in place of its paths."""
    endpoints = {endpoint.target: endpoint for endpoint in machine.endpoints}
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    seen: set[str] = set()
    for endpoint in machine.endpoints:
        if endpoint.target not in targets and endpoint.adapter not in targets:
            continue
        top = endpoints.get(endpoint.map or endpoint.target, endpoint)
        if top.target not in seen:
            seen.add(top.target)
            yield _subject(top, endpoints, adapters, machine)


def probe_refusal(subject: Subject, *, shared: bool) -> Skipped | None:
    """Return why the subject must not be probed, or None if it may be."""
    endpoint = subject.endpoint
    protocols = _protocols(subject)
    # An array that is attached by SAS, and NVMe over fabrics, are shared just as well.
    elsewhere = {one.storage for one in (endpoint, *subject.paths)} & ELSEWHERE
    kept_off = [*sorted(protocols & SHARED), *sorted(elsewhere)]
    unread = [f for f in (endpoint.state, endpoint.zoned, endpoint.size) if _unread(f)]
    if kept_off and not shared:
        return Skipped(endpoint.target, Skip.NOT_ASKED, detail=kept_off[0])
    if Protocol.UNKNOWN in protocols:
        return Skipped(endpoint.target, Skip.UNCLASSIFIED)
    if unread:
        return Skipped(endpoint.target, Skip.UNREADABLE)
    if isinstance(endpoint.state, str) and endpoint.state not in RUNNING:
        return Skipped(endpoint.target, Skip.NOT_RUNNING, detail=endpoint.state)
    if endpoint.zoned is True:
        return Skipped(endpoint.target, Skip.ZONED)
    if isinstance(endpoint.size, Missing) or endpoint.size <= 0:
        return Skipped(endpoint.target, Skip.NO_SIZE)
    if endpoint.device_node is None or endpoint.kind is Kind.PATH:
        return Skipped(endpoint.target, Skip.NO_NODE)
    return None


def settings_in_force(
    machine: Machine, endpoints: Sequence[Endpoint], adapters: Collection[str]
) -> tuple[InForce, ...]:
    """Return the settings that could be read of these endpoints and their adapters."""
    return (
        *(
            value
            for one in endpoints
            for value in _values(one.target, TargetKind.ENDPOINT, one.attributes)
        ),
        *(
            value
            for control in machine.controls
            if control.adapter in adapters
            for value in _values(control.target, control.kind, control.attributes)
        ),
    )


def with_written(before: Iterable[InForce], rows: Iterable[Row]) -> tuple[InForce, ...]:
    """Return the values, with those that an apply has written replaced."""
    new = {
        (row.target, row.setting): row.value
        for row in rows
        if row.outcome is Outcome.WRITTEN and row.value is not None
    }
    return tuple(
        InForce(each.target, each.setting, new.get((each.target, each.setting), each.value))
        for each in before
    )


def with_value(
    before: Iterable[InForce], target: str, setting: str, value: Value
) -> tuple[InForce, ...]:
    """Return the values with that of one setting replaced."""
    return tuple(
        InForce(target, setting, value)
        if (each.target, each.setting) == (target, setting)
        else each
        for each in before
    )


def _subject(
    endpoint: Endpoint,
    endpoints: dict[str, Endpoint],
    adapters: dict[str, Adapter],
    machine: Machine,
) -> Subject:
    paths = tuple(endpoints[path] for path in endpoint.paths if path in endpoints)
    serving = _unique(one.adapter for one in (endpoint, *paths) if one.adapter is not None)
    known = tuple(adapters[name] for name in serving if name in adapters)
    interrupted = _serving(machine, serving)
    return Subject(
        endpoint,
        paths,
        known,
        _away(machine, interrupted),
        interrupted or (),
        settings_in_force(machine, (endpoint, *paths), serving),
    )


def _serving(machine: Machine, adapters: Collection[str]) -> tuple[int, ...] | None:
    """Return the CPUs that serve interrupts of the adapters, None where that is not known."""
    found: set[int] = set()
    for vector in machine.vectors:
        if vector.adapter in adapters:
            try:
                found.update(names.parse_cpus(vector.effective or ""))
            except ValueError:
                return None
    return tuple(sorted(found))


def _away(machine: Machine, serving: Collection[int] | None) -> tuple[int, ...]:
    """Return the online CPUs that are neither ``serving`` nor isolated, for the load (D0-13).

    They are the isolated ones instead, where the site gives those to probes. Empty where the CPUs
    that serve are unknown.
    """
    if serving is None:
        return ()
    given = tuple(cpu for cpu in machine.processors.probing if cpu not in serving)
    if given:
        return given
    # Isolated CPUs were set aside by an administrator; a probe must not run on them.
    taken = {*serving, *machine.processors.isolated, *machine.processors.nohz_full}
    return tuple(cpu for cpu in machine.processors.online if cpu not in taken)


def _groups(subject: Subject) -> list[_Group]:
    """Return the groups that the subject can represent: a map has one for each adapter below."""
    every = (subject.endpoint, *subject.paths)
    medium = medium_of(subject)
    model = next((one.model for one in every if one.model), "")
    serving = _unique(one.adapter for one in every if one.adapter is not None)
    return [(adapter, medium, model) for adapter in serving] or [(None, medium, model)]


def _protocols(subject: Subject) -> set[Protocol]:
    """Return the protocols of the endpoint; a map without one has those of its paths."""
    own = subject.endpoint.protocol
    below = {path.protocol for path in subject.paths}
    return below if below and own is Protocol.UNKNOWN else {own, *(below & SHARED)}


def _preference(
    endpoint: Endpoint, busy: Collection[str]
) -> tuple[bool, bool, bool, list[tuple[int, int, str]]]:
    # The name comes last, so that the choice is the same in each run.
    return (endpoint.target in busy, endpoint.mounted, endpoint.held, natural_key(endpoint.target))


def _unread(fact: object) -> bool:
    return isinstance(fact, Missing) and fact.reason is not Reason.ABSENT


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _values(
    target: str, kind: TargetKind, attributes: Mapping[str, Attribute | Missing]
) -> Iterator[InForce]:
    for setting in SETTINGS.values():
        found = attributes.get(setting.path)
        if setting.on is kind and isinstance(found, Attribute):
            try:
                yield InForce(target, setting.name, setting.parse(found.text))
            except ValueError:
                continue  # shown as unreadable elsewhere
