"""Makes rules and module options of a file's tables, with the checks beyond their shapes.

Values are checked against the table of settings here, so that a plan meets none that is illegal
on every device.

Checks the files that profiles are made of, and compiles the shipped ones for the build.
"""

import re
from collections.abc import Collection

from hbatune.facts.families import known_options
from hbatune.facts.family import Option
from hbatune.facts.model import Medium, Protocol, TargetKind
from hbatune.policy.profile import (
    AtLeast,
    AtMost,
    Effect,
    Exactly,
    Leave,
    Match,
    Objective,
    OptionRule,
    Origin,
    Part,
    Rule,
)
from hbatune.policy.schema import (
    OptionTable,
    ProfileFile,
    RulesFile,
    RuleTable,
    decode,
    place,
    wrong_value,
)
from hbatune.policy.toml_files import PolicyError, TomlFile, nearest, quoted
from hbatune.settings.table import SETTINGS, kind_of

SITE = "site"
_TEXT = re.compile(r"[A-Za-z0-9_.,:+-]{1,256}", re.ASCII)
_EFFECTS = ("value", "at_least", "at_most")


def checked_rules(
    file: TomlFile,
    tables: Collection[RuleTable],
    origin: Origin,
    sources: Collection[str],
) -> tuple[Rule, ...]:
    """Return the file's rules; raise ``PolicyError`` for the first that makes no sense.

    ``sources`` are the ids that may be cited.
    """
    rules: list[Rule] = []
    for number, table in enumerate(tables):
        require_source(file, ("rule", number, "source"), table.source, origin, sources)
        rule = Rule(
            name=table.name,
            when=table.when,
            setting=table.setting,
            effect=_effect(file, number, table),
            because=table.because,
            source=table.source,
            file=str(file.path),
            origin=origin,
        )
        _require_askable(file, number, rule)
        _require_no_clash(file, number, rule, rules)
        rules.append(rule)
    return tuple(rules)


def checked_objectives(
    file: TomlFile, objectives: tuple[Objective, ...], origin: Origin, sources: Collection[str]
) -> tuple[Objective, ...]:
    """Return the file's objectives; raise ``PolicyError`` for one that cites an unknown source."""
    for number, each in enumerate(objectives):
        require_source(file, ("objective", number, "source"), each.source, origin, sources)
    return objectives


def _effect(file: TomlFile, number: int, table: RuleTable) -> Effect:
    setting = SETTINGS.get(table.setting)
    if setting is None:
        known = f"one of {', '.join(sorted(SETTINGS))}"
        hint = nearest(table.setting, SETTINGS)
        raise wrong_value(file, ("rule", number, "setting"), "setting", table.setting, known, hint)
    said = [key for key in ("value", "at_least", "leave") if getattr(table, key) is not None]
    if len(said) != 1:
        found = " and ".join(f"`{key}`" for key in said) or "none of them"
        raise _problem(
            file, number, f"found {found}, expected exactly one of `value`, `at_least` and `leave`"
        )
    if table.value is not None:
        effect: Effect = Exactly(table.value)
        allowed = setting.check(table.value)
    elif table.at_least is not None:
        effect = AtLeast(table.at_least)
        allowed = setting.check(table.at_least)
    else:
        effect = Leave()
        allowed = None if table.leave else "true, or no `leave`"
    if allowed is not None:
        key = said[0]
        raise wrong_value(file, ("rule", number, key), key, getattr(table, key), allowed)
    return effect


def require_source(
    file: TomlFile,
    steps: tuple[str | int, ...],
    source: str,
    origin: Origin,
    sources: Collection[str],
) -> None:
    """Raise ``PolicyError`` unless the source cited at ``steps`` is known or the site's own.

    Only a site's own file may cite the site: a shipped rule always rests on a document.
    """
    own = origin is Origin.SITE and (source == SITE or source.startswith(f"{SITE}:"))
    if source in sources or own:
        return
    allowed = "the id of a shipped source such as D0-1"
    if origin is Origin.SITE:
        allowed += f', "{SITE}" or "{SITE}: " and a text of your own'
    raise wrong_value(file, steps, "source", source, allowed, nearest(source, sources))


def _require_askable(file: TomlFile, number: int, rule: Rule) -> None:
    """Refuse conditions that only endpoints have, if the setting is an adapter's own.

    Such a rule would never match, which an administrator would not notice.
    """
    kind, when = kind_of(rule.setting), rule.when
    if kind is TargetKind.ENDPOINT:
        if when.transport:
            problem = f"{rule.setting} is set on a disk: only a controller's rules ask `transport`"
            raise _problem(file, number, problem)
        return
    of_endpoints = (when.kind, when.multipath, when.vendor, when.tri_mode is not None)
    of_controllers = kind is not TargetKind.CONTROLLER and (when.model or when.transport)
    others = {*when.protocol} - {Protocol.NVME} or {*when.medium} - {Medium.NVME}
    if any(of_endpoints) or of_controllers or others:
        more = "`model`, `transport`, " if kind is TargetKind.CONTROLLER else ""
        problem = (
            f"{rule.setting} is set on a {kind}: its rules can ask for `family`, `link`, {more}"
            '`storage` and protocol "nvme" only'
        )
        raise _problem(file, number, problem)


