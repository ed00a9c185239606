"""Plans module options, which take effect when a driver's module is loaded next. Pure.

An option is for every adapter of its module, so there is one row for each option. It is ``drift``
while it is neither in use nor written down for the next load, and ``pending`` once it is.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hbatune.facts.family import Option
from hbatune.facts.model import Adapter, Attribute, Machine, Missing, Reason
from hbatune.plan.rows import Outcome, Row, State
from hbatune.policy.match import SiteNames
from hbatune.policy.model import AtLeast, AtMost, Exactly, OptionRule, Profile
from hbatune.policy.rules import known_options
from hbatune.settings.table import Value

UNDER_ROOT = "the root disk hangs on {}: name that adapter to have it set"
EXCLUDED = "{} is excluded in [site]"

Rendered = Mapping[tuple[str, str], str]
"""The options that modprobe.d has for the next load: the text by module and option."""


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
    winners = {(rule.module, rule.option): rule for rule in profile.options}
    modules = {module.name: module.parameters for module in machine.modules}
    rooted = _under_root(machine)
    planned = []
    for (module, option), rule in winners.items():
        adapters = [each for each in machine.adapters if each.family == module]
        if not adapters:
            continue
        found = modules.get(module, {}).get(option, Missing(Reason.ABSENT))
        row = _row(rule, adapters, found, rendered.get((module, option)))
        # A wrong option of the driver under the root disk can keep the machine from booting.
        unnamed = [each for each in adapters if each.target in rooted - _named(adapters, named)]
        left = _excluded(machine, adapters, excluded)
        if row.state is State.DRIFT and (left or unnamed):
            why = EXCLUDED.format(left[0]) if left else UNDER_ROOT.format(unnamed[0].target)
            row = replace(row, state=State.EXCLUDED, value=None, limit=why)
        asked = only is None or any(each.target in only for each in adapters)
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
    return frozenset(each.family for each in machine.adapters if each.target in rooted)


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


def _row(
    rule: OptionRule,
    adapters: Sequence[Adapter],
    found: Attribute | Missing,
    written: str | None,
) -> Row:
    current = None if isinstance(found, Missing) else _typed(found.text)
    option = known_options()[rule.module][rule.option]
    row = Row(
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
        each.adapter for each in machine.endpoints if each.adapter and "/" in each.mounts
    )


def _named(adapters: Iterable[Adapter], names: Collection[str]) -> frozenset[str]:
    """Return the adapters that one of the names means: an adapter itself, not a disk on it."""
    return frozenset(
        each.target
        for each in adapters
        if {each.target, each.controller, *(host.name for host in each.hosts)} & set(names)
    )


def _excluded(machine: Machine, adapters: Sequence[Adapter], names: Collection[str]) -> list[str]:
    """Return the names of the excluded ones among these adapters and the disks on them."""
    own = {each.target for each in adapters}
    meant = SiteNames(machine).meant(names) if names else ()
    disks = [each.target for each in machine.endpoints if each.adapter in own and each.id in meant]
    return [*sorted(_named(adapters, names)), *disks]
