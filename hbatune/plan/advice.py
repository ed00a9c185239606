"""Compare the vendors' advice with a plan, for each target. Pure.

Advice is never written. A row is a change by hbatune, an advice is a vendor's recommendation.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.model import Machine, Missing
from hbatune.facts.targets import Target
from hbatune.plan.make import Key, Resolve, evaluate_setting, explain_unsafe, resolve_targets
from hbatune.plan.rows import Plan, Row, State
from hbatune.policy.match import Matcher, SiteNames
from hbatune.policy.profile import (
    AtLeast,
    Effect,
    Exactly,
    Leave,
    Origin,
    ProbeSpec,
    Profile,
    Rule,
    VendorRule,
)
from hbatune.settings.table import SCHEDULER, SETTINGS, Value


class Stance(StrEnum):
    """The relation of a plan to a vendor's advice."""

    AGREES = "agrees"  # the target has the value, or gets it by the plan
    OPEN = "open"  # it has another value, and no rule of the profile sets one
    CONFLICT = "conflict"  # the profile requires another value
    FIXED = "fixed"  # this kernel or device does not allow it


class Advice(Struct, frozen=True):
    """A vendor's recommendation for one setting of one target.

    ``advised`` is the vendor's value, or None if the setting should stay unchanged. ``value`` is
    the nearest value that this device accepts, or None. If the two differ, ``limit`` is the reason.
    ``planned`` is the value after the plan. If it is in ``conflict`` with the advice, ``against``
    is its rule. ``note`` describes current problems of the advice. ``why``, ``source`` and ``rule``
    belong to the vendor's rule.
    """

    target: str
    id: str
    adapter: str | None
    setting: str
    vendor: str
    current: Value
    advised: Value | None
    value: Value | None
    planned: Value
    stance: Stance
    against: str | None
    limit: str | None
    note: str | None
    why: str
    source: str
    rule: str


def find_advice(
    machine: Machine,
    rules: Collection[VendorRule],
    plan: Plan,
    *,
    uses: Mapping[str, Iterable[str]] | None = None,
    excluded: Collection[str] = (),
    only: Collection[str] | None = None,
) -> tuple[Advice, ...]:
    """Return the advice for the targets of a machine, in the machine's order.

    ``uses`` contains the names of the disks for each use, ``excluded`` the ids of excluded targets.
    ``only`` contains the requested ids, or None for all. Missing or unreadable settings get no
    advice.
    """
    if not rules:
        return ()
    rules_by_name = {vendor_rule.rule.name: vendor_rule for vendor_rule in rules}
    matcher = Matcher(_make_profile(vendor_rule.rule for vendor_rule in rules))
    rows = {(row.id, row.setting): row for row in plan.rows}
    skipped_ids = {
        endpoint.id for endpoint in machine.endpoints if explain_unsafe(endpoint) is not None
    } | {*excluded}
    ids_by_use = _resolve_uses(machine, uses or {})
    advice: list[Advice] = []
    for target, matched, resolve in resolve_targets(machine, matcher.matched):
        if target.id in skipped_ids or (only is not None and target.id not in only):
            continue
        vendor_rules = [rules_by_name[rule.name] for rule in matched]
        vendor_rules = [
            vendor_rule
            for vendor_rule in vendor_rules
            if vendor_rule.use is None or target.id in ids_by_use[vendor_rule.use]
        ]
        if vendor_rules:
            advice += _advise_target(target, vendor_rules, resolve, rows)
    return tuple(advice)


def _make_profile(rules: Iterable[Rule]) -> Profile:
    """Return the rules as a profile, for a matcher."""
    return Profile("vendors", "", Origin.VENDOR, tuple(rules), (), ProbeSpec(), ())


def _resolve_uses(
    machine: Machine, uses: Mapping[str, Iterable[str]]
) -> Mapping[str, frozenset[str]]:
    names = SiteNames(machine) if uses else None
    return {use: names.meant(disks) for use, disks in uses.items()} if names else {}


def _advise_target(
    target: Target, vendor_rules: Collection[VendorRule], resolve: Resolve, rows: Mapping[Key, Row]
) -> Iterator[Advice]:
    # The scheduler from the same vendor limits its nr_requests.
    scheduler_rules = {
        vendor_rule.vendor: vendor_rule
        for vendor_rule in vendor_rules
        if vendor_rule.rule.setting == SCHEDULER
    }
    for vendor_rule in vendor_rules:
        setting = SETTINGS[vendor_rule.rule.setting]
        current = setting.read(target.attributes)
        if isinstance(current, Missing):
            continue
        row = rows.get((target.id, setting.name))
        scheduler = _find_scheduler(
            target, scheduler_rules.get(vendor_rule.vendor), rows.get((target.id, SCHEDULER))
        )
        yield _make_advice(target, vendor_rule, current, row, scheduler, resolve)


def _find_scheduler(
    target: Target, vendor_rule: VendorRule | None, row: Row | None
) -> Value | Missing:
    if vendor_rule is not None and isinstance(vendor_rule.rule.effect, Exactly):
        return vendor_rule.rule.effect.value
    if row is not None and row.value is not None:
        return row.value
    return SETTINGS[SCHEDULER].read(target.attributes)


def _make_advice(
    target: Target,
    vendor_rule: VendorRule,
    current: Value,
    row: Row | None,
    scheduler: Value | Missing,
    resolve: Resolve,
) -> Advice:
    rule = vendor_rule.rule
    planned = current if row is None or row.value is None else row.value
    advised: Value | None = None
    value: Value | None = None
    limit: str | None = None
    if not isinstance(rule.effect, Leave):
        verdict = evaluate_setting(SETTINGS[rule.setting], rule.effect, current, scheduler, resolve)
        advised, value, limit = rule.effect.value, verdict.value, verdict.limit
    stance = _find_stance(rule.effect, current, value, planned, row)
    return Advice(
        target=target.name,
        id=target.id,
        adapter=target.adapter,
        setting=rule.setting,
        vendor=vendor_rule.vendor,
        current=current,
        advised=advised,
        value=value,
        planned=planned,
        stance=stance,
        against=row.rule if row is not None and stance is Stance.CONFLICT else None,
        limit=limit,
        note=vendor_rule.note,
        why=rule.because,
        source=rule.source,
        rule=rule.name,
    )


def _find_stance(
    effect: Effect, current: Value, value: Value | None, planned: Value, row: Row | None
) -> Stance:
    """Return the stance of the planned value. ``value`` is the nearest legal one to the advice."""
    if isinstance(effect, Leave):
        is_unchanged = row is None or row.value is None or planned == current
        return Stance.AGREES if is_unchanged else Stance.CONFLICT
    if _reaches(effect, planned):
        return Stance.AGREES
    has_rule = row is not None and row.state in (State.OK, State.DRIFT)
    if has_rule and value is not None and not _reaches(effect, planned, value):
        return Stance.CONFLICT
    if value is None or value == current:
        return Stance.FIXED
    return Stance.AGREES if planned == value else Stance.OPEN


def _reaches(effect: Effect, planned: Value, goal: Value | None = None) -> bool:
    assert not isinstance(effect, Leave)
    wanted = effect.value if goal is None else goal
    if isinstance(effect, AtLeast) and isinstance(planned, int) and isinstance(wanted, int):
        return planned >= wanted
    return planned == wanted
