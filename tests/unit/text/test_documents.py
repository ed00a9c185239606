"""The document of `list` keeps to the schema that ships with the package."""

import json

import msgspec

from hbatune.text.documents import make_facts_document
from tests.documented import validate
from tests.unit.machines import endpoint, machine


def test_endpoint_facts_include_use() -> None:
    document = json.loads(
        msgspec.json.encode(make_facts_document(machine(endpoint(mounts=("/srv",)))))
    )
    validate(document)
    assert document["endpoints"][0]["mounted"] is True
    assert list(document["endpoints"][0])[-2:] == ["mounted", "held"]
