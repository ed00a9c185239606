"""Define the shapes of hand-written TOML files, and decode a file into its shape.

msgspec's errors become ``PolicyError``, with the line, the invalid value and the allowed values.
"""

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from hbatune.policy.profile import Match, Name, Objective, ProbeSpec, Text, Tolerance
from hbatune.policy.toml_files import PolicyError, TomlFile, quote_value, suggest_nearest

T = TypeVar("T")

Steps = tuple[str | int, ...]

# msgspec's errors have only a message, without fields. A message that matches no pattern still
# becomes an error of the file, without a line. Only errors need these patterns, so they are
# compiled on use.
_PATH = r" - at `\$(?P<steps>[^`]*)`\Z"
_STEP = r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]"
_UNKNOWN = r"(?s)Object contains unknown field `(.*)`\Z"
_MISSING = r"(?s)Object missing required field `(.*)`\Z"


class RuleTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[[rule]]``, with exactly one of ``value``, ``at_least`` and ``leave``.

    There is no ``at_most``: shipped rules and profiles only raise values.
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
    """A profile, or a part that profiles include, which has no title."""

    title: Text | None = None
    include: tuple[Name, ...] = ()
    probe: ProbeSpec | None = None
    tolerance: Tolerance | None = None


class DocumentTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[document.ID]`` of the sources."""

    title: Text


class SourceTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One ``[source.ID]``: a statement in our words, its document's id and its section.

    A rule may cite it only for one of its ``settings``.
    """

    document: Text
    section: Text
    says: Text
    settings: tuple[Text, ...] = ()


class SourcesFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The shipped file of the sources of rules."""

    document: dict[Name, DocumentTable]
    source: dict[Name, SourceTable]


def decode_file(file: TomlFile, shape: type[T]) -> T:
    """Return the file as ``shape``. Raise ``PolicyError`` with line, key and allowed values."""
    data = {key: _wrap_conditions(value) for key, value in file.data.items()}
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise explain_error(file, shape, str(error)) from error


def _wrap_conditions(tables: Any) -> Any:
    """Convert each single word in a ``when`` to a list: ``protocol = "sas"`` means ``["sas"]``."""
    if not isinstance(tables, list):
        return tables
    return [
        {**table, "when": _wrap_words(table["when"])}
        if isinstance(table, dict) and isinstance(table.get("when"), dict)
        else table
        for table in tables
    ]


def _wrap_words(condition: dict[str, Any]) -> dict[str, Any]:
    wrapped: dict[str, Any] = {}
    for key, value in condition.items():
        if isinstance(value, dict):
            wrapped[key] = _wrap_words(value)
        else:
            is_single = key in ("tri_mode", "rotational") or isinstance(value, list)
            wrapped[key] = value if is_single else [value]
    return wrapped


def describe_table(file: TomlFile, steps: Steps) -> str | None:
    """Describe the table that contains ``steps``, for example ``rule "nvme-scheduler"``."""
    table = _walk_data(file.data, steps[:1])[0]
    if isinstance(table, dict):
        return f"table [{steps[0]}]" if steps else None
    table = _walk_data(file.data, steps[:2])[0]
    if not isinstance(table, dict) or len(steps) < 2 or not isinstance(steps[1], int):
        return None
    name = table.get("name")
    return f"{steps[0]} {quote_value(name) if isinstance(name, str) else f'number {steps[1] + 1}'}"


def explain_error(file: TomlFile, shape: type[Any], message: str) -> PolicyError:
    """Convert msgspec's message, which has a path but no line, to a readable error."""
    steps: Steps = ()
    if match := re.search(_PATH, message):
        message = message[: match.start()]
        steps = tuple(name or int(number) for name, number in re.findall(_STEP, match["steps"]))
    if unknown := re.match(_UNKNOWN, message):
        return _explain_unknown_key(file, shape, steps, unknown[1])
    if missing := re.match(_MISSING, message):
        allowed = _describe_type(_find_node(shape, (*steps, missing[1])))
        return make_error(file, steps, f"found none, expected {allowed}", key=missing[1])
    # A single word in a ``when`` became a list, so msgspec's path may have an extra step.
    value, reached = _walk_data(file.data, steps)
    keys = [step for step in reached if isinstance(step, str)]
    key = keys[-1] if keys else None
    allowed = _describe_type(_find_node(shape, steps))
    return make_error(file, steps, f"found {quote_value(value)}, expected {allowed}", key=key)


