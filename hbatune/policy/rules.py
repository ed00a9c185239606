"""Convert the tables of a file to rules, objectives and module options, and check their content.

Values are checked against the table of settings, so a plan contains no value that is illegal on
every device. The build uses the same checks before it compiles the shipped files.
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
    ProfilePart,
    Rule,
)
from hbatune.policy.schema import (
    OptionTable,
    ProfileFile,
    RulesFile,
    RuleTable,
    decode_file,
    describe_table,
    make_value_error,
)
from hbatune.policy.toml_files import PolicyError, TomlFile, quote_value, suggest_nearest
from hbatune.settings.table import SETTINGS, find_target_kind

SITE_SOURCE = "site"
_TEXT = re.compile(r"[A-Za-z0-9_.,:+-]{1,256}", re.ASCII)
_EFFECTS = ("value", "at_least", "at_most")


def check_rules(
    file: TomlFile,
    tables: Collection[RuleTable],
    origin: Origin,
    sources: Collection[str],
) -> tuple[Rule, ...]:
    """Return the file's rules. Raise ``PolicyError`` for the first invalid rule.

    ``sources`` are the ids that may be cited.
    """
    rules: list[Rule] = []
    for number, table in enumerate(tables):
        require_source(file, ("rule", number, "source"), table.source, origin, sources)
        rule = Rule(
            name=table.name,
            when=table.when,
            setting=table.setting,
            effect=_make_effect(file, number, table),
            because=table.because,
            source=table.source,
            file=str(file.path),
            origin=origin,
        )
        _require_askable(file, number, rule)
        _require_no_clash(file, number, rule, rules)
        rules.append(rule)
    return tuple(rules)


def check_objectives(
    file: TomlFile, objectives: tuple[Objective, ...], origin: Origin, sources: Collection[str]
) -> tuple[Objective, ...]:
    """Return the file's objectives. Raise ``PolicyError`` if one cites an unknown source."""
    for number, objective in enumerate(objectives):
        require_source(file, ("objective", number, "source"), objective.source, origin, sources)
    return objectives


def _make_effect(file: TomlFile, number: int, table: RuleTable) -> Effect:
    """Return the effect of a rule. Raise ``PolicyError`` if its setting or value is invalid."""
    setting = SETTINGS.get(table.setting)
    if setting is None:
        expected = f"one of {', '.join(sorted(SETTINGS))}"
        hint = suggest_nearest(table.setting, SETTINGS)
        raise make_value_error(
            file, ("rule", number, "setting"), "setting", table.setting, expected, hint
        )
    keys = [key for key in ("value", "at_least", "leave") if getattr(table, key) is not None]
    if len(keys) != 1:
        present = " and ".join(f"`{key}`" for key in keys) or "none of them"
        raise _make_error(
            file,
            number,
            f"found {present}, expected exactly one of `value`, `at_least` and `leave`",
        )
    if table.value is not None:
        effect: Effect = Exactly(table.value)
        allowed = setting.format.check(table.value)
    elif table.at_least is not None:
        effect = AtLeast(table.at_least)
        allowed = setting.format.check(table.at_least)
    else:
        effect = Leave()
        allowed = None if table.leave else "true, or no `leave`"
    if allowed is not None:
        key = keys[0]
        raise make_value_error(file, ("rule", number, key), key, getattr(table, key), allowed)
    return effect


def require_source(
    file: TomlFile,
    steps: tuple[str | int, ...],
    source: str,
    origin: Origin,
    sources: Collection[str],
) -> None:
    """Raise ``PolicyError`` unless the source cited at ``steps`` is known or is the site.

    Only a site's file may cite the site. A shipped rule always cites a document.
    """
    cites_site = origin is Origin.SITE and (
        source == SITE_SOURCE or source.startswith(f"{SITE_SOURCE}:")
    )
    if source in sources or cites_site:
        return
    allowed = "the id of a shipped source such as D0-1"
    if origin is Origin.SITE:
        allowed += f', "{SITE_SOURCE}" or "{SITE_SOURCE}: " and a text of your own'
    raise make_value_error(file, steps, "source", source, allowed, suggest_nearest(source, sources))


def _require_askable(file: TomlFile, number: int, rule: Rule) -> None:
    """Raise ``PolicyError`` for endpoint conditions if the setting belongs to an adapter.

    Such a rule would never match, and an administrator would not notice it.
    """
    kind, condition = find_target_kind(rule.setting), rule.when
    if kind is TargetKind.ENDPOINT:
        if condition.transport:
            problem = f"{rule.setting} is set on a disk: only a controller's rules ask `transport`"
            raise _make_error(file, number, problem)
        return
    of_endpoints = (
        condition.kind,
        condition.multipath,
        condition.vendor,
        condition.tri_mode is not None,
    )
    of_controllers = kind is not TargetKind.CONTROLLER and (condition.model or condition.transport)
    other_values = {*condition.protocol} - {Protocol.NVME} or {*condition.medium} - {Medium.NVME}
    if any(of_endpoints) or of_controllers or other_values:
        extra_keys = "`model`, `transport`, " if kind is TargetKind.CONTROLLER else ""
        problem = (
            f"{rule.setting} is set on a {kind}: its rules can ask for `family`, `link`, "
            f'{extra_keys}`storage` and protocol "nvme" only'
        )
        raise _make_error(file, number, problem)


