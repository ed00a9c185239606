"""The benchmarks that the documentation quotes are those that were measured, and hold."""

import pytest

from tests.bench.guest.comparison import Comparison, figure, ratio
from tests.bench.page import PAGE, page, results

FOUND = results()


def test_the_page_says_what_the_results_files_say() -> None:
    assert PAGE.read_text() == page(FOUND), "write it anew with `python -m tests.bench`"


def test_every_promise_has_been_measured() -> None:
    names = {found.name for found in FOUND}
    assert {"start", "diff-4096", "apply-6.12", "writing-6.12"} <= names


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.name)
def test_a_result_follows_from_its_samples_and_holds(found: Comparison) -> None:
    for timing in (found.subject, found.reference):
        assert timing.seconds == figure(timing.samples)
    measured = ratio(found.subject.samples, found.reference.samples)
    assert measured.median == pytest.approx(found.ratio.median, rel=1e-3)
    assert found.met, found
