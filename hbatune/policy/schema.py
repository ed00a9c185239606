"""The shapes of the TOML files that people write, and the decoding of a file into its shape."""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hbatune.policy.files import TomlFile
from hbatune.policy.model import Match, Objective, ProbeSpec, Text, Tolerance
from hbatune.policy.toml_errors import explained

T = TypeVar("T")

NAME = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Name = Annotated[
    str, Meta(pattern=NAME, description="a name of letters, digits, dots, dashes and underscores")
]


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
