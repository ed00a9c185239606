"""Make the plan from facts and a profile, and detect values that an administrator lowered. Pure.

``diff``, ``apply`` and ``explain`` show the same rows.

Without a change, queue_depth and nr_requests have the default of driver or kernel, if it is known.
A lower value has one of three causes: hbatune (recorded in the journal), the kernel (after a full
queue), or an administrator or another tool. The reason of the third is unknown (an array, a drive
that loses commands, a neighbour). Such a value is kept until `apply` names the target or a local
rule sets ``value``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.attributes import parse_error_count
from hbatune.facts.families import GENERIC, family_named
from hbatune.facts.family import Mechanism, Parameters
from hbatune.facts.model import Endpoint, Machine, Missing, Protocol, Reason, Role, TargetKind
from hbatune.facts.targets import Target, make_target
from hbatune.plan.joint_limits import Decision, PathSetting, level_paths, sum_request_memory
from hbatune.plan.rows import (
    BASELINE_RULE,
    Plan,
    RevertedValue,
    Row,
    State,
    explain_unidentified,
    find_skipped_disks,
)
from hbatune.policy.budget import has_priority
from hbatune.policy.match import Matcher, Traits, build_adapter_traits, build_traits
from hbatune.policy.profile import AtLeast, AtMost, Exactly, Leave, Match, Origin, Profile, Rule
from hbatune.settings.limits import find_scheduler, spread_vectors
from hbatune.settings.resolve import resolve_control, resolve_vector, resolve_with
from hbatune.settings.setting import FixedSetting, LegalValue, VectorCpus
from hbatune.settings.table import (
    NR_REQUESTS,
    QUEUE_DEPTH,
    SCHEDULER,
    SETTINGS,
    Setting,
    Value,
    list_affected_settings,
)

LOWERED_REASON = "below the driver's own {}: an administrator's decision, until `apply {}` names it"
NCQ_OFF_REASON = (
    "native command queuing is off: an administrator's decision, until `apply {}` names it"
)
ONE_COMMAND_REASON = (
    "one command at a time: the drive queues nothing, or somebody has switched it off"
)

QUEUE_FULL_THRESHOLD = 11
"""TASK SET FULL answers after which the kernel lowers a depth (drivers/scsi/scsi.c:
scsi_track_queue_full): more than ten. Each counts as an error."""

_RQ = 128  # include/linux/blkdev.h: BLKDEV_DEFAULT_RQ


def find_decisions(endpoint: Endpoint, parameters: Parameters) -> dict[str, str]:
    """Return the lowered settings of an endpoint, each with the reason to keep it.

    ``parameters`` are the parameters of its driver's module.
    """
    defaults = {
        QUEUE_DEPTH: _find_default_depth(endpoint, parameters),
        NR_REQUESTS: _find_default_requests(endpoint),
    }
    reasons = {
        name: LOWERED_REASON.format(default, endpoint.target)
        for name, default in defaults.items()
        if default is not None
        and isinstance(current := SETTINGS[name].read(endpoint.attributes), int)
        and current < default
    }
    # With every driver, a depth of 1 disables command queuing.
    if endpoint.protocol is Protocol.SATA and SETTINGS[QUEUE_DEPTH].read(endpoint.attributes) == 1:
        can_queue = endpoint.ncq_depth is not None and endpoint.ncq_depth > 1
        reasons[QUEUE_DEPTH] = (
            NCQ_OFF_REASON.format(endpoint.target) if can_queue else ONE_COMMAND_REASON
        )
    return reasons


def overrides_rule(
    rule: Rule, name: str, *, scheduler: Value | Missing, planned: Value | Missing
) -> bool:
    """Return whether a lowered value overrides a rule.

    A local rule with ``value`` overrides the lowered value. A switch of the scheduler discards
    nr_requests.
    """
    if rule.origin is Origin.SITE and isinstance(rule.effect, Exactly):
        return False
    return name != NR_REQUESTS or scheduler == planned


def _find_default_depth(endpoint: Endpoint, parameters: Parameters) -> int | None:
    family = family_named(endpoint.family)
    if family.depth_ramps and (parse_error_count(endpoint.attributes) or 0) >= QUEUE_FULL_THRESHOLD:
        return None  # the kernel may have lowered it
    return family.depth_default(endpoint, parameters)


def _find_default_requests(endpoint: Endpoint) -> int | None:
    """Return the kernel's initial number of requests with a scheduler, or None.

    block/blk-mq-sched.c: blk_mq_init_sched. Without a scheduler, a number below the tag set is an
    accident, since it applies to the whole adapter.
    """
    tags = endpoint.tags
    if find_scheduler(endpoint.attributes) in (None, "none") or not isinstance(tags, int):
        return None
    return 2 * min(tags, _RQ)


T = TypeVar("T")

Key = tuple[str, str]
"""A target's id and a setting."""

