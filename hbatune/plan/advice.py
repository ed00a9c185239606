"""Compare the vendors' advice with a plan, for each target. Pure.

Advice is never written. A row is a change by hbatune, an advice is a vendor's recommendation.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.model import Machine, Missing
from hbatune.facts.targets import Target
from hbatune.plan.joint_limits import is_lower
from hbatune.plan.make import evaluate_setting, explain_unsafe, match_targets
from hbatune.plan.rows import Plan, Row, RowKey, State
from hbatune.policy.match import SiteNames, Traits, is_rule_for
from hbatune.policy.profile import AtLeast, Effect, Exactly, Leave, VendorRule
from hbatune.settings.setting import Device, Value
from hbatune.settings.table import SCHEDULER, SETTINGS
from hbatune.text.limit_text import LimitReason


class Stance(StrEnum):
    """The relation of a plan to a vendor's advice."""

    AGREES = "agrees"  # the target has the value, or gets it by the plan
    OPEN = "open"  # it has another value, and no rule of the profile sets one
    CONFLICT = "conflict"  # the profile requires another value
    FIXED = "fixed"  # this kernel or device does not allow it


class Advice(Struct, frozen=True):
    """A vendor's recommendation for one setting of one target.

    ``text.documents.PrintedAdvice`` describes the fields.
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
    limit: LimitReason | str | None
    note: str | None
    why: str
    source: str
    rule: str

    @property
    def is_followed(self) -> bool:
        """Whether the target has the advised value, or gets it by the plan."""
        return self.stance is Stance.AGREES


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

    @cache  # thousands of identical LUNs are matched once
    def find_rules(properties: Traits) -> list[VendorRule]:
        return [vendor_rule for vendor_rule in rules if is_rule_for(vendor_rule.rule, properties)]

    rows = {row.key: row for row in plan.rows}
    names = SiteNames(machine) if uses else None
    ids_by_use = {use: names.meant(disks) for use, disks in (uses or {}).items() if names}
    advice: list[Advice] = []
    for target, matched, device in match_targets(machine, find_rules):
        is_unsafe = device.endpoint is not None and explain_unsafe(device.endpoint) is not None
        if is_unsafe or target.id in excluded or (only is not None and target.id not in only):
            continue
        vendor_rules = [v for v in matched if v.use is None or target.id in ids_by_use[v.use]]
        advice += _advise_target(target, vendor_rules, device, rows)
    return tuple(advice)


def _advise_target(
    target: Target, vendor_rules: Collection[VendorRule], device: Device, rows: Mapping[RowKey, Row]
) -> Iterator[Advice]:
    # The scheduler from the same vendor limits its nr_requests, otherwise the planned one.
    scheduler_row = rows.get((target.id, SCHEDULER))
    if scheduler_row is not None and scheduler_row.value is not None:
        device = replace(device, scheduler=scheduler_row.value)
    devices = {}
    for vendor_rule in vendor_rules:
        if vendor_rule.rule.setting == SCHEDULER:
            effect = vendor_rule.rule.effect
            scheduler = effect.value if isinstance(effect, Exactly) else device.scheduler
            devices[vendor_rule.vendor] = replace(device, scheduler=scheduler)
    for vendor_rule in vendor_rules:
        current = SETTINGS[vendor_rule.rule.setting].read(target.attributes)
        if not isinstance(current, Missing):
            row = rows.get((target.id, vendor_rule.rule.setting))
            vendor_device = devices.get(vendor_rule.vendor, device)
            yield _make_advice(target, vendor_rule, current, row, vendor_device)


def _make_advice(
    target: Target, vendor_rule: VendorRule, current: Value, row: Row | None, device: Device
) -> Advice:
    rule = vendor_rule.rule
    planned = current if row is None or row.value is None else row.value
    advised, value, limit = None, None, None
    if not isinstance(rule.effect, Leave):
        verdict = evaluate_setting(SETTINGS[rule.setting], rule.effect, current, device)
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
    if _reaches(effect, planned, effect.value):
        return Stance.AGREES
    has_rule = row is not None and row.state in (State.OK, State.DRIFT)
    if has_rule and value is not None and not _reaches(effect, planned, value):
        return Stance.CONFLICT
    if value is None or value == current:
        return Stance.FIXED
    return Stance.AGREES if planned == value else Stance.OPEN


def _reaches(effect: Effect, planned: Value, goal: Value) -> bool:
    return planned == goal or (isinstance(effect, AtLeast) and is_lower(goal, planned))
