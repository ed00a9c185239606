"""Make the plan from facts and a profile in passes, each a function of a row. Pure.

``diff``, ``apply`` and ``explain`` show the same rows.

Without a change, queue_depth and nr_requests have the default of driver or kernel, if it is known.
A lower value has one of three causes: hbatune (recorded in the journal), the kernel (after a full
queue), or an administrator or another tool (``keep_decision``).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts import attributes, families
from hbatune.facts.model import Endpoint, Machine, Missing, Protocol, Reason, Role, TargetKind
from hbatune.facts.targets import Target, make_target
from hbatune.plan import joint_limits
from hbatune.plan.joint_limits import DefaultDepth, find_default_depths, is_lower
from hbatune.plan.rows import (
    BASELINE_RULE,
    Plan,
    RevertedValue,
    Row,
    RowKey,
    State,
    explain_unidentified,
    find_skipped_disks,
)
from hbatune.policy.budget import has_priority
from hbatune.policy.match import Matcher, Traits, build_adapter_traits, build_traits
from hbatune.policy.profile import AtLeast, AtMost, Exactly, Leave, Match, Origin, Profile, Rule
from hbatune.settings import limits as device_limits
from hbatune.settings import table
from hbatune.settings.setting import Device, FixedSetting, Value
from hbatune.text.limit_text import Limit, LimitReason

T = TypeVar("T")


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

    excluded: Mapping[str, LimitReason] = {}
    site_rules: Mapping[str, Rule] = {}
    disrupt: bool = False
    will_not_write: Callable[[str, str], bool] = lambda id, setting: False
    memory_share: float = 1.0
    elsewhere: int = 0


class EarlierChanges(Struct, frozen=True):
    """The changes of settings before a plan, by hbatune or an administrator.

    The ``reverted`` values are not tried again. ``set_before`` has the changes of earlier runs,
    which are restored if the profile no longer requires them. ``original_depths`` are the queue
    depths, by id, before hbatune set them. ``set_by_us`` (of an id and a setting) means that
    hbatune has set or reset it since boot. Any other value below the driver's default, and bfq or
    kyber, is an administrator's decision. It is kept unless a person named the targets
    (``targets_named``). ``scheduler_rules`` returns, by id, the distribution's udev rules files
    that set bfq on disks where nothing uses it.
    """

    reverted: Collection[RevertedValue] = ()
    set_before: Mapping[RowKey, SetBefore] = {}
    original_depths: Mapping[str, int] = {}
    set_by_us: Callable[[str, str], bool] = lambda id, setting: False
    targets_named: bool = False
    scheduler_rules: Callable[[], Mapping[str, str]] = dict


class MatchedTarget(Struct, frozen=True):
    """A target with its deciding rules by setting, and its initial queue depth, if it is known."""

    target: Target
    device: Device
    rules: Mapping[str, Rule]
    default_depth: DefaultDepth | None = None


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
    matcher = matcher or Matcher(profile)
    limits, earlier = limits or PlanLimits(), earlier or EarlierChanges()
    planned: dict[str, list[Row]] = {}
    members: dict[object, list[MatchedTarget]] = {}
    groups = joint_limits.group_members(machine)
    default_depths = find_default_depths(machine, earlier.original_depths)
    for matched in match_rules(machine, matcher, limits.site_rules, default_depths):
        # Before ``only`` is checked: an unnamed path still limits the other paths of its map.
        group = groups.get(matched.target.name)
        if group is not None:
            members.setdefault(group, []).append(matched)
        # An unnamed member of another stack counts with the values that it would get.
        is_member = group is not None and matched.target.map is None
        if only is None or matched.target.id in only or is_member:
            planned[matched.target.id] = list(plan_target(matched, limits, earlier))
    for paths in members.values():
        planned |= level_members(paths, planned)
    for row in list_unsettable_coalescing(machine, matcher):
        planned.setdefault(row.id, []).append(row)
    if only is not None:
        planned = {id: target_rows for id, target_rows in planned.items() if id in only}
    rows = tuple(chain.from_iterable(planned.values()))
    allowed = int(machine.memory * limits.memory_share)
    memory = joint_limits.sum_request_memory(machine, planned, allowed, limits.elsewhere)
    skipped = find_skipped_disks(machine.endpoints, limits.excluded)
    disks = tuple(disk for disk in skipped if only is None or disk.id in only)
    return Plan(profile.name, rows, memory, disks)


def match_rules(
    machine: Machine,
    matcher: Matcher,
    site_rules: Mapping[str, Rule],
    default_depths: Mapping[str, DefaultDepth],
) -> Iterator[MatchedTarget]:
    """Yield every target with its deciding rules."""
    for target, rules, device in match_targets(machine, matcher.won):
        site_rule = site_rules.get(target.id)
        if site_rule is not None and has_priority(site_rule, rules.get(site_rule.setting)):
            rules = {**rules, site_rule.setting: site_rule}
        yield MatchedTarget(target, device, rules, default_depths.get(target.id))


def match_targets(
    machine: Machine, decide: Callable[[Traits], T]
) -> Iterator[tuple[Target, T, Device]]:
    """Yield every target, the result of ``decide`` for its traits, and its facts for limits."""
    adapters = machine.adapters_by_target
    for endpoint in machine.endpoints:
        decision = decide(build_traits(endpoint, adapters.get(endpoint.adapter or "")))
        target = make_target(endpoint)
        scheduler = device_limits.find_scheduler(target.attributes)
        yield target, decision, Device(target.attributes, scheduler, endpoint)
    for control in machine.controls:
        decision = decide(build_adapter_traits(adapters[control.adapter], control.kind))
        yield make_target(control), decision, Device(control.attributes)
    # Use all vectors, so the result does not depend on the named targets.
    room = device_limits.spread_vectors(machine.vectors, machine.processors, machine.local_cpus)
    for vector in machine.vectors:
        if vector.role is Role.DATA:
            decision = decide(build_adapter_traits(adapters[vector.adapter], TargetKind.VECTOR))
            yield make_target(vector), decision, Device({}, vector=vector, room=room)


def plan_target(
    matched: MatchedTarget, limits: PlanLimits, earlier: EarlierChanges
) -> Iterator[Row]:
    """Yield a target's rows in the order of the writes, the scheduler first."""
    target, device, endpoint = matched.target, matched.device, matched.device.endpoint
    unsafe = None if endpoint is None else explain_unsafe(endpoint)
    reason = limits.excluded.get(target.id) or unsafe
    changes: Mapping[str, SetBefore] = {}
    # An endpoint that must not be changed is not restored to its baseline, either.
    if unsafe is None and earlier.set_before:
        changes = find_earlier_changes(matched, earlier, is_excluded=reason is not None)
    for name in _sort_for_writing((*matched.rules, *changes)):
        rule, change, row = matched.rules.get(name), changes.get(name), None
        is_required = rule is not None and not isinstance(rule.effect, Leave)
        is_doubtful = rule is not None and rule.effect == Leave(doubtful=True)
        if change is not None and not is_doubtful and (reason is not None or not is_required):
            row = restore_value(target, table.SETTINGS[name], change, device)
        if row is None and rule is not None and is_required:
            if reason is None or is_safe_for_zones(rule, reason, endpoint):
                row = limit_value(target, rule, device, change)
                row = exclude_reverted(row, earlier.reverted)
                row = keep_decision(row, rule, matched, device.scheduler, earlier)
            else:
                row = exclude_target(target, rule, reason)
        if row is None:
            continue
        if not limits.disrupt:
            row = exclude_disruptive(row)
        # The following settings are limited for the planned scheduler and nr_requests.
        if row.value is not None and not limits.will_not_write(target.id, name):
            if name == table.SCHEDULER:
                device = replace(device, scheduler=row.value)
            elif name == table.NR_REQUESTS:
                device = replace(device, requests=row.value)
        yield row


