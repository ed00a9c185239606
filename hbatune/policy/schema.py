"""Define the shapes of hand-written TOML files, and decode a file into its shape.

An invalid value becomes a ``PolicyError``, with its line and the allowed values.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from hbatune.policy.profile import Match, Name, Objective, ProbeSpec, Text, Tolerance
from hbatune.policy.toml_files import PolicyError, TomlFile, quote_value, suggest_nearest

T = TypeVar("T")

Steps = tuple[str | int, ...]


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
    """One ``[source.ID]``, with its document's id (``profile.Source`` explains the fields)."""

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
    try:
        return msgspec.convert(_wrap_file(file), shape)
    except msgspec.ValidationError as error:
        raise next(list_errors(file, shape)) from error


def list_errors(file: TomlFile, shape: type[Any]) -> Iterator[PolicyError]:
    """Yield the error of each invalid value of a file, unknown key and missing key."""
    return _check_value(file, shape, _wrap_file(file), ())


def list_file_errors(
    file: TomlFile, shape: type[Any], check: Callable[[TomlFile], object]
) -> list[PolicyError]:
    """Return all errors of a file. ``check`` raises the first error in valid contents."""
    errors = list(list_errors(file, shape))
    # First every single table: the complete file shows only the first of their errors.
    for part in (*file.split_tables(), file):
        if not any(list_errors(part, shape)):
            with PolicyError.collect(errors):
                check(part)
    return errors


def _wrap_file(file: TomlFile) -> dict[str, Any]:
    """Convert each single word in a ``when`` to a list: ``protocol = "sas"`` means ``["sas"]``."""
    contents = dict(file.data)
    for name, tables in file.data.items():
        if isinstance(tables, list):
            contents[name] = list(map(_wrap_table, tables))
    return contents


def _wrap_table(table: Any) -> Any:
    if isinstance(table, dict) and isinstance(table.get("when"), dict):
        return {**table, "when": _wrap_words(table["when"])}
    return table


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
    tables = file.data.get(str(steps[0])) if len(steps) > 1 else None
    if isinstance(tables, dict):
        return f"table [{steps[0]}]"
    if not isinstance(tables, list) or not isinstance(tables[int(steps[1])], dict):
        return None
    number = int(steps[1])
    name = tables[number].get("name")
    return f"{steps[0]} {quote_value(name) if isinstance(name, str) else f'number {number + 1}'}"


def _check_value(file: TomlFile, shape: Any, value: Any, steps: Steps) -> Iterator[PolicyError]:
    """Yield the errors in a value, or its own error if its parts are valid."""
    try:
        msgspec.convert(value, shape)
        return
    except msgspec.ValidationError:
        errors = list(_check_parts(file, _choose_shape(shape, value), value, steps))
    allowed = _describe_type(types.type_info(shape))
    yield from errors or [make_value_error(file, steps, value, allowed)]


def _check_parts(file: TomlFile, shape: Any, value: Any, steps: Steps) -> Iterator[PolicyError]:
    """Yield the errors in the values of a table or of a list."""
    if isinstance(value, dict) and get_origin(shape) is dict:
        for key, entry in value.items():
            yield from _check_value(file, get_args(shape)[1], entry, (*steps, key))
    elif isinstance(value, list) and get_args(shape)[1:] == (...,):
        for number, entry in enumerate(value):
            yield from _check_value(file, get_args(shape)[0], entry, (*steps, number))
    elif isinstance(value, dict) and isinstance(shape, type) and issubclass(shape, Struct):
        fields = {field.name: field for field in msgspec.structs.fields(shape)}
        for key, entry in value.items():
            if key in fields:
                yield from _check_value(file, fields[key].type, entry, (*steps, key))
            else:
                problem = f"unknown key {quote_value(key)}, expected {_join_words(list(fields))}"
                yield make_error(file, (*steps, key), problem, hint=suggest_nearest(key, fields))
        for name, field in fields.items():
            if field.required and name not in value:
                allowed = _describe_type(types.type_info(field.type))
                yield make_error(file, steps, f"found none, expected {allowed}", key=name)


def _choose_shape(shape: Any, value: Any) -> Any:
    """Return a shape without its metadata, and the shape of an optional table."""
    members = get_args(shape)
    if get_origin(shape) is Annotated:
        return members[0]
    return members[0] if isinstance(value, dict) and type(None) in members else shape


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
            if isinstance(node.value_type, types.StructType):
                return "a table of tables"
            return f"a table, each value {_describe_type(node.value_type)}"
        case _:
            return "text"


def _describe_range(node: Any) -> str:
    bounds = {"from": node.ge, "above": node.gt, "to": node.le, "and below": node.lt}
    return "".join(f" {word} {bound}" for word, bound in bounds.items() if bound is not None)


def _join_words(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} or {items[-1]}"
