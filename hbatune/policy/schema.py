"""The shapes of the TOML files that people write, and the decoding of a file into its shape.

msgspec's errors become ``PolicyError``: with the line, the value found and those allowed.
"""

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from hbatune.policy.profile import Match, Name, Objective, ProbeSpec, Text, Tolerance
from hbatune.policy.toml_files import PolicyError, TomlFile, nearest, quoted

T = TypeVar("T")

Steps = tuple[str | int, ...]

# msgspec's errors have no fields, only a message. One that none of these matches still becomes an
# error of the file, without a line.
_PATH = re.compile(r" - at `\$(?P<steps>[^`]*)`\Z")
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)


class RuleTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[rule]]``, with exactly one of ``value``, ``at_least`` and ``leave``.

    There is no ``at_most``: shipped rules and profiles raise, and never lower.
    """

    name: Name
    setting: Text
    because: Text
    source: Text
    when: Match = Match()
    value: bool | int | str | None = None
    at_least: int | None = None
    leave: bool | None = None


class OptionTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[option]]``, with exactly one of ``value``, ``at_least`` and ``at_most``."""

    name: Name
    module: Text
    option: Text
    because: Text
    source: Text
    value: bool | int | str | None = None
    at_least: int | None = None
    at_most: int | None = None


class RulesFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of ``rules.d``."""

    rule: tuple[RuleTable, ...] = ()
    objective: tuple[Objective, ...] = ()
    option: tuple[OptionTable, ...] = ()


class ProfileFile(RulesFile, frozen=True, forbid_unknown_fields=True):
    """A profile, or without a title a part that profiles include."""

    title: Text | None = None
    include: tuple[Name, ...] = ()
    probe: ProbeSpec | None = None
    tolerance: Tolerance | None = None


class DocumentTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[document.ID]`` of the sources."""

    title: Text


class SourceTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[source.ID]``: a statement in our words, its document's id and its section."""

    document: Text
    section: Text
    says: Text


class SourcesFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The shipped file of the sources of rules."""

    document: dict[Name, DocumentTable]
    source: dict[Name, SourceTable]


def decode(file: TomlFile, shape: type[T]) -> T:
    """Return the file as ``shape``; raise ``PolicyError`` naming line, key, found and allowed."""
    data = {key: _with_lists(value) for key, value in file.data.items()}
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise explained(file, shape, str(error)) from error


def _with_lists(tables: Any) -> Any:
    """Make a list of each single word in a ``when``: ``protocol = "sas"`` means ``["sas"]``."""
    if not isinstance(tables, list):
        return tables
    return [
        {**table, "when": _listed(table["when"])}
        if isinstance(table, dict) and isinstance(table.get("when"), dict)
        else table
        for table in tables
    ]


def _listed(when: dict[str, Any]) -> dict[str, Any]:
    listed: dict[str, Any] = {}
    for key, value in when.items():
        if isinstance(value, dict):
            listed[key] = _listed(value)
        else:
            # tri_mode is the only key that takes a single value.
            listed[key] = value if key == "tri_mode" or isinstance(value, list) else [value]
    return listed


def place(file: TomlFile, steps: Steps) -> str | None:
    """Return the table that ``steps`` lead into, in words: ``rule "nvme-scheduler"``."""
    table = _walk(file.data, steps[:1])[0]
    if isinstance(table, dict):
        return f"table [{steps[0]}]" if steps else None
    table = _walk(file.data, steps[:2])[0]
    if not isinstance(table, dict) or len(steps) < 2 or not isinstance(steps[1], int):
        return None
    name = table.get("name")
    return f"{steps[0]} {quoted(name) if isinstance(name, str) else f'number {steps[1] + 1}'}"


def explained(file: TomlFile, shape: type[Any], message: str) -> PolicyError:
    """Turn msgspec's message, which has a path but no line, into one for a person."""
    steps: Steps = ()
    if at := _PATH.search(message):
        message = message[: at.start()]
        steps = tuple(name or int(number) for name, number in _STEP.findall(at["steps"]))
    if unknown := _UNKNOWN.match(message):
        return _unknown_key(file, shape, steps, unknown[1])
    if missing := _MISSING.match(message):
        allowed = _allowed(shape, (*steps, missing[1]))
        return PolicyError(
            f"found none, expected {allowed}",
            file=file.path,
            line=file.line(steps),
            place=place(file, steps),
            key=missing[1],
            found="none",
            allowed=allowed,
        )
    # A single word in a ``when`` was made a list, so msgspec's path may have a step too many.
    found, reached = _walk(file.data, steps)
    keys = [step for step in reached if isinstance(step, str)]
    return wrong_value(file, steps, keys[-1] if keys else None, found, _allowed(shape, steps))