def _require_no_clash(file: TomlFile, number: int, rule: Rule, earlier: list[Rule]) -> None:
    """Raise ``PolicyError`` for a duplicate name, or two values for the same condition.

    Only rules within one file are compared: local rules, in a later file, may override others.
    """
    for index, earlier_rule in enumerate(earlier):
        if earlier_rule.name == rule.name:
            raise _make_error(file, number, f"this name is taken by {_locate_rule(file, index)}")
        if (
            earlier_rule.setting == rule.setting
            and earlier_rule.effect != rule.effect
            and _normalise_condition(earlier_rule.when) == _normalise_condition(rule.when)
        ):
            raise _make_error(
                file,
                number,
                f"contradicts {quote_value(earlier_rule.name)}, "
                f"{_locate_rule(file, index)}: the same "
                f"`when` and setting {rule.setting}, but another value",
            )


def _locate_rule(file: TomlFile, number: int) -> str:
    line = file.line(("rule", number))
    return f"rule number {number + 1}" if line is None else f"the rule on line {line}"


def _normalise_condition(condition: Match) -> tuple[object, ...]:
    """Return the condition in a form that is independent of the order of its values."""
    value_lists = (
        *(condition.family, condition.protocol, condition.medium, condition.kind),
        *(condition.multipath, condition.vendor, condition.storage, condition.model),
        *(condition.transport, condition.link.gen, condition.link.width),
    )
    return (condition.tri_mode, *(frozenset(values) for values in value_lists))


def _make_error(file: TomlFile, number: int, problem: str) -> PolicyError:
    steps = ("rule", number)
    return PolicyError(
        problem, file=file.path, line=file.line(steps), place=describe_table(file, steps)
    )


def check_options(
    file: TomlFile, tables: Collection[OptionTable], origin: Origin, sources: Collection[str]
) -> tuple[OptionRule, ...]:
    """Return the file's module options. Raise ``PolicyError`` for the first invalid option.

    An option that no family declares is rejected, because its effect is unknown.
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
                effect=_make_option_effect(file, number, table),
                because=table.because,
                source=table.source,
                file=str(file.path),
            )
        )
    return tuple(rules)


def describe_allowed(option: Option, value: object) -> str | None:
    """Return None if the option accepts the value, or a description of the accepted values."""
    # A plain word, because it is written to modprobe.d without quotes and a blank ends an option.
    if isinstance(value, str):
        return None if _TEXT.fullmatch(value) else "a number or a word without blanks and quotes"
    assert isinstance(value, int)
    low, high = option.low, option.high
    if value == option.own or ((low is None or value >= low) and (high is None or value <= high)):
        return None
    return f"an integer from {low} to {high}" if high is not None else f"an integer from {low}"


def _require_known(file: TomlFile, number: int, table: OptionTable) -> None:
    for key, value, names in (
        ("module", table.module, list(known_options())),
        ("option", table.option, list(known_options().get(table.module, {}))),
    ):
        if value not in names:
            expected = f"one of {', '.join(names)}"
            steps = ("option", number, key)
            raise make_value_error(file, steps, key, value, expected, suggest_nearest(value, names))


def _make_option_effect(
    file: TomlFile, number: int, table: OptionTable
) -> Exactly | AtLeast | AtMost:
    keys = [key for key in _EFFECTS if getattr(table, key) is not None]
    if len(keys) != 1:
        steps = ("option", number)
        raise PolicyError(
            "expected exactly one of `value`, `at_least` and `at_most`",
            file=file.path,
            line=file.line(steps),
            place=describe_table(file, steps),
        )
    [key] = keys
    value = getattr(table, key)
    expected = describe_allowed(known_options()[table.module][table.option], value)
    if expected is not None:
        raise make_value_error(file, ("option", number, key), key, value, expected)
    if key == "value":
        # The type that a bool of a loaded module is read as (plan/module_options.py).
        return Exactly(int(value) if isinstance(value, bool) else value)
    return AtLeast(value) if key == "at_least" else AtMost(value)


def check_part(file: TomlFile, origin: Origin, sources: Collection[str]) -> ProfilePart:
    """Return a profile, or a part that profiles include.

    ``sources`` are the ids that may be cited. Raise ``PolicyError`` for the first invalid entry.
    """
    content = decode_file(file, ProfileFile)
    return ProfilePart(
        file=str(file.path),
        origin=origin,
        title=content.title,
        include=content.include,
        probe=content.probe,
        tolerance=content.tolerance,
        rules=check_rules(file, content.rule, origin, sources),
        objectives=check_objectives(file, content.objective, origin, sources),
        options=check_options(file, content.option, origin, sources),
    )


def check_rules_file(file: TomlFile, sources: Collection[str]) -> ProfilePart:
    """Return a file of a site's ``rules.d``. Raise the same errors as ``check_part``."""
    content, origin = decode_file(file, RulesFile), Origin.SITE
    return ProfilePart(
        file=str(file.path),
        origin=origin,
        rules=check_rules(file, content.rule, origin, sources),
        objectives=check_objectives(file, content.objective, origin, sources),
        options=check_options(file, content.option, origin, sources),
    )
