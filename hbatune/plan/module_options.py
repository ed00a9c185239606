"""Plans module options, which take effect when a driver's module is loaded next. Pure.

An option is for every adapter of its module, so there is one row for each option. It is ``drift``
while it is neither in use nor written down for the next load, and ``pending`` once it is.

Where a driver makes queue_depth read-only and has an option for the depth that LUNs start with, a
rule for queue_depth is planned as that option, if options are asked for at all.

Some options cannot be read back from a loaded module. What is in use then follows from what the
LUNs show, or is taken for the driver's own, and the row says so.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.families import families, known_options
from hbatune.facts.family import Depth, Option, Purpose
from hbatune.facts.model import Adapter, Attribute, Endpoint, Machine, Missing, Reason
from hbatune.plan.rows import Outcome, Row, State
from hbatune.policy.match import Matcher, SiteNames
from hbatune.policy.profile import AtLeast, AtMost, Exactly, OptionRule, Profile, Rule
from hbatune.settings.table import MAX_QUEUE_DEPTH, QUEUE_DEPTH, SETTINGS, Value

UNDER_ROOT = "the root disk hangs on {}: name that adapter to have it set"
EXCLUDED = "{} is excluded in [site]"
NOT_SHOWN = "a loaded module does not say what is in use"
BY_DRIVE = "the option gives each drive a depth of its own (tag_info)"

Rendered = Mapping[tuple[str, str], str]
"""The options that modprobe.d has for the next load: the text by module and option."""


_NO_TEXT = "(null)"  # a text that was not given (kernel/params.c: param_get_charp)
_BY_DRIVE = "tag_info:"


class OptionLine(Struct, frozen=True):
    """One line of the generated file, with its reason."""

    module: str
    option: str
    value: Value
    why: str
    source: str
    rule: str


class Planned(NamedTuple):
    """A planned module option; ``asked`` is whether one of its adapters was asked for."""

    rule: OptionRule
    row: Row
    asked: bool


def plan_options(
    machine: Machine,
    profile: Profile,
    rendered: Rendered,
    *,
    only: Collection[str] | None = None,
    named: Collection[str] = (),
    excluded: Collection[str] = (),
) -> tuple[Planned, ...]:
    """Plan the profile's module options for the adapters of this machine.

    ``only`` has the adapters that were asked for, None for all. ``named`` are the names that a
    person gave: an option of the adapter under the root disk is planned only if they name it.
    ``excluded`` are names that the site excludes; a module that serves one of them is left alone.
    """
    derived = _depth_options(machine, profile)
    winners = {(rule.module, rule.option): rule for rule in (*derived, *profile.options)}
    modules = {module.name: module.parameters for module in machine.modules}
    rooted = _under_root(machine)
    planned = []
    for (module, option), rule in winners.items():
        adapters = [adapter for adapter in machine.adapters if adapter.family == module]
        if not adapters:
            continue
        found = modules.get(module, {}).get(option, Missing(Reason.ABSENT))
        declared, down = known_options()[module][option], rendered.get((module, option))
        if declared.shown:
            row = _row(rule, adapters, found, down)
        else:
            row = _row_unshown(rule, adapters, _witnessed(machine, declared, adapters), down)
        # A wrong option of the driver under the root disk can keep the machine from booting.
        unnamed = [
            adapter for adapter in adapters if adapter.target in rooted - _named(adapters, named)
        ]
        left = _excluded(machine, adapters, excluded)
        if row.state is State.DRIFT and (left or unnamed):
            why = EXCLUDED.format(left[0]) if left else UNDER_ROOT.format(unnamed[0].target)
            row = replace(row, state=State.EXCLUDED, value=None, limit=why)
        asked = only is None or any(adapter.target in only for adapter in adapters)
        planned.append(Planned(rule, row, asked))
    return tuple(planned)


def option_lines(planned: Sequence[Planned], rendered: Rendered) -> tuple[OptionLine, ...]:
    """Return the lines of the generated file.

    An option that is in use because an earlier file set it stays in the file, or the next load
    would forget it; options that were not asked for stay as the file has them.
    """
    found = []
    for rule, row, asked in planned:
        written = rendered.get((rule.module, rule.option))
        value: Value | None = written
        if asked and row.state in (State.DRIFT, State.PENDING):
            value = row.value
        if value is not None:
            why = (rule.because, rule.source, rule.name)
            found.append(OptionLine(rule.module, rule.option, value, *why))
    return tuple(sorted(found, key=lambda line: (line.module, line.option)))


def written(rows: Sequence[Row], now: Rendered, errno: int | None) -> tuple[Row, ...]:
    """Return the rows with their outcomes, judged by the options that the file has ``now``.

    ``errno`` is the error of writing it, None if there was none.
    """
    return tuple(_written(row, now, errno) for row in rows)


def roots_modules(machine: Machine) -> frozenset[str]:
    """Return the modules that the root disk needs.

    They are loaded from the initramfs, which has its own copy of modprobe.d.
    """
    rooted = _under_root(machine)
    return frozenset(adapter.family for adapter in machine.adapters if adapter.target in rooted)


def _written(row: Row, now: Rendered, errno: int | None) -> Row:
    if row.state in (State.OK, State.PENDING):
        return replace(row, outcome=Outcome.KEPT)
    if row.state is not State.DRIFT:
        return row
    if errno is not None:
        return replace(row, outcome=Outcome.REFUSED, errno=errno)
    module, _, option = row.setting.partition(".")
    text = now.get((module, option))
    if text != str(row.value):
        return replace(row, outcome=Outcome.IGNORED, found=text)
    return replace(row, state=State.PENDING, outcome=Outcome.WRITTEN)


def _depth_options(machine: Machine, profile: Profile) -> Iterator[OptionRule]:
    """Yield an option for each driver whose LUNs are to be deeper than the driver lets be written.

    The deepest wish of all LUNs of the driver counts, since the option is for all of them.
    """
    matcher = Matcher(profile)
    adapters = {adapter.target: adapter for adapter in machine.adapters}
    for family in families():
        option = next((each for each in family.options if each.purpose is Purpose.LUN_DEPTH), None)
        if family.depth is not Depth.FIXED or option is None:
            continue
        wishes: list[tuple[int, bool, Rule]] = []
        for endpoint in machine.endpoints:
            if endpoint.family == family.name:
                rules = matcher.winners(endpoint, adapters.get(endpoint.adapter or ""))
                rule, depth = rules.get(QUEUE_DEPTH), _depth(endpoint)
                if rule and isinstance(rule.effect, AtLeast | Exactly) and depth is not None:
                    wanted = min(int(rule.effect.value), option.high or MAX_QUEUE_DEPTH)
                    wishes.append((wanted, wanted > depth, rule))
        if not wishes:
            continue
        wanted, _, rule = max(wishes, key=lambda wish: wish[0])
        effect: Exactly | AtLeast = AtLeast(wanted)
        if option.key:
            text = _text(machine, family.name, option)
            deeper = any(short for _, short, _ in wishes)
            if not deeper and text in ("", _NO_TEXT):
                continue
            # A text that is deep enough stays as it is, also in hbatune's own file.
            effect = Exactly(composed(text, option.key, wanted) if deeper else text)
        told = (rule.because, rule.source, rule.file)
        yield OptionRule(rule.name, family.name, option.name, effect, *told)


def _text(machine: Machine, module: str, option: Option) -> str:
    """Return the text that a module was loaded with, empty where it shows none."""
    found = next((each.parameters for each in machine.modules if each.name == module), {})
    text = found.get(option.name)
    return text.text if isinstance(text, Attribute) else ""


def composed(text: str, key: str, number: int) -> str:
    """Return an option's text of several parts with ``KEY:NUMBER``, its other parts as they were.

    The depth is only ever raised. Parts are separated by commas or dots (drivers/scsi/aic7xxx/
    aic7xxx_osm.c: aic7xxx_setup).
    """
    parts = [each for each in re.split(r"[,.](?![^{]*})", text) if each and text != _NO_TEXT]
    others = [part for part in parts if not part.startswith(f"{key}:")]
    depths = [part.partition(":")[2] for part in parts if part.startswith(f"{key}:")]
    most = max([number, *(int(depth) for depth in depths if depth.isdecimal())])
    return ",".join((*others, f"{key}:{most}"))


def _witnessed(machine: Machine, option: Option, adapters: Sequence[Adapter]) -> int | None:
    """Return the value in use as the LUNs of the adapters show it: the deepest one's depth."""
    if option.purpose is not Purpose.LUN_DEPTH:
        return None
    own = {adapter.target for adapter in adapters}
    depths = [_depth(endpoint) for endpoint in machine.endpoints if endpoint.adapter in own]
    return max((depth for depth in depths if depth is not None), default=None)


