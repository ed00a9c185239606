"""From the tables of a file to rules: what the shape of a table alone cannot say."""

from collections.abc import Collection

from hbatune.facts.model import Medium, Protocol, TargetKind
from hbatune.policy.errors import PolicyError, nearest, quoted
from hbatune.policy.explain import place, wrong_value
from hbatune.policy.files import TomlFile
from hbatune.policy.model import AtLeast, Effect, Exactly, Leave, Match, Objective, Origin, Rule
from hbatune.policy.schema import RuleTable
from hbatune.settings.table import SETTINGS, kind_of

SITE = "site"


def checked_rules(
    file: TomlFile,
    tables: Collection[RuleTable],
    origin: Origin,
    sources: Collection[str],
) -> tuple[Rule, ...]:
    """Return the file's rules; raise ``PolicyError`` for the first that cannot be meant.

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
        )
        _require_askable(file, number, rule)
        _require_no_clash(file, number, rule, rules)
        rules.append(rule)
    return tuple(rules)


def checked_objectives(
    file: TomlFile, objectives: tuple[Objective, ...], origin: Origin, sources: Collection[str]
) -> tuple[Objective, ...]:
    """Return the file's objectives; raise ``PolicyError`` for one that cites nothing known."""
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
    """Raise ``PolicyError`` unless what the file cites at ``steps`` is known or the site's own."""
    own = origin is Origin.SITE and (source == SITE or source.startswith(f"{SITE}:"))
    if source in sources or own:
        return
    allowed = "the id of a shipped source such as D0-1"
    if origin is Origin.SITE:
        allowed += f', "{SITE}" or "{SITE}: " and a text of your own'
    raise wrong_value(file, steps, "source", source, allowed, nearest(source, sources))


def _require_askable(file: TomlFile, number: int, rule: Rule) -> None:
    """Refuse conditions that only endpoints have, where the setting is an adapter's own."""
    kind, when = kind_of(rule.setting), rule.when
    if kind is TargetKind.ENDPOINT:
        return
    of_endpoints = (when.kind, when.multipath, when.vendor, when.model, when.tri_mode is not None)
    others = {*when.protocol} - {Protocol.NVME} or {*when.medium} - {Medium.NVME}
    if any(of_endpoints) or others:
        problem = (
            f"{rule.setting} is set on a {kind}: its rules can ask for `family`, `link` and "
            'protocol "nvme" only'
        )
        raise _problem(file, number, problem)


def _require_no_clash(file: TomlFile, number: int, rule: Rule, earlier: list[Rule]) -> None:
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
    """Return ``when`` in a form that is equal for equal conditions in another order."""
    lists = (when.family, when.protocol, when.medium, when.kind, when.multipath, when.vendor)
    links = (when.link.gen, when.link.width)
    return (when.tri_mode, *(frozenset(each) for each in (*lists, when.model, *links)))


def _problem(file: TomlFile, number: int, problem: str) -> PolicyError:
    steps = ("rule", number)
    return PolicyError(problem, file=file.path, line=file.line(steps), place=place(file, steps))
