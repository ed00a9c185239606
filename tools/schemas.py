"""The JSON Schemas of what commands print with --json, generated from the types that they print.

Every type of ``hbatune.cli`` and ``hbatune.text`` with a field ``schema`` is a document. Its
default is the schema's id. What documents share stands once, in ``hbatune.definitions/1``.
References are relative URIs, resolved against the id of the document:
``../hbatune.definitions/1#/$defs/Row``.
"""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import hbatune.cli
import hbatune.text

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFINITIONS = "hbatune.definitions/1"
_WIDTH = 80
_HERE = "#/$defs/"
_SHARED = f"../{DEFINITIONS}#/$defs/"


def documents() -> dict[str, list[type[Struct]]]:
    """Return the types that commands print, by the id of their schema."""
    found: dict[str, list[type[Struct]]] = {}
    for kind in _types():
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        if "schema" in fields:
            id = fields["schema"].default
            assert isinstance(id, str), f"{kind}: its schema has no default"
            found.setdefault(id, []).append(kind)
    return {id: _whole(kinds) for id, kinds in sorted(found.items())}


def _whole(kinds: list[type[Struct]]) -> list[type[Struct]]:
    """Return the types that no other one extends: what it adds may be left out of a document."""
    return [
        kind
        for kind in kinds
        if not any(other is not kind and issubclass(other, kind) for other in kinds)
    ]


def schemas() -> dict[str, dict[str, Any]]:
    """Return every schema by its id."""
    by_id = documents()
    kinds = [kind for same in by_id.values() for kind in same]
    _, components = msgspec.json.schema_components(kinds, ref_template=_HERE + "{name}")
    own = {kind.__name__ for kind in kinds}
    found = {}
    for id, same in by_id.items():
        told = [_simple(components[kind.__name__], _SHARED) for kind in same]
        content = told[0] if len(told) == 1 else {"anyOf": told}
        found[id] = {"$schema": DIALECT, "$id": id, **content}
    shared = {_name(name): _simple(components[name], _HERE) for name in components.keys() - own}
    found[DEFINITIONS] = {
        "$schema": DIALECT,
        "$id": DEFINITIONS,
        "description": "What the documents of several commands are made of.",
        "$defs": dict(sorted(shared.items())),
    }
    return found


def files() -> dict[str, str]:
    """Return the name and the text of each file of the package's folder ``schemas``."""
    return {f"{id.replace('/', '-')}.json": _text(each) + "\n" for id, each in schemas().items()}


def write(folder: Path) -> None:
    """Write every schema into ``folder``, as a build of the package does."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


def _text(value: Any, indent: int = 0) -> str:
    """Return JSON that people can read: what fits into a line stands in one."""
    short = json.dumps(value)
    if not isinstance(value, dict | list) or indent + len(short) <= _WIDTH:
        return short
    inner, pad = indent + 1, " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{pad}{json.dumps(name)}: {_text(each, inner)}" for name, each in value.items()]
        return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
    parts = [pad + _text(each, inner) for each in value]
    return "[\n" + ",\n".join(parts) + "\n" + " " * indent + "]"


def _name(component: str) -> str:
    """Return what a type is called in the schemas.

    Where several types of that name are in the documents, msgspec says the whole path of each; its
    last module is enough to tell them apart, and readers have no use for a path.
    """
    *path, name = component.split(".")
    return "".join(word.title() for word in path[-1].split("_")) + name if path else name


def _types() -> Iterator[type[Struct]]:
    """Yield the struct types that the modules of ``hbatune.cli`` and ``hbatune.text`` define."""
    modules = [
        *pkgutil.walk_packages(hbatune.cli.__path__, "hbatune.cli."),
        *pkgutil.walk_packages(hbatune.text.__path__, "hbatune.text."),
    ]
    for module in modules:
        for value in vars(importlib.import_module(module.name)).values():
            ours = isinstance(value, type) and issubclass(value, Struct)
            if ours and value.__module__ == module.name:
                yield value


def _simple(schema: Any, prefix: str) -> Any:
    """Return a schema with references below ``prefix``, alternatives of plain types as a list."""
    if isinstance(schema, list | tuple):
        return [_simple(each, prefix) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _simple(each, prefix) for name, each in schema.items()}
    if isinstance(reference := found.get("$ref"), str):
        found["$ref"] = prefix + _name(reference.removeprefix(_HERE))
    choices = found.get("anyOf", [])
    if isinstance(title := found.get("title"), str):  # a property may be called so, too
        found["title"] = _name(title)
    if choices and all(each.keys() == {"type"} for each in choices):
        del found["anyOf"]
        found["type"] = [each["type"] for each in choices]
    return found