def _unknown_key(file: TomlFile, shape: type[Any], steps: Steps, key: str) -> PolicyError:
    known = _keys(shape, steps)
    return PolicyError(
        f"unknown key {quoted(key)}, expected {_words(known)}",
        file=file.path,
        line=file.line((*steps, key)),
        place=place(file, steps),
        found=key,
        allowed=_words(known),
        hint=nearest(key, known),
    )


def wrong_value(
    file: TomlFile,
    steps: Steps,
    key: str | None,
    found: object,
    allowed: str,
    hint: str | None = None,
) -> PolicyError:
    """Return the error for a value that is not one of those allowed."""
    return PolicyError(
        f"found {quoted(found)}, expected {allowed}",
        file=file.path,
        line=file.line(steps),
        place=place(file, steps),
        key=key,
        found=quoted(found),
        allowed=allowed,
        hint=hint,
    )


def _walk(data: Any, steps: Steps) -> tuple[Any, Steps]:
    """Return the value at ``steps`` and the steps taken; the walk ends where the data does."""
    for taken, step in enumerate(steps):
        inside = isinstance(data, dict) and step in data
        inside = inside or (isinstance(data, list) and isinstance(step, int) and step < len(data))
        if not inside:
            return data, steps[:taken]
        data = data[step]
    return data, steps


def _node(shape: type[Any], steps: Steps) -> Any:
    """Return msgspec's description of the type at ``steps``, or None."""
    node: Any = types.type_info(shape)
    for step in steps:
        node = _bare(node)
        if isinstance(node, types.UnionType):
            structs = [each for each in node.types if isinstance(each, types.StructType)]
            node = structs[0] if structs else node
        if isinstance(node, types.VarTupleType) and isinstance(step, int):
            node = node.item_type
            continue
        if isinstance(node, types.DictType):  # msgspec's path leaves its key out
            node = node.value_type
        if isinstance(node, types.StructType):
            fields = {field.name: field.type for field in node.fields}
            node = fields.get(str(step))
    return node


def _bare(node: Any) -> Any:
    return node.type if isinstance(node, types.Metadata) else node


def _keys(shape: type[Any], steps: Steps) -> list[str]:
    node = _bare(_node(shape, steps))
    if isinstance(node, types.DictType):
        node = node.value_type
    if isinstance(node, types.UnionType):
        node = next(each for each in node.types if isinstance(each, types.StructType))
    return [field.name for field in getattr(node, "fields", ())]


def _allowed(shape: type[Any], steps: Steps) -> str:
    return _described(_node(shape, steps))


def _described(node: Any) -> str:
    """Return the values that msgspec's type ``node`` allows, in words."""
    match node:
        case types.Metadata(extra_json_schema={"description": str(text)}):
            return text
        case types.Metadata():
            return _described(node.type)
        case types.EnumType():
            return _words([member.value for member in node.cls])
        case types.LiteralType():
            return _words([str(value) for value in node.values])
        case types.BoolType():
            return "true or false"
        case types.IntType():
            return "an integer" + _range(node)
        case types.FloatType():
            return "a number" + _range(node)
        case types.VarTupleType():
            return "a list, each " + _described(node.item_type)
        case types.StructType():
            return "a table with " + _words([field.name for field in node.fields])
        case types.UnionType():
            parts = [_described(t) for t in node.types if not isinstance(t, types.NoneType)]
            return " or ".join(parts)
        case types.DictType():
            value = _bare(node.value_type)
            if isinstance(value, types.StructType):
                return "a table of tables"
            return f"a table, each value {_described(value)}"
        case _:
            return "text"


def _range(node: Any) -> str:
    low = node.ge if node.ge is not None else node.gt
    bounds = [] if low is None else ["from" if node.ge is not None else "above", f"{low}"]
    return " ".join(["", *bounds, *([] if node.le is None else ["to", f"{node.le}"])])


def _words(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"
