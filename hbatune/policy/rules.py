"""Convert the tables of a file to rules, objectives and module options, and check their content.

Values are checked against the table of settings, so a plan contains no value that is illegal on
every device.
"""

import re
from collections.abc import Collection, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import asdict, replace

from hbatune.facts.families import family_named, known_options
from hbatune.facts.family import Option
from hbatune.facts.model import Medium, Protocol, TargetKind
from hbatune.policy import profile as profiles
from hbatune.policy import schema
from hbatune.policy.profile import Match, Origin, Rule
from hbatune.policy.schema import RuleTable, decode_file, make_error, make_value_error
from hbatune.policy.toml_files import PolicyError, TomlFile, quote_value, suggest_nearest
from hbatune.settings.table import SETTINGS, find_target_kind

SITE_SOURCE = "site"
_TEXT = r"[A-Za-z0-9_.,:+-]{1,256}"
_EFFECTS: dict[str, type[profiles.Exactly | profiles.AtLeast | profiles.AtMost]] = {
    "value": profiles.Exactly,
    "at_least": profiles.AtLeast,
    "at_most": profiles.AtMost,
}


Sources = Mapping[str, profiles.Source]
"""The sources that rules may cite, by id."""
Doubts = list[PolicyError] | None
"""The list that collects errors, for example invalid citations, or None to raise the first one."""


def check_rules(
    file: TomlFile,
    tables: Collection[RuleTable],
    origin: Origin,
    sources: Sources | None,
    doubts: Doubts = None,
) -> tuple[Rule, ...]:
    """Return the file's rules. Raise ``PolicyError`` for the first invalid rule or citation.

    With ``doubts``, a rule with an invalid citation becomes doubtful (``profiles.Leave``).
    """
    rules: list[Rule] = []
    usable: list[Rule] = []
    for number, table in enumerate(tables):
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
        steps = ("rule", number, "source")
        is_cited = check_source(file, steps, rule.source, origin, sources, rule.setting, doubts)
        _require_askable(file, number, rule)
        _require_no_clash(file, number, rule, rules)
        rules.append(rule)
        usable.append(rule if is_cited else replace(rule, effect=profiles.Leave(doubtful=True)))
    return tuple(usable)


def _make_effect(file: TomlFile, number: int, table: RuleTable) -> profiles.Effect:
    """Return the effect of a rule. Raise ``PolicyError`` if its setting or value is invalid."""
    setting = SETTINGS.get(table.setting)
    if setting is None:
        expected = f"one of {', '.join(sorted(SETTINGS))}"
        hint = suggest_nearest(table.setting, SETTINGS)
        raise make_value_error(file, ("rule", number, "setting"), table.setting, expected, hint)
    keys = [key for key in ("value", "at_least", "leave") if getattr(table, key) is not None]
    if len(keys) != 1:
        present = " and ".join(f"`{key}`" for key in keys) or "none of them"
        expected = "exactly one of `value`, `at_least` and `leave`"
        raise make_error(file, ("rule", number), f"found {present}, expected {expected}")
    [key] = keys
    value = getattr(table, key)
    if key == "leave":
        effect: profiles.Effect = profiles.Leave()
        allowed = None if value else "true, or no `leave`"
    else:
        effect = profiles.Exactly(value) if key == "value" else profiles.AtLeast(value)
        allowed = setting.format.check(value)
    if allowed is not None:
        raise make_value_error(file, ("rule", number, key), value, allowed)
    return effect


def check_source(
    file: TomlFile,
    steps: tuple[str | int, ...],
    source: str,
    origin: Origin,
    sources: Sources | None,
    setting: str | None = None,
    doubts: Doubts = None,
) -> bool:
    """Return whether the source cited at ``steps`` covers the setting, if any.

    If not, the error is raised or added to ``doubts``. Only a site's file may cite the site, which
    covers all settings. A shipped rule always cites a document. Without ``sources``, nothing is
    checked.
    """
    if sources is None:
        return True
    if source in sources:
        if setting is None or setting in sources[source].settings:
            return True
        problem = f"{source} does not cover {setting}"
        hint = f'`hbatune explain {source}` shows its settings; "{SITE_SOURCE}" is for your own'
        error = make_error(file, steps, problem, key="source", hint=hint)
    else:
        allowed = "the id of a shipped source such as D0-1"
        if origin is Origin.SITE:
            if source == SITE_SOURCE or source.startswith(f"{SITE_SOURCE}:"):
                return True
            allowed += f', "{SITE_SOURCE}" or "{SITE_SOURCE}: " and a text of your own'
        hint = suggest_nearest(source, sources) or "`hbatune profiles` lists the ids"
        error = make_value_error(file, steps, source, allowed, hint)
    if doubts is None:
        raise error
    doubts.append(error)
    return False


def _require_askable(file: TomlFile, number: int, rule: Rule) -> None:
    """Raise ``PolicyError`` for endpoint conditions if the setting belongs to an adapter.

    Such a rule would never match, and an administrator would not notice it.
    """
    kind, condition, steps = find_target_kind(rule.setting), rule.when, ("rule", number)
    if kind is TargetKind.ENDPOINT:
        if condition.transport:
            problem = f"{rule.setting} is set on a disk: only controller rules match `transport`"
            raise make_error(file, steps, problem)
        return
    of_disks = bool(condition.kind or condition.multipath or condition.vendor)
    of_disks = of_disks or condition.tri_mode is not None or condition.rotational is not None
    of_controllers = kind is not TargetKind.CONTROLLER and (condition.model or condition.transport)
    other_values = {*condition.protocol} - {Protocol.NVME} or {*condition.medium} - {Medium.NVME}
    if of_disks or of_controllers or other_values:
        extra_keys = "`model`, `transport`, " if kind is TargetKind.CONTROLLER else ""
        problem = f"{rule.setting} is set on a {kind}: its rules can only match `family`, `link`, "
        problem += f'{extra_keys}`storage` and protocol "nvme"'
        raise make_error(file, steps, problem)