Resolve = Callable[[str, Value, Value, Value | None], LegalValue | FixedSetting]
"""A function of setting, profile value, current value and planned scheduler to the legal value."""


class SetBefore(Struct, frozen=True):
    """A setting changed by an earlier run: the value ``before``, and a check for hbatune's values.

    A value that is not ``ours`` was set later by an administrator or another tool. An ``effect``
    was changed by a write to another setting.
    """

    before: Value
    ours: Callable[[Value], bool]
    effect: bool = False


class PlanLimits(Struct, frozen=True):
    """The limits of a plan, in addition to the limits of the devices.

    ``excluded`` has, by id, the reason why a target is not changed. ``site_rules`` are, by id, the
    rules that follow from the site's facts (``budget.make_site_rules``). ``disrupt`` allows
    settings that disrupt the I/O of a whole adapter. ``will_not_write`` (of an id and a setting)
    means that a setting will not be written. Settings that depend on it are planned for its current
    value. Requests may take the fraction ``memory_share`` of the machine's memory. ``elsewhere`` is
    the number of bytes that the requests of disks outside of the machine take of it.
    """

    excluded: Mapping[str, str] = {}
    site_rules: Mapping[str, Rule] = {}
    disrupt: bool = False
    will_not_write: Callable[[str, str], bool] = lambda id, setting: False
    memory_share: float = 1.0
    elsewhere: int = 0


class EarlierChanges(Struct, frozen=True):
    """The changes of settings before a plan, by hbatune or an administrator.

    ``reverted`` has the reasons why values are not tried again. ``set_before`` has the changes of
    earlier runs, which are restored if the profile no longer requires them. ``set_by_us`` (of an
    id and a setting) means that hbatune has set or reset it since boot. Any other value below the
    driver's default is an administrator's decision. It is kept unless a person named the targets
    (``targets_named``).
    """

    reverted: Mapping[RevertedValue, str] = {}
    set_before: Mapping[Key, SetBefore] = {}
    set_by_us: Callable[[str, str], bool] = lambda id, setting: False
    targets_named: bool = False


