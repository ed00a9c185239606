"""Make the plan from facts and a profile. Pure.

What an administrator has decided before hbatune came: values below the driver's own. Pure.

A queue_depth or nr_requests that nobody has touched is the default of driver or kernel, where that
is known. One that is lower was lowered: by hbatune, which its journal says; by the kernel, after a
full queue; or by an administrator or another tool, whose reasons are not known here (an array, a
drive that loses commands, a neighbour), and whose word stands until somebody names the target or
writes a rule with ``value``.

Makes the plan from facts and a profile. Pure; nothing here touches a machine.

``diff``, ``apply`` and ``explain`` are readings of the same rows.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.attributes import ABSENT, errors
from hbatune.facts.families import GENERIC, family_named
from hbatune.facts.family import Mechanism, Parameters
from hbatune.facts.model import (
    Attribute,
    Endpoint,
    Machine,
    Missing,
    Protocol,
    Reason,
    Role,
    TargetKind,
)
from hbatune.facts.targets import Target, target_of
from hbatune.plan.joint_limits import Decision, PathSetting, level, request_memory
from hbatune.plan.rows import BASELINE, Plan, Reverted, Row, State, left_alone, unidentified
from hbatune.policy.budget import decides
from hbatune.policy.match import Matcher, Traits, adapter_traits, traits
from hbatune.policy.profile import AtLeast, AtMost, Exactly, Leave, Match, Origin, Profile, Rule
from hbatune.settings.limits import scheduler_of, spread
from hbatune.settings.resolve import resolve_control, resolve_vector, resolve_with
from hbatune.settings.setting import Fixed, Legal, Room
from hbatune.settings.table import (
    NR_REQUESTS,
    QUEUE_DEPTH,
    SCHEDULER,
    SETTINGS,
    Setting,
    Value,
    disturbed,
)

LOWERED = "below the driver's own {}: an administrator's decision, until `apply {}` names it"
NCQ_OFF = "native command queuing is off: an administrator's decision, until `apply {}` names it"
ONE_COMMAND = "one command at a time: the drive queues nothing, or somebody has switched it off"

QUEUE_FULL_THRESHOLD = 11
"""TASK SET FULL answers after which the kernel lowers a depth (drivers/scsi/scsi.c:
scsi_track_queue_full): more than ten. Each counts as an error."""

_RQ = 128  # include/linux/blkdev.h: BLKDEV_DEFAULT_RQ


def decided(endpoint: Endpoint, parameters: Parameters) -> dict[str, str]:
    """Return the settings of an endpoint that were lowered, each with why it stays.

    ``parameters`` are those of its driver's module.
    """
    defaults = {QUEUE_DEPTH: _depth(endpoint, parameters), NR_REQUESTS: _requests(endpoint)}
    found = {
        name: LOWERED.format(default, endpoint.target)
        for name, default in defaults.items()
        if default is not None and (now := _number(endpoint, name)) is not None and now < default
    }
    # Whatever driver serves it: a depth of 1 is how one switches queuing off, for every command.
    if endpoint.protocol is Protocol.SATA and _number(endpoint, QUEUE_DEPTH) == 1:
        able = endpoint.ncq_depth is not None and endpoint.ncq_depth > 1
        found[QUEUE_DEPTH] = NCQ_OFF.format(endpoint.target) if able else ONE_COMMAND
    return found


def overrides_rule(
    rule: Rule, name: str, *, scheduler: Value | Missing, planned: Value | Missing
) -> bool:
    """Whether a lowered value stands against a rule.

    A site's own rule with ``value`` outweighs it. A switch of the scheduler throws nr_requests
    away.
    """
    if rule.origin is Origin.SITE and isinstance(rule.effect, Exactly):
        return False
    return name != NR_REQUESTS or scheduler == planned


def _depth(endpoint: Endpoint, parameters: Parameters) -> int | None:
    family = family_named(endpoint.family)
    if family.depth_ramps and (errors(endpoint.attributes) or 0) >= QUEUE_FULL_THRESHOLD:
        return None  # the kernel may have lowered it
    return family.depth_default(endpoint, parameters)


def _requests(endpoint: Endpoint) -> int | None:
    """Return the number that the kernel starts with where there is a scheduler.

    block/blk-mq-sched.c: blk_mq_init_sched. Without one a number below the tag set is an accident,
    since it holds for the whole adapter.
    """
    tags = endpoint.tags
    if scheduler_of(endpoint.attributes) in (None, "none") or not isinstance(tags, int):
        return None
    return 2 * min(tags, _RQ)


def _number(endpoint: Endpoint, name: str) -> int | None:
    found = endpoint.attributes.get(SETTINGS[name].path)
    text = found.text if isinstance(found, Attribute) else ""
    return int(text) if text.isdecimal() else None


T = TypeVar("T")

Key = tuple[str, str]
"""A target's id and a setting."""