def _require_no_clash(file: TomlFile, number: int, rule: Rule, earlier: list[Rule]) -> None:
    """Raise ``PolicyError`` for a duplicate name, or two values for the same condition.

    Only rules within one file are compared: local rules, in a later file, may override others.
    """
    steps = ("rule", number)
    for index, earlier_rule in enumerate(earlier):
        if earlier_rule.name == rule.name:
            raise make_error(file, steps, f"this name is taken by {_locate_rule(file, index)}")
        if (
            earlier_rule.setting == rule.setting
            and earlier_rule.effect != rule.effect
            and _normalise_condition(earlier_rule.when) == _normalise_condition(rule.when)
        ):
            problem = f"contradicts {quote_value(earlier_rule.name)}, {_locate_rule(file, index)}: "
            problem += f"the same `when` and setting {rule.setting}, but another value"
            raise make_error(file, steps, problem)


def _locate_rule(file: TomlFile, number: int) -> str:
    line = file.line(("rule", number))
    return f"rule number {number + 1}" if line is None else f"the rule on line {line}"


def _normalise_condition(condition: Match) -> dict[str, object]:
    """Return the condition in a form that is independent of the order of its values."""
    fields = {**asdict(condition), **asdict(condition.link)}
    del fields["link"]
    for name, value in fields.items():
        if isinstance(value, tuple):
            fields[name] = frozenset(value)
    return fields


def describe_allowed(option: Option, value: object) -> str | None:
    """Return None if the option accepts the value, or a description of the accepted values."""
    # A plain word, because it is written to modprobe.d without quotes and a blank ends an option.
    if isinstance(value, str):
        is_word = re.fullmatch(_TEXT, value) is not None
        return None if is_word else "a number or a word without blanks and quotes"
    assert isinstance(value, int)
    low, high = option.low, option.high
    if value == option.own or ((low is None or value >= low) and (high is None or value <= high)):
        return None
    return f"an integer from {low} to {high}" if high is not None else f"an integer from {low}"


def _make_option_rule(
    file: TomlFile, number: int, table: schema.OptionTable, *, shipped: bool
) -> profiles.OptionRule:
    """Return a module option. Raise ``PolicyError`` if its name or value is invalid.

    An option that no family declares is rejected, because its effect is unknown. The tests check
    this for ``shipped`` files: here it would import the families of all options.
    """
    keys = [key for key in _EFFECTS if getattr(table, key) is not None]
    if len(keys) != 1:
        problem = "expected exactly one of `value`, `at_least` and `at_most`"
        raise make_error(file, ("option", number), problem)
    [key] = keys
    value = getattr(table, key)
    if not shipped:
        expected = describe_allowed(_find_option(file, number, table), value)
        if expected is not None:
            raise make_value_error(file, ("option", number, key), value, expected)
    if key == "value" and isinstance(value, bool):
        value = int(value)  # the type that a bool of a loaded module is read as
    return profiles.OptionRule(
        name=table.name,
        module=table.module,
        option=table.option,
        effect=_EFFECTS[key](value),
        because=table.because,
        source=table.source,
        file=str(file.path),
    )


def _find_option(file: TomlFile, number: int, table: schema.OptionTable) -> Option:
    # Only this family: ``known_options`` imports all of them.
    for option in family_named(table.module).options:
        if option.name == table.option:
            return option
    key, value, names = "module", table.module, list(known_options())
    if table.module in names:
        key, value, names = "option", table.option, list(known_options()[table.module])
    expected, steps = f"one of {', '.join(names)}", ("option", number, key)
    raise make_value_error(file, steps, value, expected, suggest_nearest(value, names))


class ProfilePart(Struct, frozen=True):
    """One checked file of a profile, or of ``rules.d``, whose ``table`` is empty."""

    file: str
    table: schema.ProfileFile
    rules: tuple[Rule, ...]
    objectives: tuple[profiles.Objective, ...]
    options: tuple[profiles.OptionRule, ...]


def check_part(
    file: TomlFile,
    origin: Origin,
    sources: Sources | None,
    shape: type[schema.RulesFile] = schema.ProfileFile,
    doubts: Doubts = None,
) -> ProfilePart:
    """Return a profile, a part that profiles include, or a file of a site's ``rules.d``.

    Rules may cite ``sources``. Raise ``PolicyError`` for the first invalid entry. With ``doubts``,
    objectives and options with an invalid citation are omitted.
    """
    content = decode_file(file, shape)
    profile = content if isinstance(content, schema.ProfileFile) else schema.ProfileFile()
    rules = check_rules(file, content.rule, origin, sources, doubts)
    is_cited = partial(check_source, file, origin=origin, sources=sources, doubts=doubts)
    objectives, options = [], []
    for number, objective in enumerate(content.objective):
        if is_cited(("objective", number, "source"), objective.source):
            objectives.append(objective)
    if profile.probe is not None:
        is_cited(("probe", "source"), profile.probe.source)
    for number, table in enumerate(content.option):
        steps, setting = ("option", number, "source"), f"{table.module}.{table.option}"
        if is_cited(steps, table.source, setting=setting):
            is_shipped = origin is Origin.SHIPPED
            options.append(_make_option_rule(file, number, table, shipped=is_shipped))
    return ProfilePart(str(file.path), profile, rules, tuple(objectives), tuple(options))
