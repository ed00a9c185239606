"""The difference: facts and a profile in, a plan out. Pure; nothing here touches a machine.

``diff``, ``apply`` and ``explain`` are readings of the same rows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.model import Endpoint, Machine, Missing, Protocol, Reason
from hbatune.policy.budget import decides
from hbatune.policy.match import Matcher
from hbatune.policy.model import AtLeast, AtMost, Effect, Exactly, Leave, Profile, Rule
from hbatune.settings.limits import Fixed, resolve
from hbatune.settings.table import SETTINGS, Setting, Value
from hbatune.siblings import Decision, Way, level

ABSENT = Missing(Reason.ABSENT)

REQUEST_BYTES = 640
"""Memory of one request with a scheduler, in bytes.

Measured on 6.1: 2048 requests cost 1.3 MiB a LUN with one hardware queue, 2.4 MiB with two; a
driver with a large command of its own takes more.
"""


class State(StrEnum):
    """How a row stands before anything is done; only ``drift`` is drift."""

    OK = "ok"
    DRIFT = "drift"
    FIXED = "fixed"  # this kernel or driver lets nobody set it
    PENDING = "pending"  # rendered; takes effect when the module is loaded next
    ABSENT = "absent"
    UNREADABLE = "unreadable"
    EXCLUDED = "excluded"


class Outcome(StrEnum):
    """What came of a row that was applied or rolled back."""

    KEPT = "kept"  # nothing to do
    WRITTEN = "written"  # and read back
    REFUSED = "refused"  # by the kernel, with an errno; ECANCELED where it was not tried
    IGNORED = "ignored"  # the write succeeded, the value is not what was asked for
    CONFLICT = "conflict"  # somebody changed it since the plan
    STUCK = "stuck"  # the deadline passed: in doubt until the worker is gone
    VANISHED = "vanished"
    REVERTED = "reverted"


class Row(Struct, frozen=True):
    """One setting on one target: what it is, what it should be, what it will be, and why.

    ``wanted`` is what the rule says and ``value`` what hbatune sets; where they differ, ``limit``
    says why. ``found`` is what was read back, where that is not ``value``.
    """

    target: str
    id: str
    adapter: str | None
    setting: str
    current: Value | None
    wanted: Value
    value: Value | None
    state: State
    limit: str | None
    why: str
    source: str
    rule: str
    outcome: Outcome | None = None
    errno: int | None = None
    found: Value | None = None


class Plan(Struct, frozen=True):
    """All rows of a profile on a machine, in the order in which they are written.

    ``memory`` is what the planned nr_requests cost beyond today's, in bytes.
    """

    profile: str
    rows: tuple[Row, ...]
    memory: int

    @property
    def drift(self) -> tuple[Row, ...]:
        """The rows that are to be written."""
        return tuple(row for row in self.rows if row.state is State.DRIFT)


def make(
    machine: Machine,
    profile: Profile,
    *,
    excluded: Mapping[str, str] | None = None,
    site: Mapping[str, Rule] | None = None,
    only: Collection[str] | None = None,
) -> Plan:
    """Plan the profile on the machine.

    ``excluded`` says, by endpoint id, why an endpoint is to be left alone. ``site`` are the rules
    that follow from the site's own facts (``budget.site_rules``), by endpoint id. ``only`` has
    the ids that are planned, None for all; the others are known of, and left alone.
    """
    matcher = Matcher(profile)
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    reasons = excluded or {}
    effects: dict[tuple[str, str], Effect] = {}
    planned: dict[str, list[Row]] = {}
    for endpoint in machine.endpoints:
        if only is not None and endpoint.id not in only:
            continue
        adapter = adapters.get(endpoint.adapter or "")
        rules = _with_site(matcher.winners(endpoint, adapter), (site or {}).get(endpoint.id))
        reason = reasons.get(endpoint.id) or _hands_off(endpoint)
        planned[endpoint.id] = list(_rows(endpoint, rules, reason))
        effects.update({(endpoint.id, name): rule.effect for name, rule in rules.items()})
    planned |= _alike(machine.endpoints, planned, effects)
    rows = tuple(row for found in planned.values() for row in found)
    memory = sum(_memory(each, planned.get(each.id, ())) for each in machine.endpoints)
    return Plan(profile.name, rows, memory)


def _alike(
    endpoints: Iterable[Endpoint],
    planned: Mapping[str, list[Row]],
    effects: Mapping[tuple[str, str], Effect],
) -> dict[str, list[Row]]:
    """Return the rows of paths, by endpoint id, such that no path differs from its siblings."""
    maps: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.map is not None:
            maps.setdefault(endpoint.map, []).append(endpoint)
    found: dict[str, list[Row]] = {}
    for paths in maps.values():
        rows = {path.id: {row.setting: row for row in planned.get(path.id, ())} for path in paths}
        for name in dict.fromkeys(
            row.setting for path in paths for row in planned.get(path.id, ())
        ):
            ways = [_way(path, name, rows[path.id], effects) for path in paths]
            decisions = level(ways)
            for path in paths:
                if (decision := decisions.get(path.target)) is not None:
                    rows[path.id][name] = _decided(rows[path.id][name], decision)
                    if name == "scheduler":
                        rows[path.id] |= _judged_again(path, rows[path.id], effects)
        found |= {id: list(each.values()) for id, each in rows.items() if each}
    return found


def _way(
    path: Endpoint,
    name: str,
    rows: Mapping[str, Row],
    effects: Mapping[tuple[str, str], Effect],
) -> Way:
    """Return a path's part in one setting; one that is not to be set is held at what it is."""
    setting, row, effect = SETTINGS[name], rows.get(name), effects.get((path.id, name))
    now = _current(path, setting)
    current = None if isinstance(now, Missing) else now
    settable = row is not None and row.state in (State.OK, State.DRIFT)
    value = row.value if settable and row is not None else None
    scheduler = rows["scheduler"].value if "scheduler" in rows else None

    def takes(goal: Value) -> Value:
        if current is None:
            return goal
        if value is not None and not isinstance(effect, AtLeast) and _lowers(value, goal):
            return value  # what the rule says is the most there is
        legal = resolve(name, goal, current, path, scheduler=scheduler)
        return current if isinstance(legal, Fixed) else legal.value

    return Way(path.target, current, value, takes, lowers=not isinstance(effect, AtLeast))


