"""Which settings a search tries instead of those in force."""

import pytest
from msgspec.structs import replace

from hbatune.facts.model import Attribute, Endpoint
from hbatune.plan.make import make_plan
from hbatune.plan.rows import Row
from hbatune.policy.profile import Exactly
from hbatune.search.tournament import (
    MAX_CANDIDATES,
    Candidate,
    compute_score,
    list_read_candidates,
    list_write_candidates,
)
from tests.unit.machines import attributes, endpoint, machine
from tests.unit.profiles import profile


def disk(**texts: str) -> Endpoint:
    found = {
        "queue__scheduler": "[none] mq-deadline kyber",
        "queue__nr_requests": "960",
        "queue__rq_affinity": "1",
        "queue__nomerges": "0",
    }
    return endpoint(attributes=attributes(**{**found, **texts}), tags=960)


def rows(there: Endpoint, *wanted: tuple[str, int | str]) -> tuple[Row, ...]:
    effects = [(name, Exactly(value)) for name, value in wanted]
    return make_plan(machine(there), profile(*effects)).rows


def values(candidates: tuple[Candidate, ...]) -> list[dict[str, int | str]]:
    return [each.values for each in candidates]


def test_alternatives_are_tried_alone() -> None:
    assert values(list_read_candidates(disk(), ())) == [
        {},
        {"rq_affinity": 0},
        {"rq_affinity": 2},
        {"nomerges": 1},
        {"nomerges": 2},
    ]


def test_profile_forms_one_candidate() -> None:
    there = disk()
    wanted = rows(there, ("rq_affinity", 2), ("nomerges", 1))
    assert values(list_read_candidates(there, wanted))[1] == {"rq_affinity": 2, "nomerges": 1}
    alone = list_read_candidates(there, rows(there, ("rq_affinity", 2)))
    assert values(alone).count({"rq_affinity": 2}) == 1


def test_unwritable_setting_is_excluded() -> None:
    there = disk()
    locked = {**there.attributes, "queue/rq_affinity": Attribute("1", False)}
    found = values(list_read_candidates(replace(there, attributes=locked), ()))
    assert found == [{}, {"nomerges": 1}, {"nomerges": 2}]


def test_unparsable_setting_is_no_candidate() -> None:
    assert values(list_read_candidates(disk(queue__rq_affinity="on"), ())) == [
        {},
        {"nomerges": 1},
        {"nomerges": 2},
    ]


def test_kernel_schedulers_are_candidates() -> None:
    assert values(list_write_candidates(disk(), ())) == [
        {},
        {"scheduler": "mq-deadline"},
        {"scheduler": "kyber"},
    ]


def test_scheduler_adds_request_candidates() -> None:
    there = disk(queue__scheduler="none [mq-deadline]", queue__nr_requests="256")
    assert values(list_write_candidates(there, ())) == [
        {},
        {"scheduler": "none"},
        {"nr_requests": 64},
        {"nr_requests": 1024},
    ]


def test_profile_scheduler_includes_requests() -> None:
    there = disk()
    wanted = rows(there, ("scheduler", "mq-deadline"), ("nr_requests", 2048))
    expected = {"scheduler": "mq-deadline", "nr_requests": 2048}
    assert values(list_write_candidates(there, wanted))[1] == expected


def test_unrestorable_requests_fix_scheduler() -> None:
    """block/blk-mq.c: a switch to `none` makes them the whole tag set, and they are not lowered."""
    assert values(list_write_candidates(disk(queue__nr_requests="64"), ())) == [{}]


def test_candidates_fit_tournament() -> None:
    there = disk(queue__scheduler="none [mq-deadline] kyber bfq a b c d")
    assert len(list_write_candidates(there, ())) <= MAX_CANDIDATES


@pytest.mark.parametrize(("p99", "score"), [(1000.0, 5000.0), (2000.0, 5000.0), (4000.0, 2500.0)])
def test_missed_objective_lowers_score(p99: float, score: float) -> None:
    assert compute_score(5000.0, p99, 2000.0) == score
    assert compute_score(5000.0, p99, None) == 5000.0
