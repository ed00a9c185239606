"""The document of `diff` and `apply` keeps to the schema that ships with the package."""

import json

import jsonschema
import msgspec
import pytest

from hbatune.operations.verify import VerificationResult
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Outcome, Plan
from hbatune.policy.profile import Exactly
from hbatune.text.apply_document import make_plan_document
from hbatune.text.documents import make_diff_document
from tests.documented import validate
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.profiles import profile


@pytest.fixture
def plan() -> Plan:
    values = attributes(queue__scheduler="[none] mq-deadline", queue__nr_requests="256")
    effects = (("scheduler", Exactly("mq-deadline")), ("nr_requests", Exactly(2048)))
    return make_plan(machine(endpoint(attributes=values)), profile(*effects))


def test_plan_matches_schema(plan: Plan) -> None:
    done = tuple(msgspec.structs.replace(row, outcome=Outcome.WRITTEN) for row in plan.rows)
    previewed = make_diff_document(plan, plan.rows, machine(), ())
    applied = make_plan_document(plan, done, machine(), VerificationResult(done), {})
    for printed in (previewed, applied):
        document = json.loads(msgspec.json.encode(printed))
        validate(document)
        assert document["schema"] == "hbatune.plan/1"
        assert ("probes" in document) is (printed is applied)
    broken = {**document, "rows": [{**document["rows"][0], "state": "fine"}]}
    with pytest.raises(jsonschema.ValidationError):
        validate(broken)


def test_summary_counts_states_and_outcomes(plan: Plan) -> None:
    done = tuple(msgspec.structs.replace(row, outcome=Outcome.WRITTEN) for row in plan.rows)
    summary = make_diff_document(plan, done, machine(), ()).summary
    assert (summary.states, summary.outcomes) == ({"drift": 2}, {"written": 2})
    assert summary.adapters[0].firmware == "16.00.12.00"