def _judged_again(
    path: Endpoint, rows: Mapping[str, Row], effects: Mapping[tuple[str, str], Effect]
) -> dict[str, Row]:
    """Return the rows that depend on the scheduler, for the one that the path now gets."""
    scheduler = rows["scheduler"].value
    found = {}
    for name in SETTINGS["scheduler"].resets:
        row, effect = rows.get(name), effects.get((path.id, name))
        if row is None or effect is None or isinstance(effect, Leave):
            continue
        current = _current(path, SETTINGS[name])
        verdict = _judge(
            path, SETTINGS[name], effect, current, ABSENT if scheduler is None else scheduler
        )
        found[name] = replace(row, state=verdict.state, value=verdict.value, limit=verdict.limit)
    return found


def _decided(row: Row, decision: Decision) -> Row:
    state = State.OK if decision.value == row.current else State.DRIFT
    return replace(row, value=decision.value, limit=decision.limit, state=state)


def _with_site(rules: Mapping[str, Rule], own: Rule | None) -> Mapping[str, Rule]:
    if own is None or not decides(own, rules.get(own.setting)):
        return rules
    return {**rules, own.setting: own}


def _hands_off(endpoint: Endpoint) -> str | None:
    """Say why an endpoint is never touched, whatever the rules say; None where it may be."""
    if endpoint.protocol is Protocol.UNKNOWN:
        return "not known what it is"
    if endpoint.zoned is True:
        return "zoned"
    return None


