"""Plan module options, which take effect when a driver's module is loaded next. Pure.

An option applies to every adapter of its module, so there is one row for each option. Its state is
``drift`` if it is neither in use nor written for the next load, and ``pending`` if it is written.

Some drivers make queue_depth read-only, but have an option for the initial depth of LUNs. A rule
for queue_depth is then planned as this option.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hbatune.facts.families import families, known_options
from hbatune.facts.family import Depth, Option, Purpose
from hbatune.facts.model import Adapter, Attribute, Machine, Missing, Reason, Role
from hbatune.facts.targets import list_adapter_names
from hbatune.plan.joint_limits import is_lower
from hbatune.plan.rows import Outcome, Row, State
from hbatune.policy.match import Matcher, SiteNames, build_traits
from hbatune.policy.profile import AtLeast, AtMost, Exactly, OptionRule, Profile
from hbatune.policy.rules import SITE_SOURCE
from hbatune.settings import table
from hbatune.text.limit_text import Limit, LimitReason

RenderedOptions = Mapping[tuple[str, str], str]
"""The options in modprobe.d for the next load: the text by module and option."""

_NO_TEXT = "(null)"  # an option without a text (kernel/params.c: param_get_charp)
_BY_DRIVE = "tag_info:"
_DEPTH = table.SETTINGS[table.QUEUE_DEPTH]


class PlannedOption(NamedTuple):
    """A planned module option. ``asked`` is whether one of its adapters was requested."""

    rule: OptionRule
    row: Row
    asked: bool


def plan_options(
    machine: Machine,
    profile: Profile,
    rendered: RenderedOptions,
    *,
    only: Collection[str] | None = None,
    named: Collection[str] = (),
    excluded: Collection[str] = (),
) -> tuple[PlannedOption, ...]:
    """Plan the profile's module options for the adapters of this machine.

    ``only`` contains the requested adapters, or None for all. ``named`` are the names that a person
    gave. An option of the adapter under the root disk is planned only if it is among them.
    ``excluded`` are the names that the site excludes. A module of an excluded device is skipped.
    """
    derived = _derive_depth_options(machine, profile)
    winners = {(rule.module, rule.option): rule for rule in (*derived, *profile.options)}
    planned = []
    for rule in winners.values():
        adapters = [adapter for adapter in machine.adapters if adapter.family == rule.module]
        if not adapters:
            continue
        row = _make_row(machine, rule, adapters, rendered.get((rule.module, rule.option)))
        is_shipped = not rule.source.startswith(SITE_SOURCE)
        option = known_options()[rule.module][rule.option]
        if row.state is State.ABSENT and option.optional and is_shipped:
            continue
        if row.state is State.DRIFT and (reason := _find_veto(machine, adapters, named, excluded)):
            row = replace(row, state=State.EXCLUDED, value=None, limit=reason)
        is_requested = only is None or any(adapter.target in only for adapter in adapters)
        planned.append(PlannedOption(rule, row, is_requested))
    return tuple(planned)


def make_option_lines(
    planned: Sequence[PlannedOption], rendered: RenderedOptions
) -> tuple[OptionRule, ...]:
    """Return the lines of the generated file: the rules, with the values to write.

    An option that an earlier file set stays in the file, or the next load would lose it. Options
    that were not requested stay unchanged in the file.
    """
    lines = []
    for rule, row, is_requested in planned:
        value: table.Value | None = rendered.get((rule.module, rule.option))
        if is_requested and row.state in (State.DRIFT, State.PENDING):
            value = row.value
        if value is not None:
            lines.append(replace(rule, effect=Exactly(value)))
    return tuple(sorted(lines, key=lambda line: (line.module, line.option)))


def set_outcomes(
    rows: Sequence[Row], rendered: RenderedOptions, errno: int | None
) -> tuple[Row, ...]:
    """Return the rows with the outcomes of a write: the file has ``rendered``, or it failed."""
    outcomes = []
    for row in rows:
        module, _, option = row.setting.partition(".")
        text = rendered.get((module, option))
        if row.state in (State.OK, State.PENDING):
            row = replace(row, outcome=Outcome.KEPT)
        elif row.state is State.DRIFT and errno is not None:
            row = replace(row, outcome=Outcome.REFUSED, errno=errno)
        elif row.state is State.DRIFT and text != str(row.value):
            row = replace(row, outcome=Outcome.IGNORED, found=text)
        elif row.state is State.DRIFT:
            row = replace(row, state=State.PENDING, outcome=Outcome.WRITTEN)
        outcomes.append(row)
    return tuple(outcomes)


def find_root_modules(machine: Machine) -> frozenset[str]:
    """Return the root disk's modules: the initramfs loads them with its own copy of modprobe.d."""
    targets = _find_root_adapters(machine)
    return frozenset(adapter.family for adapter in machine.adapters if adapter.target in targets)