def _explain_unknown_key(file: TomlFile, shape: type[Any], steps: Steps, key: str) -> PolicyError:
    node = _strip_metadata(_find_node(shape, steps))
    if isinstance(node, types.DictType):
        node = node.value_type
    node = _find_struct(node)
    keys = [field.name for field in getattr(node, "fields", ())]
    problem = f"unknown key {quote_value(key)}, expected {_join_words(keys)}"
    line, place = file.line((*steps, key)), describe_table(file, steps)
    hint = suggest_nearest(key, keys)
    return PolicyError(problem, file=file.path, line=line, place=place, hint=hint)


def make_error(
    file: TomlFile, steps: Steps, problem: str, *, key: str | None = None, hint: str | None = None
) -> PolicyError:
    """Return the error for the value or table at ``steps``."""
    line, place = file.line(steps), describe_table(file, steps)
    return PolicyError(problem, file=file.path, line=line, place=place, key=key, hint=hint)


def make_value_error(
    file: TomlFile, steps: Steps, value: object, allowed: str, hint: str | None = None
) -> PolicyError:
    """Return the error for a value that is not allowed; the last name in ``steps`` is its key."""
    problem = f"found {quote_value(value)}, expected {allowed}"
    key = [step for step in steps if isinstance(step, str)][-1]
    return make_error(file, steps, problem, key=key, hint=hint)


def _walk_data(data: Any, steps: Steps) -> tuple[Any, Steps]:
    """Return the value at ``steps`` and the steps taken. The walk ends with the data."""
    for count, step in enumerate(steps):
        inside = isinstance(data, dict) and step in data
        inside = inside or (isinstance(data, list) and isinstance(step, int) and step < len(data))
        if not inside:
            return data, steps[:count]
        data = data[step]
    return data, steps


def _find_node(shape: type[Any], steps: Steps) -> Any:
    node: Any = types.type_info(shape)
    for step in steps:
        node = _find_struct(_strip_metadata(node))
        if isinstance(node, types.VarTupleType) and isinstance(step, int):
            node = node.item_type
            continue
        if isinstance(node, types.DictType):  # msgspec's path omits its key
            node = node.value_type
        if isinstance(node, types.StructType):
            fields = {field.name: field.type for field in node.fields}
            node = fields.get(str(step))
    return node


def _find_struct(node: Any) -> Any:
    """Return the struct in a union, or the node itself."""
    for member in getattr(node, "types", ()):
        if isinstance(member, types.StructType):
            return member
    return node


def _strip_metadata(node: Any) -> Any:
    return node.type if isinstance(node, types.Metadata) else node


def _describe_type(node: Any) -> str:
    match node:
        case types.Metadata(extra_json_schema={"description": str(text)}):
            return text
        case types.Metadata():
            return _describe_type(node.type)
        case types.EnumType():
            return _join_words([member.value for member in node.cls])
        case types.LiteralType():
            return _join_words([str(value) for value in node.values])
        case types.BoolType():
            return "true or false"
        case types.IntType():
            return "an integer" + _describe_range(node)
        case types.FloatType():
            return "a number" + _describe_range(node)
        case types.VarTupleType():
            return "a list, each " + _describe_type(node.item_type)
        case types.StructType():
            return "a table with " + _join_words([field.name for field in node.fields])
        case types.UnionType():
            parts = [_describe_type(t) for t in node.types if not isinstance(t, types.NoneType)]
            return " or ".join(parts)
        case types.DictType():
            value = _strip_metadata(node.value_type)
            if isinstance(value, types.StructType):
                return "a table of tables"
            return f"a table, each value {_describe_type(value)}"
        case _:
            return "text"


def _describe_range(node: Any) -> str:
    low = node.ge if node.ge is not None else node.gt
    bounds = [] if low is None else ["from" if node.ge is not None else "above", f"{low}"]
    return " ".join(["", *bounds, *([] if node.le is None else ["to", f"{node.le}"])])


def _join_words(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"