def _depth(endpoint: Endpoint) -> int | None:
    found = endpoint.attributes.get(SETTINGS[QUEUE_DEPTH].path)
    text = found.text if isinstance(found, Attribute) else ""
    return int(text) if text.isdecimal() else None


def _row_unshown(
    rule: OptionRule, adapters: Sequence[Adapter], witnessed: int | None, written: str | None
) -> Row:
    """Return the row of an option that the loaded module does not show."""
    option = known_options()[rule.module][rule.option]
    row = _blank(rule, adapters, witnessed)
    used = option.default if witnessed is None and written is None else witnessed
    seen = "seen in the LUNs" if witnessed is not None else f"{used} is the driver's own"
    if used is not None and _satisfied(rule.effect, used, option):
        return replace(row, state=State.OK, value=used, limit=f"{NOT_SHOWN}; {seen}")
    state = State.PENDING if written == str(row.value) else State.DRIFT
    return replace(row, state=state, limit=NOT_SHOWN)


def _blank(rule: OptionRule, adapters: Sequence[Adapter], current: Value | None) -> Row:
    return Row(
        target=rule.module,
        id=f"module:{rule.module}",
        adapter=adapters[0].target if len(adapters) == 1 else None,
        setting=rule.setting,
        current=current,
        wanted=rule.effect.value,
        value=rule.effect.value,
        state=State.DRIFT,
        limit=None,
        why=rule.because,
        source=rule.source,
        rule=rule.name,
    )


