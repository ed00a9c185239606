"""Documents that commands print, judged by the schemas that a build puts into the package."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from tools.schemas import schemas


@cache
def _registry() -> Registry[Any]:
    schemas_by_id = schemas()
    return Registry().with_resources(
        (id, Resource.from_contents(schema)) for id, schema in schemas_by_id.items()
    )


def validate(document: Mapping[str, Any]) -> None:
    """Raise jsonschema.ValidationError where a document does not keep to its schema."""
    registry = _registry()
    schema = registry.contents(document["schema"])
    Draft202012Validator(schema, registry=registry).validate(document)