def _require_no_clash(file: TomlFile, number: int, rule: Rule, earlier: list[Rule]) -> None:
    """Refuse a name used twice, and two values for exactly the same condition.

    Within one file only: a site's own rules, in a later file, are there to override.
    """
    for other, before in enumerate(earlier):
        if before.name == rule.name:
            raise _problem(file, number, f"this name is taken by {_at(file, other)}")
        if (
            before.setting == rule.setting
            and before.effect != rule.effect
            and _canonical(before.when) == _canonical(rule.when)
        ):
            raise _problem(
                file,
                number,
                f"contradicts {quoted(before.name)}, {_at(file, other)}: the same `when` and "
                f"setting {rule.setting}, but another value",
            )


def _at(file: TomlFile, number: int) -> str:
    line = file.line(("rule", number))
    return f"rule number {number + 1}" if line is None else f"the rule on line {line}"


def _canonical(when: Match) -> tuple[object, ...]:
    """Return ``when`` in a form in which the order of its values does not count."""
    lists = (when.family, when.protocol, when.medium, when.kind, when.multipath, when.vendor)
    links = (when.link.gen, when.link.width)
    rest = (when.storage, when.model, when.transport, *links)
    return (when.tri_mode, *(frozenset(each) for each in (*lists, *rest)))


def _problem(file: TomlFile, number: int, problem: str) -> PolicyError:
    steps = ("rule", number)
    return PolicyError(problem, file=file.path, line=file.line(steps), place=place(file, steps))


def checked_options(
    file: TomlFile, tables: Collection[OptionTable], origin: Origin, sources: Collection[str]
) -> tuple[OptionRule, ...]:
    """Return the file's module options; raise ``PolicyError`` for the first that makes no sense.

    A module or option that no family declares is refused: nothing is known of its effect.
    """
    rules = []
    for number, table in enumerate(tables):
        require_source(file, ("option", number, "source"), table.source, origin, sources)
        _require_known(file, number, table)
        rules.append(
            OptionRule(
                name=table.name,
                module=table.module,
                option=table.option,
                effect=_option_effect(file, number, table),
                because=table.because,
                source=table.source,
                file=str(file.path),
            )
        )
    return tuple(rules)


def allowed(option: Option, value: object) -> str | None:
    """Return None for a value that the option takes, else the values that it takes, in words."""
    # A plain word: it stands unquoted in a file of modprobe.d, where a blank starts an option.
    if isinstance(value, str):
        return None if _TEXT.fullmatch(value) else "a number or a word without blanks and quotes"
    assert isinstance(value, int)
    low, high = option.low, option.high
    if value == option.own or ((low is None or value >= low) and (high is None or value <= high)):
        return None
    return f"an integer from {low} to {high}" if high is not None else f"an integer from {low}"


def _require_known(file: TomlFile, number: int, table: OptionTable) -> None:
    for key, found, known in (
        ("module", table.module, list(known_options())),
        ("option", table.option, list(known_options().get(table.module, {}))),
    ):
        if found not in known:
            words = f"one of {', '.join(known)}"
            steps = ("option", number, key)
            raise wrong_value(file, steps, key, found, words, nearest(found, known))


def _option_effect(file: TomlFile, number: int, table: OptionTable) -> Exactly | AtLeast | AtMost:
    said = [key for key in _EFFECTS if getattr(table, key) is not None]
    if len(said) != 1:
        steps = ("option", number)
        raise PolicyError(
            "expected exactly one of `value`, `at_least` and `at_most`",
            file=file.path,
            line=file.line(steps),
            place=place(file, steps),
        )
    [key] = said
    value = getattr(table, key)
    taken = allowed(known_options()[table.module][table.option], value)
    if taken is not None:
        raise wrong_value(file, ("option", number, key), key, value, taken)
    if key == "value":
        # As a bool is read back from a loaded module (plan/module_options.py).
        return Exactly(int(value) if isinstance(value, bool) else value)
    return AtLeast(value) if key == "at_least" else AtMost(value)


def part_of(file: TomlFile, origin: Origin, sources: Collection[str]) -> Part:
    """Return a profile, or a part that profiles include; ``sources`` are the ids that may be cited.

    Raises ``PolicyError`` for the first thing in it that makes no sense.
    """
    content = decode(file, ProfileFile)
    return Part(
        file=str(file.path),
        origin=origin,
        title=content.title,
        include=content.include,
        probe=content.probe,
        tolerance=content.tolerance,
        rules=checked_rules(file, content.rule, origin, sources),
        objectives=checked_objectives(file, content.objective, origin, sources),
        options=checked_options(file, content.option, origin, sources),
    )


def rules_of(file: TomlFile, sources: Collection[str]) -> Part:
    """Return a file of a site's ``rules.d``; raises as ``part_of`` does."""
    content, origin = decode(file, RulesFile), Origin.SITE
    return Part(
        file=str(file.path),
        origin=origin,
        rules=checked_rules(file, content.rule, origin, sources),
        objectives=checked_objectives(file, content.objective, origin, sources),
        options=checked_options(file, content.option, origin, sources),
    )
