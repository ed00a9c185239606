import pytest

from hbatune.probe.result import Subject, Workload
from hbatune.probe.run import MIN_RUN_S, estimate_seconds, fit_time
from tests.unit.machines import endpoint

APPLY = 60.0


def disks(count: int) -> list[Subject]:
    return [Subject(endpoint(target=f"sd{number}")) for number in range(count)]


def test_fitting_runs_stay_unchanged() -> None:
    fitted = fit_time(disks(4), Workload(), 2, APPLY)
    assert (len(fitted.subjects), fitted.workload, fitted.left_out) == (4, Workload(), ())
    assert fitted.seconds == 2 * 4 * estimate_seconds(Workload())


@pytest.mark.parametrize("count", range(1, 60))
def test_total_time_stays_within_limit(count: int) -> None:
    fitted = fit_time(disks(count), Workload(), 2, APPLY)
    assert 0 < fitted.seconds <= APPLY + 1e-9
    assert len(fitted.subjects) + len(fitted.left_out) == count
    assert fitted.workload.runtime >= MIN_RUN_S


def test_runs_shorten_before_exclusion() -> None:
    fitted = fit_time(disks(10), Workload(), 2, APPLY)
    assert fitted.left_out == ()
    assert MIN_RUN_S < fitted.workload.runtime < Workload().runtime


def test_short_runs_stay_short() -> None:
    fitted = fit_time(disks(50), Workload(runtime=0.2), 2, APPLY)
    assert fitted.workload.runtime == 0.2


def test_empty_selection_takes_no_time() -> None:
    assert fit_time([], Workload(), 2, APPLY).seconds == 0


def test_exhausted_budget_omits_all_disks() -> None:
    fitted = fit_time(disks(2), Workload(), 20, 10)
    assert (fitted.subjects, len(fitted.left_out), fitted.seconds) == ((), 2, 0)
