"""Documents that commands print, judged by the schemas that ship with the package."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource


@cache
def _registry() -> Registry[Any]:
    folder = resources.files("hbatune") / "schemas"
    found = [json.loads(each.read_text()) for each in folder.iterdir()]
    return Registry().with_resources((each["$id"], Resource.from_contents(each)) for each in found)


def validate(document: Mapping[str, Any]) -> None:
    """Raise jsonschema.ValidationError where a document does not keep to its schema."""
    registry = _registry()
    schema = registry.contents(document["schema"])
    Draft202012Validator(schema, registry=registry).validate(document)