@lru_cache(maxsize=64)  # thousands of disks share few combinations
def _sort_for_writing(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return these settings, each once, in the order of the writes: after those that reset them."""
    return tuple(sorted(dict.fromkeys(names), key=lambda name: table.SETTINGS[name].order))


def explain_unsafe(endpoint: Endpoint) -> LimitReason | None:
    """Return the reason why no rule may change an endpoint, or None."""
    if (reason := explain_unidentified(endpoint)) is not None:
        return reason
    if endpoint.size == 0:
        return LimitReason(Limit.NO_CAPACITY)
    # The kernel accepts the scheduler ``none`` even on a host-managed disk, so hbatune has to know.
    return LimitReason(Limit.ZONED) if endpoint.zoned is True else None


def is_safe_for_zones(rule: Rule, reason: LimitReason, endpoint: Endpoint | None) -> bool:
    """Return whether a local rule's scheduler keeps the order of writes to zones (K-zone-order)."""
    is_local = rule.setting == table.SCHEDULER and rule.origin is Origin.SITE
    is_plugged = endpoint is not None and endpoint.plugs_zones is True
    is_ordered = is_plugged or rule.effect == Exactly("mq-deadline")
    return is_local and is_ordered and reason.limit is Limit.ZONED


def exclude_target(target: Target, rule: Rule, reason: LimitReason) -> Row:
    """Return the row of a setting whose target is not changed."""
    state = State.UNREADABLE if reason.limit is Limit.UNREAD_DISK else State.EXCLUDED
    current = table.SETTINGS[rule.setting].read(target.attributes)
    return _make_row(target, rule, current, EvaluatedSetting(state, limit=reason))


def limit_value(target: Target, rule: Rule, device: Device, change: SetBefore | None) -> Row:
    """Return the row of a required setting, with the nearest legal value."""
    assert not isinstance(rule.effect, Leave)
    setting = table.SETTINGS[rule.setting]
    current = setting.read(target.attributes)
    verdict = evaluate_setting(setting, rule.effect, current, device, change)
    return _make_row(target, rule, current, verdict)


def exclude_reverted(row: Row, reverted: Collection[RevertedValue]) -> Row:
    """Exclude a reverted value, but not its setting: a changed rule may try another value."""
    if row.state is not State.DRIFT or row.value is None:
        return row
    if RevertedValue(row.id, row.setting, row.value) not in reverted:
        return row
    return _exclude_row(row, LimitReason(Limit.REVERTED))


def keep_decision(
    row: Row, rule: Rule, matched: MatchedTarget, scheduler: Value | None, earlier: EarlierChanges
) -> Row:
    """Exclude a setting that an administrator or another tool lowered or chose.

    The reason is unknown (an array, a drive that loses commands, a neighbour). Such a value is kept
    until `apply` names the target or a local rule sets ``value``. ``scheduler`` is the planned one.
    """
    endpoint = matched.device.endpoint
    if row.state is not State.DRIFT or endpoint is None or earlier.targets_named:
        return row
    if rule.origin is Origin.SITE and isinstance(rule.effect, Exactly):
        return row
    # A switch of the scheduler discards nr_requests.
    if row.setting == table.NR_REQUESTS and scheduler != matched.device.scheduler:
        return row
    reason = find_decision(endpoint, row.setting, matched.default_depth)
    if reason is None or earlier.set_by_us(endpoint.id, row.setting):
        return row
    is_chosen = reason.limit is Limit.CHOSEN_SCHEDULER
    if is_chosen and (file := earlier.scheduler_rules().get(endpoint.id)):
        return replace(row, limit=LimitReason(Limit.DISTRIBUTION_SCHEDULER, (file,)))
    return _exclude_row(row, reason)


def find_decision(
    endpoint: Endpoint, name: str, default_depth: DefaultDepth | None
) -> LimitReason | None:
    """Return the reason to keep a setting of an endpoint that was lowered or chosen, or None."""
    current, default = table.SETTINGS[name].read(endpoint.attributes), None
    tags, limit = endpoint.tags, Limit.LOWERED
    if name == table.SCHEDULER and current in device_limits.LOADABLE_SCHEDULERS:
        return LimitReason(Limit.CHOSEN_SCHEDULER, (current, endpoint.target))
    if name == table.QUEUE_DEPTH:
        # With every driver, a depth of 1 disables command queuing.
        if endpoint.protocol is Protocol.SATA and current == 1:
            if endpoint.ncq_depth is not None and endpoint.ncq_depth > 1:
                return LimitReason(Limit.NCQ_OFF, (endpoint.target,))
            return LimitReason(Limit.ONE_COMMAND)
        if default_depth is not None and not default_depth.may_ramp:
            default = default_depth.depth
            limit = Limit.BELOW_PEERS if default_depth.by_peers else limit
    elif name == table.NR_REQUESTS and isinstance(tags, int):
        # block/blk-mq-sched.c: blk_mq_init_sched. Without a scheduler, a number below the tag set
        # is an accident, since it applies to the whole adapter.
        has_scheduler = device_limits.find_scheduler(endpoint.attributes) not in (None, "none")
        default = 2 * min(tags, joint_limits.DEFAULT_DEPTH) if has_scheduler else None
    if default is None or not isinstance(current, int) or current >= default:
        return None
    return LimitReason(limit, (default, endpoint.target))


def exclude_disruptive(row: Row) -> Row:
    """Exclude a row that would disrupt the I/O of the whole adapter."""
    disrupts = table.SETTINGS[row.setting].disrupts
    if disrupts and row.state is State.DRIFT:
        return _exclude_row(row, LimitReason(Limit.DISRUPTS, (disrupts,)))
    return row


def find_earlier_changes(
    matched: MatchedTarget, earlier: EarlierChanges, *, is_excluded: bool
) -> dict[str, SetBefore]:
    """Return the settings of a target that earlier runs changed.

    Effects of a setting that the profile still requires are omitted, because its next write would
    change them again.
    """
    wanted = [rule.setting for rule in matched.rules.values() if not isinstance(rule.effect, Leave)]
    reset = () if is_excluded else table.list_affected_settings(wanted)
    changes = {}
    for name in table.SETTINGS:
        change = earlier.set_before.get((matched.target.id, name))
        if change is not None and not (change.effect and name in reset):
            changes[name] = change
    return changes


def restore_value(
    target: Target, setting: table.Setting, change: SetBefore, device: Device
) -> Row | None:
    """Return the row that restores a value set by hbatune that no rule requires any more.

    Return None if the current value is the original value. A value that was changed after hbatune
    set it is kept. If the original value is no longer legal, the nearest legal value is planned.
    """
    current = setting.read(target.attributes)
    verdict = evaluate_setting(setting, Exactly(change.before), current, device)
    if current == change.before or verdict.state is State.ABSENT:
        return None
    if not isinstance(current, Missing) and not change.ours(current):
        verdict = EvaluatedSetting(State.EXCLUDED, limit=LimitReason(Limit.CHANGED_SINCE))
    elif verdict.state is State.OK:  # the nearest legal value is set already
        verdict = EvaluatedSetting(State.FIXED, limit=verdict.limit)
    rule = Rule(BASELINE_RULE, Match(), setting.name, Exactly(change.before), "", "journal", "")
    return replace(_make_row(target, rule, current, verdict), why=LimitReason(Limit.RESTORED))


class EvaluatedSetting(Struct, frozen=True):
    """The state of a setting under a rule, the value to set, and its limit."""

    state: State
    value: Value | None = None
    limit: LimitReason | str | None = None


def evaluate_setting(
    setting: table.Setting,
    effect: Exactly | AtLeast | AtMost,
    current: Value | Missing,
    device: Device,
    change: SetBefore | None = None,
) -> EvaluatedSetting:
    """Evaluate a setting under the deciding rule.

    If hbatune set the current value, "at least" and "at most" are compared with the original value.
    A depth that another profile raised further is therefore not kept.
    """
    if isinstance(current, Missing):
        reason: LimitReason | str | None = current.text
        if current.reason is Reason.UNPARSABLE:
            reason = LimitReason(Limit.UNPARSABLE, (current.text or "",))
        is_absent = current.reason is Reason.ABSENT
        if is_absent and setting.name == table.FIRMWARE_COALESCING:
            reason = LimitReason(Limit.FIRMWARE_CLOSED)
        return EvaluatedSetting(State.ABSENT if is_absent else State.UNREADABLE, limit=reason)
    legal = device_limits.resolve_value(setting, effect.value, current, device)
    if isinstance(legal, FixedSetting):
        # A read-only depth that reaches the document's minimum needs no change.
        is_above = is_lower(effect.value, current)
        if isinstance(effect, AtLeast) and (is_above or current == effect.value):
            return EvaluatedSetting(State.OK, current, legal.limit)
        return _mark_fixed(legal)
    reference = current if change is None or not change.ours(current) else change.before
    kept_reason = None
    if isinstance(effect, AtLeast) and is_lower(legal.value, reference):
        kept_reason = LimitReason(Limit.RAISED_ONLY)
    elif isinstance(effect, AtMost) and is_lower(reference, legal.value):
        kept_reason = LimitReason(Limit.WITHIN_ARRAY)
    if kept_reason is not None:
        if reference == current:
            return EvaluatedSetting(State.OK, current, kept_reason)
        # Restore the original value, which the planned scheduler may not allow.
        legal = device_limits.resolve_value(setting, reference, current, device)
        if isinstance(legal, FixedSetting):
            return _mark_fixed(legal)
    state = State.OK if legal.value == current else State.DRIFT
    return EvaluatedSetting(state, legal.value, kept_reason or legal.limit)


def _mark_fixed(legal: FixedSetting) -> EvaluatedSetting:
    """Return that a setting cannot be set, or that its limit could not be read."""
    return EvaluatedSetting(State.UNREADABLE if legal.unread else State.FIXED, limit=legal.limit)


def _make_row(
    target: Target, rule: Rule, current: Value | Missing, verdict: EvaluatedSetting
) -> Row:
    assert not isinstance(rule.effect, Leave)
    return Row(
        target=target.name,
        id=target.id,
        adapter=target.adapter,
        setting=rule.setting,
        current=None if isinstance(current, Missing) else current,
        wanted=rule.effect.value,
        value=verdict.value,
        state=verdict.state,
        limit=verdict.limit,
        why=rule.because,
        source=rule.source,
        rule=rule.name,
    )


def _exclude_row(row: Row, reason: LimitReason) -> Row:
    return replace(row, state=State.EXCLUDED, value=None, limit=reason)


def level_members(
    paths: Sequence[MatchedTarget], planned: Mapping[str, Sequence[Row]]
) -> dict[str, list[Row]]:
    """Return, by id, the rows of a map's paths or a stack's members, with equal values on all."""
    rows: dict[str, dict[str, Row]] = {}
    for path in paths:
        rows[path.target.id] = {row.setting: row for row in planned.get(path.target.id, ())}
    for name in dict.fromkeys(chain.from_iterable(rows.values())):
        path_rows = [by_setting[name] for by_setting in rows.values() if name in by_setting]
        if any(row.rule == BASELINE_RULE for row in path_rows):
            continue  # each path is restored to its own original value
        path_settings = [_make_path_setting(path, name, rows[path.target.id]) for path in paths]
        decisions = joint_limits.level_paths(path_settings)
        for path in paths:
            by_setting, decision = rows[path.target.id], decisions.get(path.target.name)
            if decision is None:
                continue
            row, value = by_setting[name], decision.value
            state = State.OK if value == row.current else State.DRIFT
            by_setting[name] = replace(row, value=value, limit=decision.limit, state=state)
            if name == table.SCHEDULER:  # nr_requests was limited for the scheduler of the rule
                by_setting |= _limit_again(path, by_setting, value)
    return {id: list(by_setting.values()) for id, by_setting in rows.items() if by_setting}


def _make_path_setting(
    path: MatchedTarget, name: str, rows: Mapping[str, Row]
) -> joint_limits.PathSetting:
    """Return one setting of a path. A path that is not set keeps its value."""
    row, rule, scheduler_row = rows.get(name), path.rules.get(name), rows.get(table.SCHEDULER)
    current = table.SETTINGS[name].read(path.target.attributes)
    return joint_limits.PathSetting(
        path.target.name,
        table.SETTINGS[name],
        None if isinstance(current, Missing) else current,
        row.value if row is not None and row.state in (State.OK, State.DRIFT) else None,
        replace(path.device, scheduler=scheduler_row.value if scheduler_row else None),
        raised_only=rule is not None and isinstance(rule.effect, AtLeast),
    )


def _limit_again(path: MatchedTarget, rows: Mapping[str, Row], scheduler: Value) -> dict[str, Row]:
    """Return the rows that a scheduler resets, limited for the path's new scheduler."""
    device = replace(path.device, scheduler=scheduler)
    updated = {}
    for name in table.SETTINGS[table.SCHEDULER].resets:
        rule = path.rules.get(name)
        if name in rows and rule is not None and not isinstance(rule.effect, Leave):
            updated[name] = limit_value(path.target, rule, device, None)
    return updated


def list_unsettable_coalescing(machine: Machine, matcher: Matcher) -> Iterator[Row]:
    """Yield a row for each adapter whose coalescing cannot be set, although a rule requires it.

    Without the row the adapter would be missing from the plan, which looks like "nothing to do".
    Drivers without a family (IDE, card readers, InfiniBand) are skipped, because it is unknown
    whether they have coalescing.
    """
    for adapter in machine.adapters:
        family = families.family_named(adapter.family)
        if family is families.GENERIC or family.coalescing or adapter.pci is None:
            continue
        rule = matcher.won(build_adapter_traits(adapter, TargetKind.CONTROLLER)).get("coalescing")
        if rule is None or isinstance(rule.effect, Leave):
            continue
        name, kind = adapter.target, TargetKind.CONTROLLER
        target = Target(name, name, name, None, kind, directory="", attributes={})
        verdict = EvaluatedSetting(State.ABSENT, limit=LimitReason(Limit.NO_COALESCING))
        if family.fixed_coalescing:
            verdict = EvaluatedSetting(State.FIXED, limit=LimitReason(Limit.SET_ONCE))
        yield _make_row(target, rule, attributes.ABSENT, verdict)