def _rows(endpoint: Endpoint, rules: Mapping[str, Rule], reason: str | None) -> Iterator[Row]:
    scheduler = _current(endpoint, SETTINGS["scheduler"])
    for name in sorted(rules, key=lambda name: SETTINGS[name].order):
        setting, rule = SETTINGS[name], rules[name]
        if isinstance(rule.effect, Leave):
            continue
        current = _current(endpoint, setting)
        verdict = (
            _Verdict(State.EXCLUDED, limit=reason)
            if reason is not None
            else _judge(endpoint, setting, rule.effect, current, scheduler)
        )
        if setting.name == "scheduler" and verdict.value is not None:
            scheduler = verdict.value
        yield Row(
            target=endpoint.target,
            id=endpoint.id,
            adapter=endpoint.adapter,
            setting=setting.name,
            current=None if isinstance(current, Missing) else current,
            wanted=rule.effect.value,
            value=verdict.value,
            state=verdict.state,
            limit=verdict.limit,
            why=rule.because,
            source=rule.source,
            rule=rule.name,
        )


class _Verdict(NamedTuple):
    state: State
    value: Value | None = None
    limit: str | None = None


def _judge(
    endpoint: Endpoint,
    setting: Setting,
    effect: Exactly | AtLeast | AtMost,
    current: Value | Missing,
    scheduler: Value | Missing,
) -> _Verdict:
    if isinstance(current, Missing):
        state = State.ABSENT if current.reason is Reason.ABSENT else State.UNREADABLE
        return _Verdict(state, limit=_said(current))
    planned = None if isinstance(scheduler, Missing) else scheduler
    legal = resolve(setting.name, effect.value, current, endpoint, scheduler=planned)
    if isinstance(legal, Fixed):
        return _Verdict(State.FIXED, limit=legal.limit)
    if isinstance(effect, AtLeast) and _lowers(legal.value, current):
        return _Verdict(State.OK, current, "raised only, never lowered")
    if isinstance(effect, AtMost) and _lowers(current, legal.value):
        return _Verdict(State.OK, current, "within what the array takes; nobody knows of more")
    state = State.OK if legal.value == current else State.DRIFT
    return _Verdict(state, legal.value, legal.limit)


def _lowers(value: Value, current: Value) -> bool:
    return isinstance(value, int) and isinstance(current, int) and value < current


def _current(endpoint: Endpoint, setting: Setting) -> Value | Missing:
    """Return the typed value that the endpoint has now."""
    found = endpoint.attributes.get(setting.path, Missing(Reason.ABSENT))
    if isinstance(found, Missing):
        return found
    try:
        return setting.parse(found.text)
    except ValueError:
        return Missing(Reason.UNPARSABLE, text=found.text)


def _said(missing: Missing) -> str | None:
    if missing.reason is Reason.UNPARSABLE:
        return f"makes no sense: {missing.text!r}"
    return missing.text


def _memory(endpoint: Endpoint, rows: Collection[Row]) -> int:
    """Return what the planned requests of one endpoint cost beyond today's, in bytes.

    Requests are allocated for each hardware queue where a scheduler is on; with ``none`` the
    adapter's own tag set, which exists already, serves (block/blk-mq-sched.c: blk_mq_init_sched).
    """
    requests = next((row for row in rows if row.setting == "nr_requests"), None)
    if requests is None or requests.state is not State.DRIFT:
        return 0
    assert isinstance(requests.value, int)
    assert isinstance(requests.current, int)
    scheduler = next((row for row in rows if row.setting == "scheduler"), None)
    before = scheduler.current if scheduler else None
    after = scheduler.value if scheduler else before
    today = 0 if before == "none" else requests.current
    planned = 0 if after == "none" else requests.value
    queues = endpoint.hw_queues if isinstance(endpoint.hw_queues, int) else 1
    return max(0, planned - today) * queues * REQUEST_BYTES