def _row(
    rule: OptionRule,
    adapters: Sequence[Adapter],
    found: Attribute | Missing,
    written: str | None,
) -> Row:
    current = None if isinstance(found, Missing) else _typed(found.text)
    option = known_options()[rule.module][rule.option]
    row = _blank(rule, adapters, current)
    if isinstance(current, str) and _BY_DRIVE in current and rule.effect.value != current:
        return replace(row, state=State.EXCLUDED, value=None, limit=BY_DRIVE)
    if isinstance(found, Missing):
        state = State.ABSENT if found.reason is Reason.ABSENT else State.UNREADABLE
        return replace(row, state=state, value=None, limit=found.text)
    if current is not None and _satisfied(rule.effect, current, option):
        limit = None if current == row.wanted else "as much as the driver takes, or more"
        return replace(row, state=State.OK, value=current, limit=limit)
    return replace(row, state=State.PENDING) if written == str(row.value) else row


def _satisfied(effect: Exactly | AtLeast | AtMost, current: Value, option: Option) -> bool:
    if current == effect.value:
        return True
    if not isinstance(current, int) or not isinstance(effect.value, int):
        return False
    if isinstance(effect, AtLeast):
        # The option's own default leaves the number to the driver, which takes as many as it can.
        return current >= effect.value or current == option.own
    return isinstance(effect, AtMost) and current <= effect.value


def _typed(text: str) -> Value:
    """Return a parameter's value; a bool reads Y or N (kernel/params.c: param_get_bool)."""
    if text in ("Y", "N"):
        return int(text == "Y")
    try:
        return int(text, 10)
    except ValueError:
        return text


def _under_root(machine: Machine) -> frozenset[str]:
    """Return the adapters under the root filesystem, through all layers between."""
    return frozenset(
        endpoint.adapter
        for endpoint in machine.endpoints
        if endpoint.adapter and "/" in endpoint.mounts
    )


def _named(adapters: Iterable[Adapter], names: Collection[str]) -> frozenset[str]:
    """Return the adapters that one of the names means: an adapter itself, not a disk on it."""
    return frozenset(
        adapter.target
        for adapter in adapters
        if {adapter.target, adapter.controller, *(host.name for host in adapter.hosts)} & set(names)
    )


def _excluded(machine: Machine, adapters: Sequence[Adapter], names: Collection[str]) -> list[str]:
    """Return the names of the excluded ones among these adapters and the disks on them."""
    own = {adapter.target for adapter in adapters}
    meant = SiteNames(machine).meant(names) if names else ()
    disks = [
        endpoint.target
        for endpoint in machine.endpoints
        if endpoint.adapter in own and endpoint.id in meant
    ]
    return [*sorted(_named(adapters, names)), *disks]