Resolve = Callable[[str, Value, Value, Value | None], Legal | Fixed]
"""Takes setting, wanted, current and the scheduler that is planned; returns the legal value."""


class SetBefore(Struct, frozen=True):
    """A setting changed by an earlier run: the value ``before``, and whether a value is hbatune's.

    A value that is not ``ours`` was set by an administrator or another tool since. An ``effect``
    was not set by itself: a write to another setting has changed it.
    """

    before: Value
    ours: Callable[[Value], bool]
    effect: bool = False


def make(
    machine: Machine,
    profile: Profile,
    *,
    excluded: Mapping[str, str] | None = None,
    site: Mapping[str, Rule] | None = None,
    only: Collection[str] | None = None,
    reverted: Mapping[Reverted, str] | None = None,
    disrupt: bool = False,
    memory_share: float = 1.0,
    elsewhere: int = 0,
    set_before: Mapping[Key, SetBefore] | None = None,
    untouched: Callable[[str, str], bool] = lambda id, setting: False,
    touched: Callable[[str, str], bool] = lambda id, setting: False,
    named: bool = False,
    matcher: Matcher | None = None,
) -> Plan:
    """Plan the profile on the machine, or on the targets with the ids in ``only``.

    ``excluded`` has, by id, the reason why a target is left alone. ``site`` are the rules that
    follow from the site's own facts (``budget.site_rules``), by id. ``disrupt`` allows settings
    that disrupt the I/O of a whole adapter. ``reverted`` has the reasons why values are not tried
    again. ``memory_share`` is the share of the machine's memory that requests may take, and
    ``elsewhere`` the bytes that those of disks outside of ``machine`` take of it.
    ``set_before`` has the changes of earlier runs: those that the profile does not want any more go
    back. ``untouched`` (of an id and a setting) says that a setting will not be written: settings
    that depend on it are planned for its current value. ``touched`` (of an id and a
    setting) says that hbatune has set or reset it in this boot, and ``named`` that a person named
    the targets: any other value below the driver's own is an administrator's decision, and stays.
    A ``matcher`` of the same profile remembers what earlier plans have matched.
    """
    planned: dict[str, list[Row]] = {}
    paths: dict[str, list[_Path]] = {}
    endpoints = {endpoint.id: endpoint for endpoint in machine.endpoints}
    matcher = matcher or Matcher(profile)
    history = _History(reverted or {}, set_before or {}, untouched)
    parameters = {module.name: module.parameters for module in machine.modules}
    for target, won, resolve in considered(machine, matcher.won):
        rules = _with_site(won, (site or {}).get(target.id))
        # Before ``only`` is looked at: a path that was not named still limits the others of its
        # map, which are to be like it.
        if target.map is not None:
            paths.setdefault(target.map, []).append(_Path(target, rules, resolve))
        if only is not None and target.id not in only:
            continue
        endpoint = endpoints.get(target.id)
        reason = (excluded or {}).get(target.id)
        seen = history
        if endpoint is not None and (why := unsafe(endpoint)) is not None:
            # An endpoint that must not be touched does not go back to its baseline, either.
            reason, seen = reason or why, replace(history, set_before={})
        if endpoint is not None and not named:
            lowered = decided(endpoint, parameters.get(endpoint.family, {}))
            own = {name: low for name, low in lowered.items() if not touched(endpoint.id, name)}
            seen = replace(seen, decided=own) if own else seen
        made = _rows(target, rules, reason, resolve, seen)
        if endpoint is not None and endpoint.unread is not None and reason == unsafe(endpoint):
            made = (replace(row, state=State.UNREADABLE) for row in made)
        planned[target.id] = list(made if disrupt else map(_undisrupted, made))
    for joined in paths.values():
        planned |= _alike(joined, planned)
    unsettable = (
        row for row in _unsettable_coalescing(machine, matcher) if only is None or row.id in only
    )
    rows = (*(row for found in planned.values() for row in found), *unsettable)
    allowed = int(machine.memory * memory_share)
    memory = request_memory(machine, planned, allowed, elsewhere)
    unknown = left_alone(machine.endpoints, excluded or ())
    left = tuple(disk for disk in unknown if only is None or disk.id in only)
    return Plan(profile.name, rows, memory, left)


