"""Generate the JSON Schemas of the commands' --json output from the printed types.

Every type of ``hbatune.cli`` and ``hbatune.text`` with a field ``schema`` is a document. Its
default is the schema's id. Shared types are defined once, in ``hbatune.definitions/1``. References
are relative URIs, resolved against the id of the document: ``../hbatune.definitions/1#/$defs/Row``.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
from msgspec import Struct

import hbatune.cli
import hbatune.fleet
import hbatune.text

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFINITIONS = "hbatune.definitions/1"
_WIDTH = 80
_HERE = "#/$defs/"
_SHARED = f"../{DEFINITIONS}#/$defs/"


def documents() -> dict[str, list[type[Struct]]]:
    """Return the types that commands print, by the id of their schema."""
    kinds_by_id: dict[str, list[type[Struct]]] = {}
    kinds = list(_types())
    for name in [name for name in sys.modules if name.startswith("hbatune.")]:
        _import_deferred(sys.modules[name])
    for kind in kinds:
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        if "schema" in fields:
            id = fields["schema"].default
            assert isinstance(id, str), f"{kind}: its schema has no default"
            kinds_by_id.setdefault(id, []).append(kind)
    return {id: _whole(kinds) for id, kinds in sorted(kinds_by_id.items())}


def _whole(kinds: list[type[Struct]]) -> list[type[Struct]]:
    """Return the types that no other type extends. The fields that a subtype adds are optional."""
    return [
        kind
        for kind in kinds
        if not any(candidate is not kind and issubclass(candidate, kind) for candidate in kinds)
    ]


def schemas() -> dict[str, dict[str, Any]]:
    """Return every schema by its id."""
    by_id = documents()
    kinds = [kind for same in by_id.values() for kind in same]
    _, components = msgspec.json.schema_components(kinds, ref_template=_HERE + "{name}")
    names = {kind.__name__ for kind in kinds}
    schemas_by_id = {}
    for id, same in by_id.items():
        variants = [_simple(components[kind.__name__], _SHARED) for kind in same]
        content = variants[0] if len(variants) == 1 else {"anyOf": variants}
        schemas_by_id[id] = {"$schema": DIALECT, "$id": id, **content}
    shared = {_name(name): _simple(components[name], _HERE) for name in components.keys() - names}
    schemas_by_id[DEFINITIONS] = {
        "$schema": DIALECT,
        "$id": DEFINITIONS,
        "description": "Parts that the documents of several commands share.",
        "$defs": dict(sorted(shared.items())),
    }
    return schemas_by_id


def files() -> dict[str, str]:
    """Return the name and the text of each file of the package's directory ``schemas``."""
    return {
        f"{id.replace('/', '-')}.json": _text(schema) + "\n" for id, schema in schemas().items()
    }


def write(folder: Path) -> None:
    """Write every schema into ``folder``, as a build of the package does."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


def _text(value: Any, indent: int = 0) -> str:
    """Return readable JSON, with each short value on one line."""
    short = json.dumps(value)
    if not isinstance(value, dict | list) or indent + len(short) <= _WIDTH:
        return short
    inner, pad = indent + 1, " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{pad}{json.dumps(name)}: {_text(item, inner)}" for name, item in value.items()]
        return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
    parts = [pad + _text(item, inner) for item in value]
    return "[\n" + ",\n".join(parts) + "\n" + " " * indent + "]"


def _name(component: str) -> str:
    """Return the name of a type in the schemas.

    If the documents contain several types with this name, msgspec returns the full path of each.
    The last module of the path is enough to distinguish them.
    """
    *path, name = component.split(".")
    name = name.removeprefix("Printed")  # a type of the product, with sentences for reasons
    return "".join(part.title() for part in path[-1].split("_")) + name if path else name


def _types() -> Iterator[type[Struct]]:
    """Yield the struct types of the rooms that print."""
    modules = [
        *pkgutil.walk_packages(hbatune.cli.__path__, "hbatune.cli."),
        *pkgutil.walk_packages(hbatune.fleet.__path__, "hbatune.fleet."),
        *pkgutil.walk_packages(hbatune.text.__path__, "hbatune.text."),
    ]
    for module in modules:
        for value in vars(importlib.import_module(module.name)).values():
            ours = isinstance(value, type) and issubclass(value, Struct)
            if ours and value.__module__ == module.name:
                yield value


def _import_deferred(module: ModuleType) -> None:
    """Import the types that a module imports only for type checkers, since they load slowly."""
    for block in ast.parse(inspect.getsource(module)).body:
        if not isinstance(block, ast.If) or ast.unparse(block.test) != "TYPE_CHECKING":
            continue
        for line in block.body:
            if isinstance(line, ast.ImportFrom) and (line.module or "").startswith("hbatune."):
                imported = importlib.import_module(str(line.module))
                for name in line.names:
                    setattr(module, name.name, getattr(imported, name.name))


def _simple(schema: Any, prefix: str) -> Any:
    """Return a schema with references below ``prefix``, alternatives of plain types as a list."""
    if isinstance(schema, list | tuple):
        return [_simple(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    simplified = {name: _simple(item, prefix) for name, item in schema.items()}
    if isinstance(reference := simplified.get("$ref"), str):
        simplified["$ref"] = prefix + _name(reference.removeprefix(_HERE))
    choices = simplified.get("anyOf", [])
    if isinstance(title := simplified.get("title"), str):  # a property may be called so, too
        simplified["title"] = _name(title)
    if choices and all(item.keys() == {"type"} for item in choices):
        del simplified["anyOf"]
        simplified["type"] = [item["type"] for item in choices]
    return simplified