def make_plan(
    machine: Machine,
    profile: Profile,
    *,
    only: Collection[str] | None = None,
    limits: PlanLimits | None = None,
    earlier: EarlierChanges | None = None,
    matcher: Matcher | None = None,
) -> Plan:
    """Plan the profile on the machine, or on the targets with the ids in ``only``.

    A ``matcher`` of the same profile caches the matches of earlier plans.
    """
    planned: dict[str, list[Row]] = {}
    paths: dict[str, list[_Path]] = {}
    endpoints = {endpoint.id: endpoint for endpoint in machine.endpoints}
    matcher = matcher or Matcher(profile)
    limits, earlier = limits or PlanLimits(), earlier or EarlierChanges()
    excluded = limits.excluded
    history = _History(earlier.reverted, earlier.set_before, limits.will_not_write)
    parameters = {module.name: module.parameters for module in machine.modules}
    for target, won, resolve in resolve_targets(machine, matcher.won):
        rules = _add_site_rule(won, limits.site_rules.get(target.id))
        # Before ``only`` is checked: an unnamed path still limits the other paths of its map.
        if target.map is not None:
            paths.setdefault(target.map, []).append(_Path(target, rules, resolve))
        if only is not None and target.id not in only:
            continue
        endpoint = endpoints.get(target.id)
        reason = excluded.get(target.id)
        target_history = history
        if endpoint is not None and (unsafe_reason := explain_unsafe(endpoint)) is not None:
            # An endpoint that must not be changed is not restored to its baseline, either.
            reason, target_history = reason or unsafe_reason, replace(history, set_before={})
        if endpoint is not None and not earlier.targets_named:
            lowered = find_decisions(endpoint, parameters.get(endpoint.family, {}))
            decisions = {
                name: text
                for name, text in lowered.items()
                if not earlier.set_by_us(endpoint.id, name)
            }
            target_history = (
                replace(target_history, decided=decisions) if decisions else target_history
            )
        target_rows = _make_rows(target, rules, reason, resolve, target_history)
        if (
            endpoint is not None
            and endpoint.unread is not None
            and reason == explain_unsafe(endpoint)
        ):
            target_rows = (replace(row, state=State.UNREADABLE) for row in target_rows)
        planned[target.id] = list(
            target_rows if limits.disrupt else map(_exclude_disruptive, target_rows)
        )
    for map_paths in paths.values():
        planned |= _level_paths(map_paths, planned)
    unsettable = (
        row
        for row in _list_unsettable_coalescing(machine, matcher)
        if only is None or row.id in only
    )
    rows = (*(row for path_rows in planned.values() for row in path_rows), *unsettable)
    allowed = int(machine.memory * limits.memory_share)
    memory = sum_request_memory(machine, planned, allowed, limits.elsewhere)
    unidentified_disks = find_skipped_disks(machine.endpoints, excluded)
    skipped = tuple(disk for disk in unidentified_disks if only is None or disk.id in only)
    return Plan(profile.name, rows, memory, skipped)


class _Path(Struct, frozen=True):
    """A path of a map, the deciding rules of its settings, and the function that clamps them."""

    target: Target
    rules: Mapping[str, Rule]
    resolve: Resolve


def _level_paths(
    paths: Collection[_Path], planned: Mapping[str, list[Row]]
) -> dict[str, list[Row]]:
    """Return, by id, the rows of a map's paths, changed to the same values on all paths."""
    rows = {
        path.target.id: {row.setting: row for row in planned.get(path.target.id, ())}
        for path in paths
    }
    for name in list(dict.fromkeys(name for by_setting in rows.values() for name in by_setting)):
        if any(
            by_setting[name].rule == BASELINE_RULE
            for by_setting in rows.values()
            if name in by_setting
        ):
            continue  # each path is restored to its own original value
        decisions = level_paths(
            [_make_path_setting(path, name, rows[path.target.id]) for path in paths]
        )
        for path in paths:
            by_setting = rows[path.target.id]
            if (decision := decisions.get(path.target.name)) is not None:
                by_setting[name] = _apply_decision(by_setting[name], decision)
                if name == SCHEDULER:  # nr_requests was clamped for the scheduler of the rule
                    by_setting |= _rejudge_rows(path, by_setting)
    return {id: list(by_setting.values()) for id, by_setting in rows.items() if by_setting}


def _make_path_setting(path: _Path, name: str, rows: Mapping[str, Row]) -> PathSetting:
    """Return one setting of a path. A path that is not set keeps its value."""
    row, rule = rows.get(name), path.rules.get(name)
    reading = SETTINGS[name].read(path.target.attributes)
    current = None if isinstance(reading, Missing) else reading
    value = row.value if row is not None and row.state in (State.OK, State.DRIFT) else None
    scheduler = rows[SCHEDULER].value if SCHEDULER in rows else None
    raised_only = rule is not None and isinstance(rule.effect, AtLeast)

    def clamp(goal: Value) -> Value:
        if current is None:
            return goal
        if value is not None and not raised_only and _lowers(value, goal):
            return value  # the rule's value is the maximum for the path
        legal = path.resolve(name, goal, current, scheduler)
        return current if isinstance(legal, FixedSetting) else legal.value

    return PathSetting(path.target.name, current, value, clamp, lowers=not raised_only)


