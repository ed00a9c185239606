"""The vendors' advice beside a plan: what it asks of each target, and how the plan stands to it.

Pure, and never written: a row says what hbatune does, an advice what somebody else would like.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.model import Machine, Missing
from hbatune.facts.targets import Target
from hbatune.plan.make import Key, Resolve, considered, current_value, judge, unsafe
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
    """How a plan stands to a vendor's advice."""

    AGREES = "agrees"  # the target has the value, or gets it by the plan
    OPEN = "open"  # it has another, and no rule of the profile sets any
    CONFLICT = "conflict"  # the profile wants another
    FIXED = "fixed"  # this kernel or device does not let it be set so


class Advice(Struct, frozen=True):
    """What a vendor asks of one setting of one target.

    ``advised`` is the vendor's value, None where it asks to leave the setting as it is, and
    ``value`` the nearest one that this device takes, None where it takes none. Where the two
    differ, ``limit`` says why. ``planned`` is what the setting is after the plan, by the rule
    ``against`` if that is in ``conflict`` with the advice. ``note`` says what is wrong with the
    advice today. ``why``, ``source`` and ``rule`` are those of the vendor's rule.
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


def advise(
    machine: Machine,
    rules: Collection[VendorRule],
    plan: Plan,
    *,
    uses: Mapping[str, Iterable[str]] | None = None,
    excluded: Collection[str] = (),
    only: Collection[str] | None = None,
) -> tuple[Advice, ...]:
    """Return the advice for the targets of a machine, in the machine's order.

    ``uses`` has the names of the disks that are used for something, ``excluded`` the ids of targets
    that are left alone. ``only`` are the ids that were asked for, None for all. A setting that a
    target does not have, or that cannot be read, gets none.
    """
    if not rules:
        return ()
    known = {each.rule.name: each for each in rules}
    matcher = Matcher(_profile(each.rule for each in rules))
    rows = {(row.id, row.setting): row for row in plan.rows}
    alone = {endpoint.id for endpoint in machine.endpoints if unsafe(endpoint) is not None} | {
        *excluded
    }
    meant = _meant(machine, uses or {})
    found: list[Advice] = []
    for target, matched, resolve in considered(machine, matcher.matched):
        if target.id in alone or (only is not None and target.id not in only):
            continue
        said = [known[rule.name] for rule in matched]
        said = [each for each in said if each.use is None or target.id in meant[each.use]]
        if said:
            found += _of_target(target, said, resolve, rows)
    return tuple(found)


def _profile(rules: Iterable[Rule]) -> Profile:
    """Return the rules in the form that a matcher takes."""
    return Profile("vendors", "", Origin.VENDOR, tuple(rules), (), ProbeSpec(), ())


def _meant(machine: Machine, uses: Mapping[str, Iterable[str]]) -> Mapping[str, frozenset[str]]:
    names = SiteNames(machine) if uses else None
    return {use: names.meant(disks) for use, disks in uses.items()} if names else {}


def _of_target(
    target: Target, said: Collection[VendorRule], resolve: Resolve, rows: Mapping[Key, Row]
) -> Iterator[Advice]:
    # A vendor's own scheduler decides what its nr_requests can be.
    own = {each.vendor: each for each in said if each.rule.setting == SCHEDULER}
    for each in said:
        setting = SETTINGS[each.rule.setting]
        current = current_value(target, setting)
        if isinstance(current, Missing):
            continue
        row = rows.get((target.id, setting.name))
        scheduler = _scheduler(target, own.get(each.vendor), rows.get((target.id, SCHEDULER)))
        yield _advice(target, each, current, row, scheduler, resolve)


def _scheduler(target: Target, own: VendorRule | None, row: Row | None) -> Value | Missing:
    if own is not None and isinstance(own.rule.effect, Exactly):
        return own.rule.effect.value
    if row is not None and row.value is not None:
        return row.value
    return current_value(target, SETTINGS[SCHEDULER])


def _advice(
    target: Target,
    said: VendorRule,
    current: Value,
    row: Row | None,
    scheduler: Value | Missing,
    resolve: Resolve,
) -> Advice:
    rule = said.rule
    planned = current if row is None or row.value is None else row.value
    advised: Value | None = None
    value: Value | None = None
    limit: str | None = None
    if not isinstance(rule.effect, Leave):
        verdict = judge(SETTINGS[rule.setting], rule.effect, current, scheduler, resolve)
        advised, value, limit = rule.effect.value, verdict.value, verdict.limit
    stance = _stance(rule.effect, current, value, planned, row)
    return Advice(
        target=target.name,
        id=target.id,
        adapter=target.adapter,
        setting=rule.setting,
        vendor=said.vendor,
        current=current,
        advised=advised,
        value=value,
        planned=planned,
        stance=stance,
        against=row.rule if row is not None and stance is Stance.CONFLICT else None,
        limit=limit,
        note=said.note,
        why=rule.because,
        source=rule.source,
        rule=rule.name,
    )


def _stance(
    effect: Effect, current: Value, value: Value | None, planned: Value, row: Row | None
) -> Stance:
    """Judge by the value after the plan: ``value`` is the nearest to the advice that is legal."""
    if isinstance(effect, Leave):
        kept = row is None or row.value is None or planned == current
        return Stance.AGREES if kept else Stance.CONFLICT
    if _reaches(effect, planned):
        return Stance.AGREES
    ruled = row is not None and row.state in (State.OK, State.DRIFT)
    if ruled and value is not None and not _reaches(effect, planned, value):
        return Stance.CONFLICT
    if value is None or value == current:
        return Stance.FIXED
    return Stance.AGREES if planned == value else Stance.OPEN


def _reaches(effect: Effect, planned: Value, least: Value | None = None) -> bool:
    assert not isinstance(effect, Leave)
    wanted = effect.value if least is None else least
    if isinstance(effect, AtLeast) and isinstance(planned, int) and isinstance(wanted, int):
        return planned >= wanted
    return planned == wanted
