"""The benchmarks that the documentation quotes are those that were measured."""

import msgspec
import pytest

from tests.bench.guest.comparison import Comparison, figure, ratio
from tools.benchmarks_page import IDLE, PROMISED, RESULTS, page, results

FOUND = results()


def test_the_page_names_what_has_not_been_measured() -> None:
    assert f"Not measured yet: {', '.join(PROMISED)}." in page([])
    assert not {path.stem for path in RESULTS.glob("*.json")} - {*PROMISED, IDLE.stem}


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.name)
def test_a_result_follows_from_its_samples(found: Comparison) -> None:
    for timing in (found.subject, found.reference):
        assert timing.seconds == figure(timing.samples)
    assert found.ratio == ratio(found.subject.samples, found.reference.samples)


def test_a_bound_that_does_not_hold_is_said() -> None:
    held = FOUND[0]
    broken = msgspec.structs.replace(held, bound=held.ratio.median / 2)
    assert "| yes |" in page([msgspec.structs.replace(held, bound=held.ratio.median)])
    assert "| **no** |" in page([broken])
