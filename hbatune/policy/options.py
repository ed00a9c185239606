"""From the ``[[option]]`` tables of a file to options of modules that a family declares."""

import re
from collections.abc import Collection, Mapping
from functools import cache

from hbatune.facts.families import families
from hbatune.facts.levers import Option
from hbatune.policy.errors import PolicyError, nearest
from hbatune.policy.explain import place, wrong_value
from hbatune.policy.files import TomlFile
from hbatune.policy.model import AtLeast, AtMost, Exactly, OptionRule, Origin
from hbatune.policy.rules import require_source
from hbatune.policy.schema import OptionTable

_TEXT = re.compile(r"[A-Za-z0-9_.,:+-]{1,256}", re.ASCII)
_EFFECTS = ("value", "at_least", "at_most")


@cache
def known_options() -> Mapping[str, Mapping[str, Option]]:
    """Return what the families declare: options by name, by the module that has them."""
    return {
        family.name: {option.name: option for option in family.options}
        for family in families()
        if family.options
    }


def checked_options(
    file: TomlFile, tables: Collection[OptionTable], origin: Origin, sources: Collection[str]
) -> tuple[OptionRule, ...]:
    """Return the file's module options; raise ``PolicyError`` for the first that cannot be meant.

    A module or option that no family declares is one of which nothing is known.
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
                effect=_effect(file, number, table),
                because=table.because,
                source=table.source,
                file=str(file.path),
            )
        )
    return tuple(rules)


def allowed(option: Option, value: object) -> str | None:
    """Return None for a value that the option takes, else what it takes."""
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


def _effect(file: TomlFile, number: int, table: OptionTable) -> Exactly | AtLeast | AtMost:
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
        return Exactly(int(value) if isinstance(value, bool) else value)
    return AtLeast(value) if key == "at_least" else AtMost(value)