class _Path(Struct, frozen=True):
    """A path of a map, the rules that decide its settings, and the function that clamps them."""

    target: Target
    rules: Mapping[str, Rule]
    resolve: Resolve


def _alike(paths: Collection[_Path], planned: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    """Return the rows of the paths of one map, by id, changed so that all paths are alike."""
    rows = {
        path.target.id: {row.setting: row for row in planned.get(path.target.id, ())}
        for path in paths
    }
    for name in list(dict.fromkeys(name for found in rows.values() for name in found)):
        if any(found[name].rule == BASELINE for found in rows.values() if name in found):
            continue  # each goes back to its own old value
        decisions = level([_path_setting(path, name, rows[path.target.id]) for path in paths])
        for path in paths:
            found = rows[path.target.id]
            if (decision := decisions.get(path.target.name)) is not None:
                found[name] = _decided(found[name], decision)
                if name == SCHEDULER:  # nr_requests was clamped for the scheduler of the rule
                    found |= _judged_again(path, found)
    return {id: list(found.values()) for id, found in rows.items() if found}


def _path_setting(path: _Path, name: str, rows: Mapping[str, Row]) -> PathSetting:
    """Return a path's part in one setting; a path that is not to be set keeps its value."""
    row, rule = rows.get(name), path.rules.get(name)
    now = current_value(path.target, SETTINGS[name])
    current = None if isinstance(now, Missing) else now
    value = row.value if row is not None and row.state in (State.OK, State.DRIFT) else None
    scheduler = rows[SCHEDULER].value if SCHEDULER in rows else None
    raised_only = rule is not None and isinstance(rule.effect, AtLeast)

    def clamp(goal: Value) -> Value:
        if current is None:
            return goal
        if value is not None and not raised_only and _lowers(value, goal):
            return value  # the rule's own value is the most that it lets the path have
        legal = path.resolve(name, goal, current, scheduler)
        return current if isinstance(legal, Fixed) else legal.value

    return PathSetting(path.target.name, current, value, clamp, lowers=not raised_only)


def _judged_again(path: _Path, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return the rows that a scheduler resets, judged for the one that the path now gets."""
    scheduler = rows[SCHEDULER].value
    found = {}
    for name in SETTINGS[SCHEDULER].resets:
        row, rule = rows.get(name), path.rules.get(name)
        if row is None or rule is None or isinstance(rule.effect, Leave):
            continue
        current = current_value(path.target, SETTINGS[name])
        planned = (
            current_value(path.target, SETTINGS[SCHEDULER]) if scheduler is None else scheduler
        )
        verdict = judge(SETTINGS[name], rule.effect, current, planned, path.resolve)
        found[name] = replace(row, state=verdict.state, value=verdict.value, limit=verdict.limit)
    return found


def _decided(row: Row, decision: Decision) -> Row:
    state = State.OK if decision.value == row.current else State.DRIFT
    return replace(row, value=decision.value, limit=decision.limit, state=state)


def _with_site(rules: Mapping[str, Rule], own: Rule | None) -> Mapping[str, Rule]:
    if own is None or not decides(own, rules.get(own.setting)):
        return rules
    return {**rules, own.setting: own}


def considered(
    machine: Machine, decide: Callable[[Traits], T]
) -> Iterator[tuple[Target, T, Resolve]]:
    """Yield every target, what ``decide`` makes of its traits, and the function that clamps."""
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    for endpoint in machine.endpoints:
        it = traits(endpoint, adapters.get(endpoint.adapter or ""))
        target = target_of(endpoint)
        yield target, decide(it), partial(resolve_with, endpoint, target.attributes)
    for control in machine.controls:
        found = decide(adapter_traits(adapters[control.adapter], control.kind))
        yield target_of(control), found, partial(resolve_control, control)
    # Over all vectors, so that the result does not depend on which targets were named.
    placed = spread(machine.vectors, machine.processors, machine.local_cpus)
    for vector in machine.vectors:
        if vector.role is Role.DATA:
            found = decide(adapter_traits(adapters[vector.adapter], TargetKind.VECTOR))
            local = machine.local_cpus.get(vector.adapter, ())
            room = Room(placed, machine.processors, local)
            yield target_of(vector), found, partial(resolve_vector, vector, room)


def unsafe(endpoint: Endpoint) -> str | None:
    """Return the reason why no rule may touch an endpoint, None if there is none."""
    if (reason := unidentified(endpoint)) is not None:
        return reason
    # The kernel accepts the scheduler ``none`` even on a host-managed disk, so hbatune has to know.
    if endpoint.zoned is True:
        return "zoned"
    return None


class _History(Struct, frozen=True):
    """The changes of earlier runs, which decide a row beside the rules: see ``make``."""

    reverted: Mapping[Reverted, str]
    set_before: Mapping[Key, SetBefore]
    untouched: Callable[[str, str], bool]
    decided: Mapping[str, str] = {}


def _rows(
    target: Target,
    rules: Mapping[str, Rule],
    reason: str | None,
    resolve: Resolve,
    history: _History,
) -> Iterator[Row]:
    """Yield a target's rows in the order of the writes.

    The scheduler comes first, since the settings behind it are judged under the planned one.
    """
    scheduler = before = current_value(target, SETTINGS[SCHEDULER])
    set_earlier = _set_earlier(target, rules, reason, history) if history.set_before else {}
    for name in _in_order((*rules, *set_earlier)):
        setting, rule, earlier = SETTINGS[name], rules.get(name), set_earlier.get(name)
        current = current_value(target, setting)
        effect = None if rule is None or isinstance(rule.effect, Leave) else rule.effect
        row = None
        if earlier is not None and (reason is not None or effect is None):
            row = _row_back(target, setting, earlier, current, scheduler, resolve)
        if row is None and rule is not None and effect is not None:
            verdict = (
                Judged(State.EXCLUDED, limit=reason)
                if reason is not None
                else judge(setting, effect, current, scheduler, resolve, earlier)
            )
            # The value counts, not the setting: a changed rule may try another one.
            if verdict.state is State.DRIFT and verdict.value is not None:
                tried = history.reverted.get(Reverted(target.id, name, verdict.value))
                verdict = verdict if tried is None else Judged(State.EXCLUDED, limit=tried)
            low = history.decided.get(name) if verdict.state is State.DRIFT else None
            if low is not None and overrides_rule(rule, name, scheduler=before, planned=scheduler):
                verdict = Judged(State.EXCLUDED, limit=low)
            row = _row(target, rule, effect.value, current, verdict)
        if row is None:
            continue
        # The settings that follow are clamped for the scheduler that will be in force then.
        if name == SCHEDULER and row.value is not None and not history.untouched(target.id, name):
            scheduler = row.value
        yield row


def _set_earlier(
    target: Target, rules: Mapping[str, Rule], reason: str | None, history: _History
) -> dict[str, SetBefore]:
    """Return the settings of a target that earlier runs have changed.

    An effect of a setting that is still wanted is left out: its next write would change it again.
    """
    wanted = [name for name, rule in rules.items() if not isinstance(rule.effect, Leave)]
    reset = frozenset[str]() if reason is not None else frozenset(disturbed(wanted))
    found = {name: history.set_before.get((target.id, name)) for name in SETTINGS}
    return {
        name: earlier
        for name, earlier in found.items()
        if earlier is not None and not (earlier.effect and name in reset)
    }


@lru_cache(maxsize=64)
def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return these settings, each once, in the order of the writes: thousands of disks share a few.

    A setting that another one resets comes after it.
    """
    return tuple(sorted(dict.fromkeys(names), key=lambda name: SETTINGS[name].order))


def _row(
    target: Target, rule: Rule, wanted: Value, current: Value | Missing, verdict: "Judged"
) -> Row:
    return Row(
        target=target.name,
        id=target.id,
        adapter=target.adapter,
        setting=rule.setting,
        current=None if isinstance(current, Missing) else current,
        wanted=wanted,
        value=verdict.value,
        state=verdict.state,
        limit=verdict.limit,
        why=rule.because,
        source=rule.source,
        rule=rule.name,
    )


def _row_back(
    target: Target,
    setting: Setting,
    earlier: SetBefore,
    current: Value | Missing,
    scheduler: Value | Missing,
    resolve: Resolve,
) -> Row | None:
    """Return the row that puts back a value which hbatune set and no rule asks for any more.

    None if the old value is in force already. A value that was changed after hbatune had set it
    stays; if the old one is not legal now, the nearest legal one is planned.
    """
    if current == earlier.before or (
        isinstance(current, Missing) and current.reason is Reason.ABSENT
    ):
        return None
    planned = None if isinstance(scheduler, Missing) else scheduler
    if isinstance(current, Missing):
        verdict = Judged(State.UNREADABLE, limit=_missing_text(current))
    elif not earlier.ours(current):
        verdict = Judged(State.EXCLUDED, limit="changed since hbatune had set it: it stays")
    elif (
        isinstance(legal := resolve(setting.name, earlier.before, current, planned), Fixed)
        or legal.value == current
    ):
        verdict = Judged(_unset(legal), limit=legal.limit)
    else:
        verdict = Judged(State.DRIFT, legal.value, legal.limit)
    rule = Rule(BASELINE, Match(), setting.name, Exactly(earlier.before), _BACK, "journal", "")
    return _row(target, rule, earlier.before, current, verdict)


_BACK = "set by hbatune earlier, and no rule in force asks for it: back to what was there"


def _undisrupted(row: Row) -> Row:
    """Exclude a row that would disrupt the I/O of the whole adapter."""
    disrupts = SETTINGS[row.setting].disrupts
    if not disrupts or row.state is not State.DRIFT:
        return row
    limit = f"{disrupts}: only with --allow-reset"
    return replace(row, state=State.EXCLUDED, value=None, limit=limit)


class Judged(Struct, frozen=True):
    """The state of a setting under a rule, the value to set, and what limits that."""

    state: State
    value: Value | None = None
    limit: str | None = None


def judge(
    setting: Setting,
    effect: Exactly | AtLeast | AtMost,
    current: Value | Missing,
    scheduler: Value | Missing,
    resolve: Resolve,
    earlier: SetBefore | None = None,
) -> Judged:
    """Judge a setting by the rule that decides it.

    "At least" and "at most" are compared with the value from before hbatune if the current one
    is hbatune's own: that another profile has raised a depth further is no reason to keep it.
    """
    if isinstance(current, Missing):
        state = State.ABSENT if current.reason is Reason.ABSENT else State.UNREADABLE
        return Judged(state, limit=_missing_text(current))
    planned = None if isinstance(scheduler, Missing) else scheduler
    legal = resolve(setting.name, effect.value, current, planned)
    if isinstance(legal, Fixed):
        return Judged(_unset(legal), limit=legal.limit)
    base = current if earlier is None or not earlier.ours(current) else earlier.before
    held = None
    if isinstance(effect, AtLeast) and _lowers(legal.value, base):
        held = "raised only, never lowered"
    elif isinstance(effect, AtMost) and _lowers(base, legal.value):
        held = "within what the array takes, as far as is known"
    if held is not None and base == current:
        return Judged(State.OK, current, held)
    if held is not None:
        # Back to the value from before hbatune, which the planned scheduler may not allow.
        legal = resolve(setting.name, base, current, planned)
        if isinstance(legal, Fixed):
            return Judged(_unset(legal), limit=legal.limit)
    state = State.OK if legal.value == current else State.DRIFT
    return Judged(state, legal.value, held or legal.limit)


def _unset(legal: Legal | Fixed) -> State:
    """Return the state of a setting that cannot be set, or whose limit could not be read."""
    return State.UNREADABLE if isinstance(legal, Fixed) and legal.unread else State.FIXED


def _lowers(value: Value, current: Value) -> bool:
    return isinstance(value, int) and isinstance(current, int) and value < current


def current_value(target: Target, setting: Setting) -> Value | Missing:
    """Return the typed current value of a target's setting."""
    found = target.attributes.get(setting.path, ABSENT)
    if isinstance(found, Missing):
        return found
    try:
        return setting.parse(found.text)
    except ValueError:
        return Missing(Reason.UNPARSABLE, text=found.text)


def _missing_text(missing: Missing) -> str | None:
    """Return the words for a value that could not be read."""
    if missing.reason is Reason.UNPARSABLE:
        return f"not a value of this setting: {missing.text!r}"
    return missing.text


def _unsettable_coalescing(machine: Machine, matcher: Matcher) -> Iterator[Row]:
    """Yield a row for each adapter whose coalescing cannot be set, although a rule wants it.

    Without it such adapters would be missing from the plan, which reads like "nothing to do". Of a
    driver that no family knows (IDE, card readers, InfiniBand) nobody can say whether it has one.
    """
    for adapter in machine.adapters:
        family = family_named(adapter.family)
        if family is GENERIC:
            continue
        levers = family.coalescing
        settable = any(lever.mechanism is not Mechanism.FIXED for lever in levers)
        rule = matcher.won(adapter_traits(adapter, TargetKind.CONTROLLER)).get("coalescing")
        if adapter.pci is None or settable or rule is None or isinstance(rule.effect, Leave):
            continue
        yield Row(
            target=adapter.target,
            id=adapter.target,
            adapter=adapter.target,
            setting="coalescing",
            current=None,
            wanted=rule.effect.value,
            value=None,
            state=State.FIXED if levers else State.ABSENT,
            limit="the driver sets it once" if levers else "the driver has no lever for it",
            why=rule.because,
            source=rule.source,
            rule=rule.name,
        )