def _rejudge_rows(path: _Path, rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return the rows that a scheduler resets, evaluated for the path's new scheduler."""
    scheduler = rows[SCHEDULER].value
    planned = SETTINGS[SCHEDULER].read(path.target.attributes) if scheduler is None else scheduler
    updated = {}
    for name in SETTINGS[SCHEDULER].resets:
        row, rule = rows.get(name), path.rules.get(name)
        if row is None or rule is None or isinstance(rule.effect, Leave):
            continue
        current = SETTINGS[name].read(path.target.attributes)
        verdict = evaluate_setting(SETTINGS[name], rule.effect, current, planned, path.resolve)
        updated[name] = replace(row, state=verdict.state, value=verdict.value, limit=verdict.limit)
    return updated


def _apply_decision(row: Row, decision: Decision) -> Row:
    state = State.OK if decision.value == row.current else State.DRIFT
    return replace(row, value=decision.value, limit=decision.limit, state=state)


def _add_site_rule(rules: Mapping[str, Rule], site_rule: Rule | None) -> Mapping[str, Rule]:
    if site_rule is None or not has_priority(site_rule, rules.get(site_rule.setting)):
        return rules
    return {**rules, site_rule.setting: site_rule}


def resolve_targets(
    machine: Machine, decide: Callable[[Traits], T]
) -> Iterator[tuple[Target, T, Resolve]]:
    """Yield every target, the result of ``decide`` for its traits, and the clamp function."""
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    for endpoint in machine.endpoints:
        properties = build_traits(endpoint, adapters.get(endpoint.adapter or ""))
        target = make_target(endpoint)
        yield target, decide(properties), partial(resolve_with, endpoint, target.attributes)
    for control in machine.controls:
        decision = decide(build_adapter_traits(adapters[control.adapter], control.kind))
        yield make_target(control), decision, partial(resolve_control, control)
    # Use all vectors, so the result does not depend on the named targets.
    placed = spread_vectors(machine.vectors, machine.processors, machine.local_cpus)
    for vector in machine.vectors:
        if vector.role is Role.DATA:
            decision = decide(build_adapter_traits(adapters[vector.adapter], TargetKind.VECTOR))
            local = machine.local_cpus.get(vector.adapter, ())
            room = VectorCpus(placed, machine.processors, local)
            yield make_target(vector), decision, partial(resolve_vector, vector, room)


def explain_unsafe(endpoint: Endpoint) -> str | None:
    """Return the reason why no rule may change an endpoint, or None."""
    if (reason := explain_unidentified(endpoint)) is not None:
        return reason
    # The kernel accepts the scheduler ``none`` even on a host-managed disk, so hbatune has to know.
    if endpoint.zoned is True:
        return "zoned"
    return None


class _History(Struct, frozen=True):
    """The earlier changes that also decide the rows of a target.

    ``find_decisions`` has the reasons to keep the settings that an administrator lowered.
    """

    reverted: Mapping[RevertedValue, str]
    set_before: Mapping[Key, SetBefore]
    will_not_write: Callable[[str, str], bool]
    decided: Mapping[str, str] = {}


def _make_rows(
    target: Target,
    rules: Mapping[str, Rule],
    reason: str | None,
    resolve: Resolve,
    history: _History,
) -> Iterator[Row]:
    """Yield a target's rows in the order of the writes.

    The scheduler comes first, since later settings are evaluated for the planned scheduler.
    """
    scheduler = before = SETTINGS[SCHEDULER].read(target.attributes)
    set_earlier = (
        _find_earlier_changes(target, rules, reason, history) if history.set_before else {}
    )
    for name in _sort_for_writing((*rules, *set_earlier)):
        setting, rule, earlier = SETTINGS[name], rules.get(name), set_earlier.get(name)
        current = setting.read(target.attributes)
        effect = None if rule is None or isinstance(rule.effect, Leave) else rule.effect
        row = None
        if earlier is not None and (reason is not None or effect is None):
            row = _make_restore_row(target, setting, earlier, current, scheduler, resolve)
        if row is None and rule is not None and effect is not None:
            verdict = (
                EvaluatedSetting(State.EXCLUDED, limit=reason)
                if reason is not None
                else evaluate_setting(setting, effect, current, scheduler, resolve, earlier)
            )
            # The value counts, not the setting: a changed rule may try another value.
            if verdict.state is State.DRIFT and verdict.value is not None:
                tried = history.reverted.get(RevertedValue(target.id, name, verdict.value))
                verdict = (
                    verdict if tried is None else EvaluatedSetting(State.EXCLUDED, limit=tried)
                )
            low = history.decided.get(name) if verdict.state is State.DRIFT else None
            if low is not None and overrides_rule(rule, name, scheduler=before, planned=scheduler):
                verdict = EvaluatedSetting(State.EXCLUDED, limit=low)
            row = _make_row(target, rule, effect.value, current, verdict)
        if row is None:
            continue
        # The following settings are clamped for the planned scheduler.
        if (
            name == SCHEDULER
            and row.value is not None
            and not history.will_not_write(target.id, name)
        ):
            scheduler = row.value
        yield row


def _find_earlier_changes(
    target: Target, rules: Mapping[str, Rule], reason: str | None, history: _History
) -> dict[str, SetBefore]:
    """Return the settings of a target that earlier runs changed.

    Effects of a setting that the profile still requires are omitted, because its next write would
    change them again.
    """
    wanted = [name for name, rule in rules.items() if not isinstance(rule.effect, Leave)]
    reset = frozenset[str]() if reason is not None else frozenset(list_affected_settings(wanted))
    changes = {name: history.set_before.get((target.id, name)) for name in SETTINGS}
    return {
        name: earlier
        for name, earlier in changes.items()
        if earlier is not None and not (earlier.effect and name in reset)
    }


@lru_cache(maxsize=64)
def _sort_for_writing(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return these settings, each once, in the order of the writes. Thousands of disks share few.

    A setting comes after the settings that reset it.
    """
    return tuple(sorted(dict.fromkeys(names), key=lambda name: SETTINGS[name].order))


def _make_row(
    target: Target, rule: Rule, wanted: Value, current: Value | Missing, verdict: "EvaluatedSetting"
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


def _make_restore_row(
    target: Target,
    setting: Setting,
    earlier: SetBefore,
    current: Value | Missing,
    scheduler: Value | Missing,
    resolve: Resolve,
) -> Row | None:
    """Return the row that restores a value set by hbatune that no rule requires any more.

    Return None if the current value is the original value. A value that was changed after hbatune
    set it is kept. If the original value is no longer legal, the nearest legal value is planned.
    """
    if current == earlier.before or (
        isinstance(current, Missing) and current.reason is Reason.ABSENT
    ):
        return None
    planned = None if isinstance(scheduler, Missing) else scheduler
    if isinstance(current, Missing):
        verdict = EvaluatedSetting(State.UNREADABLE, limit=_describe_missing(current))
    elif not earlier.ours(current):
        verdict = EvaluatedSetting(
            State.EXCLUDED, limit="changed since hbatune had set it: it stays"
        )
    elif (
        isinstance(legal := resolve(setting.name, earlier.before, current, planned), FixedSetting)
        or legal.value == current
    ):
        verdict = EvaluatedSetting(_find_unset_state(legal), limit=legal.limit)
    else:
        verdict = EvaluatedSetting(State.DRIFT, legal.value, legal.limit)
    rule = Rule(BASELINE_RULE, Match(), setting.name, Exactly(earlier.before), _BACK, "journal", "")
    return _make_row(target, rule, earlier.before, current, verdict)


_BACK = "set by hbatune earlier, and no rule in force asks for it: back to what was there"


def _exclude_disruptive(row: Row) -> Row:
    """Exclude a row that would disrupt the I/O of the whole adapter."""
    disrupts = SETTINGS[row.setting].disrupts
    if not disrupts or row.state is not State.DRIFT:
        return row
    limit = f"{disrupts}: only with --allow-reset"
    return replace(row, state=State.EXCLUDED, value=None, limit=limit)


class EvaluatedSetting(Struct, frozen=True):
    """The state of a setting under a rule, the value to set, and its limit."""

    state: State
    value: Value | None = None
    limit: str | None = None


def evaluate_setting(
    setting: Setting,
    effect: Exactly | AtLeast | AtMost,
    current: Value | Missing,
    scheduler: Value | Missing,
    resolve: Resolve,
    earlier: SetBefore | None = None,
) -> EvaluatedSetting:
    """Evaluate a setting under the deciding rule.

    If hbatune set the current value, "at least" and "at most" are compared with the original value.
    A depth that another profile raised further is therefore not kept.
    """
    if isinstance(current, Missing):
        state = State.ABSENT if current.reason is Reason.ABSENT else State.UNREADABLE
        return EvaluatedSetting(state, limit=_describe_missing(current))
    planned = None if isinstance(scheduler, Missing) else scheduler
    legal = resolve(setting.name, effect.value, current, planned)
    if isinstance(legal, FixedSetting):
        return EvaluatedSetting(_find_unset_state(legal), limit=legal.limit)
    reference = current if earlier is None or not earlier.ours(current) else earlier.before
    kept_reason = None
    if isinstance(effect, AtLeast) and _lowers(legal.value, reference):
        kept_reason = "raised only, never lowered"
    elif isinstance(effect, AtMost) and _lowers(reference, legal.value):
        kept_reason = "within what the array takes, as far as is known"
    if kept_reason is not None and reference == current:
        return EvaluatedSetting(State.OK, current, kept_reason)
    if kept_reason is not None:
        # Restore the original value, which the planned scheduler may not allow.
        legal = resolve(setting.name, reference, current, planned)
        if isinstance(legal, FixedSetting):
            return EvaluatedSetting(_find_unset_state(legal), limit=legal.limit)
    state = State.OK if legal.value == current else State.DRIFT
    return EvaluatedSetting(state, legal.value, kept_reason or legal.limit)


def _find_unset_state(legal: LegalValue | FixedSetting) -> State:
    """Return the state of a setting that cannot be set, or whose limit could not be read."""
    return State.UNREADABLE if isinstance(legal, FixedSetting) and legal.unread else State.FIXED


def _lowers(value: Value, current: Value) -> bool:
    return isinstance(value, int) and isinstance(current, int) and value < current


def _describe_missing(missing: Missing) -> str | None:
    """Describe a value that could not be read."""
    if missing.reason is Reason.UNPARSABLE:
        return f"not a value of this setting: {missing.text!r}"
    return missing.text


def _list_unsettable_coalescing(machine: Machine, matcher: Matcher) -> Iterator[Row]:
    """Yield a row for each adapter whose coalescing cannot be set, although a rule requires it.

    Without the row the adapter would be missing from the plan, which looks like "nothing to do".
    Drivers without a family (IDE, card readers, InfiniBand) are skipped, because it is unknown
    whether they have coalescing.
    """
    for adapter in machine.adapters:
        family = family_named(adapter.family)
        if family is GENERIC:
            continue
        levers = family.coalescing
        settable = any(lever.mechanism is not Mechanism.FIXED for lever in levers)
        rule = matcher.won(build_adapter_traits(adapter, TargetKind.CONTROLLER)).get("coalescing")
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