def _derive_depth_options(machine: Machine, profile: Profile) -> Iterator[OptionRule]:
    """Yield an option for each driver whose LUNs need a depth that cannot be written.

    The option applies to all LUNs of the driver, so the highest requested depth counts.
    """
    matcher = Matcher(profile)
    adapters = machine.adapters_by_target
    for family in families():
        options = [option for option in family.options if option.purpose is Purpose.LUN_DEPTH]
        if family.depth is not Depth.FIXED or not options:
            continue
        option, deepest, is_short = options[0], None, False
        for endpoint in machine.endpoints:
            if endpoint.family != family.name:
                continue
            rules = matcher.won(build_traits(endpoint, adapters.get(endpoint.adapter or "")))
            rule, depth = rules.get(table.QUEUE_DEPTH), _DEPTH.read_number(endpoint.attributes)
            if rule and isinstance(rule.effect, AtLeast | Exactly) and depth is not None:
                wanted = min(int(rule.effect.value), option.high or table.MAX_QUEUE_DEPTH)
                is_short = is_short or wanted > depth
                if deepest is None or wanted > deepest[0]:
                    deepest = wanted, rule
        if deepest is None:
            continue
        wanted, rule = deepest
        effect: Exactly | AtLeast = AtLeast(wanted)
        if option.key:
            attribute = _find_parameter(machine, family.name, option.name)
            text = attribute.text if isinstance(attribute, Attribute) else ""
            if not is_short and text in ("", _NO_TEXT):
                continue
            # A text that is deep enough stays unchanged, also in hbatune's file.
            effect = Exactly(_compose_option(text, option.key, wanted) if is_short else text)
        origin = (rule.because, rule.source, rule.file)
        yield OptionRule(rule.name, family.name, option.name, effect, *origin)


def _find_parameter(machine: Machine, module: str, option: str) -> Attribute | Missing:
    return machine.parameters_by_module.get(module, {}).get(option, Missing(Reason.ABSENT))


def _compose_option(text: str, key: str, number: int) -> str:
    """Return an option's text of several parts with ``KEY:NUMBER`` and unchanged other parts.

    The depth is only raised. Parts are separated by commas or dots (drivers/scsi/aic7xxx/
    aic7xxx_osm.c: aic7xxx_setup).
    """
    other_parts = []
    for part in re.split(r"[,.](?![^{]*})", "" if text == _NO_TEXT else text):
        name, _, depth = part.partition(":")
        if part and (name != key or ":" not in part):
            other_parts.append(part)
        elif depth.isdecimal():
            number = max(number, int(depth))
    return ",".join((*other_parts, f"{key}:{number}"))


def _find_witness(machine: Machine, adapters: Sequence[Adapter], purpose: Purpose) -> int | None:
    """Return the value of an option as the devices show it, or None.

    A depth shows in the LUNs, a number of vectors in ``msi_irqs``. The adapter with the fewest
    vectors counts. One with an interrupt line, or without readable vectors, shows nothing.
    """
    targets = {adapter.target for adapter in adapters}
    if purpose is not Purpose.LUN_DEPTH:
        vectors = [vector for vector in machine.vectors if vector.role is not Role.LINE]
        counts = Counter(vector.adapter for vector in vectors)
        return min(counts[target] for target in targets) or None
    disks = (endpoint for endpoint in machine.endpoints if endpoint.adapter in targets)
    depths = (_DEPTH.read_number(disk.attributes) for disk in disks)
    return max((depth for depth in depths if depth is not None), default=None)


