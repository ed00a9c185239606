"""The documents that --json prints keep to the schema that ships with the package."""

import json
from importlib import resources
from typing import Any

import jsonschema
import msgspec
import pytest

from hbatune.cli.text.documents import PlanDocument, document
from hbatune.plan.make import make
from hbatune.plan.rows import Outcome, Plan
from hbatune.policy.model import Exactly
from tests.unit.factory import attributes, endpoint, machine
from tests.unit.test_plan import profile

FILE = resources.files("hbatune") / "schemas" / "hbatune.plan-1.json"


def current() -> dict[str, Any]:
    found = msgspec.json.schema(PlanDocument)
    found["$id"] = "hbatune.plan/1"
    normal: dict[str, Any] = json.loads(json.dumps(found))  # tuples are lists in JSON
    return normal


@pytest.fixture
def plan() -> Plan:
    found = attributes(queue__scheduler="[none] mq-deadline", queue__nr_requests="256")
    effects = (("scheduler", Exactly("mq-deadline")), ("nr_requests", Exactly(2048)))
    return make(machine(endpoint(attributes=found)), profile(*effects))


def test_the_shipped_schema_is_that_of_the_code() -> None:
    # To bring it up to date after a change: python -m tests.unit.test_documents
    assert json.loads(FILE.read_text()) == current()


def test_a_plan_keeps_to_the_schema(plan: Plan) -> None:
    schema = json.loads(FILE.read_text())
    done = tuple(msgspec.structs.replace(row, outcome=Outcome.WRITTEN) for row in plan.rows)
    for rows, probes in ((plan.rows, None), (done, [])):
        found = json.loads(msgspec.json.encode(document(plan, rows, machine(), probes)))
        jsonschema.validate(found, schema)
        assert found["schema"] == "hbatune.plan/1"
        assert ("probes" in found) is (probes is not None)
    broken = {**found, "rows": [{**found["rows"][0], "state": "fine"}]}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_the_summary_counts_rows_by_state_and_outcome(plan: Plan) -> None:
    done = tuple(msgspec.structs.replace(row, outcome=Outcome.WRITTEN) for row in plan.rows)
    summary = document(plan, done, machine()).summary
    assert (summary.states, summary.outcomes) == ({"drift": 2}, {"written": 2})
    assert summary.adapters[0].firmware == "16.00.12.00"


if __name__ == "__main__":
    from pathlib import Path

    Path(str(FILE)).write_text(json.dumps(current(), indent=1) + "\n")