def _make_row(
    machine: Machine, rule: OptionRule, adapters: Sequence[Adapter], written: str | None
) -> Row:
    """Return the row of an option; ``written`` is its text for the next load."""
    option = known_options()[rule.module][rule.option]
    attribute = _find_parameter(machine, rule.module, rule.option)
    current: table.Value | None = None
    if not option.shown:
        current = _find_witness(machine, adapters, option.purpose)
    elif isinstance(attribute, Attribute):
        # A bool reads Y or N (kernel/params.c: param_get_bool).
        current = {"N": 0, "Y": 1}.get(attribute.text, table.parse_number_or_text(attribute.text))
    row = Row(
        target=rule.module,
        id=f"module:{rule.module}",
        adapter=adapters[0].target if len(adapters) == 1 else None,
        setting=rule.setting,
        current=current,
        wanted=rule.effect.value,
        value=rule.effect.value,
        state=State.PENDING if written == str(rule.effect.value) else State.DRIFT,
        limit=None,
        why=rule.because,
        source=rule.source,
        rule=rule.name,
    )
    if not option.shown:
        return _complete_unshown_row(row, rule, option, written)
    if isinstance(current, str) and _BY_DRIVE in current and rule.effect.value != current:
        return replace(row, state=State.EXCLUDED, value=None, limit=LimitReason(Limit.BY_DRIVE))
    if isinstance(attribute, Missing):
        state = State.ABSENT if attribute.reason is Reason.ABSENT else State.UNREADABLE
        return replace(row, state=state, value=None, limit=attribute.text)
    if current is not None and _satisfies(rule.effect, current, option):
        reason = None if current == row.wanted else LimitReason(Limit.AT_MAXIMUM)
        return replace(row, state=State.OK, value=current, limit=reason)
    return row


def _complete_unshown_row(row: Row, rule: OptionRule, option: Option, written: str | None) -> Row:
    """Complete the row of an option that the loaded module does not show.

    Without a witness of the value in use, the row is never ok. It is unreadable, unless hbatune's
    file has the option.
    """
    used = row.current
    if used is None:
        row = replace(row, limit=LimitReason(Limit.NOT_SHOWN))
        return row if written else replace(row, state=State.UNREADABLE, value=None)
    is_depth = option.purpose is Purpose.LUN_DEPTH
    evidence = LimitReason(Limit.SEEN_IN_LUNS if is_depth else Limit.SEEN_IN_VECTORS)
    row = replace(row, limit=LimitReason(Limit.NOT_SHOWN, parts=(evidence,)))
    is_met = _satisfies(rule.effect, used, option)
    return replace(row, state=State.OK, value=used) if is_met else row


def _satisfies(effect: Exactly | AtLeast | AtMost, current: table.Value, option: Option) -> bool:
    if isinstance(effect, AtLeast):
        # With the option's default, the driver uses its maximum.
        return current in (effect.value, option.own) or is_lower(effect.value, current)
    is_below = isinstance(effect, AtMost) and is_lower(current, effect.value)
    return is_below or current == effect.value


def _find_root_adapters(machine: Machine) -> frozenset[str]:
    """Return the adapters under the root filesystem, through all layers."""
    mounted = (endpoint for endpoint in machine.endpoints if "/" in endpoint.mounts)
    return frozenset(endpoint.adapter for endpoint in mounted if endpoint.adapter)


def _find_veto(
    machine: Machine, adapters: Sequence[Adapter], named: Collection[str], excluded: Collection[str]
) -> LimitReason | None:
    """Return the reason not to write an option of these adapters, or None.

    The site excludes one of them or of their disks, or one is under the root disk and not among the
    ``named``. Disk names do not match their adapter.
    """
    names = {adapter.target: list_adapter_names(adapter) for adapter in adapters}
    excluded_names = sorted(target for target in names if not names[target].isdisjoint(excluded))
    excluded_ids = SiteNames(machine).meant(excluded) if excluded else ()
    for endpoint in machine.endpoints:
        if endpoint.adapter in names and endpoint.id in excluded_ids:
            excluded_names.append(endpoint.target)
    if excluded_names:
        return LimitReason(Limit.DEVICE_EXCLUDED, (excluded_names[0],))
    # A wrong option of the driver under the root disk can keep the machine from booting.
    root_adapters = _find_root_adapters(machine)
    for target in names:
        if target in root_adapters and names[target].isdisjoint(named):
            return LimitReason(Limit.UNDER_ROOT, (target,))
    return None
