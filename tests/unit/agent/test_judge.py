"""Which wrong values are the kernel's: a depth after a full queue, a rescaled async_depth."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hbatune.agent.judge import Judge, compute_depth_level
from hbatune.agent.orders import DepthLevel, Order, PassReason
from hbatune.operations.reconcile import PassFacts
from hbatune.plan.joint_limits import QUEUE_FULL_THRESHOLD
from hbatune.plan.rows import Row, State
from hbatune.policy.config import Config, DaemonConfig, DriftReaction
from hbatune.workers import WorkerPool
from tests.unit.machines import machine

WANTED = 64
RIGHT = DepthLevel(WANTED, 100, 100)


def looks(*readings: tuple[int, int], first: DepthLevel | None = RIGHT) -> list[bool]:
    """Return whether the depth ramps after each reading of a depth and an error count."""
    ramping, level = [], first
    for depth, errors in readings:
        level = compute_depth_level(depth, WANTED, errors, level)
        ramping.append(level.ramping)
    return ramping


def test_errors_explain_sinking_depth() -> None:
    down, up = [(62, 122), (60, 160)], [(60, 160), (61, 160), (64, 160), (64, 160)]
    assert looks(*down, *up) == [True, True, True, True, False, False]


def test_sinking_without_errors_is_drift() -> None:
    assert looks((32, 100)) == [False]
    assert looks((32, 100 + QUEUE_FULL_THRESHOLD - 1)) == [False], (
        "a few errors are the polls of smartd"
    )
    assert looks((62, 122), (62, 122), (62, 122), (8, 122))[-1] is False


def test_errors_between_scans_count() -> None:
    """Eight of the eleven were there at the look before, at which the depth was right still."""
    assert looks((64, 108), (63, 111)) == [False, True]


def test_unexplained_rise_is_ramping() -> None:
    assert looks((20, 5000), (20, 5000), (21, 5000), first=None) == [False, False, True]


def test_counter_wrap_is_no_flood() -> None:
    high = (1 << 32) - 5
    assert looks((63, 10), first=DepthLevel(WANTED, high, high)) == [True]
    assert looks((63, 2), first=DepthLevel(WANTED, high, high)) == [False]


@given(st.lists(st.tuples(st.integers(1, WANTED), st.integers(0, 10**6)), min_size=1))
def test_correct_depth_never_ramps(readings: list[tuple[int, int]]) -> None:
    assert looks(*readings, (WANTED, 0))[-1] is False


def test_rescaled_async_depth_is_not_a_decision() -> None:
    """The kernel rescales it when an administrator changes nr_requests."""
    requests = drift("nr_requests", 512, 256)
    rescaled = drift("async_depth", 128, 64)
    assert left_alone(requests, rescaled) == {requests.key}
    assert left_alone(rescaled) == {rescaled.key}


def drift(setting: str, current: int, wanted: int) -> Row:
    values = (current, wanted, wanted, State.DRIFT)
    return Row("sda", "id-sda", "0000:01:00.0", setting, *values, None, "", "", "site")


def left_alone(*rows: Row) -> set[tuple[str, str]]:
    """Return the rows that a pass skips if it only reports the changes of others."""
    config = Config(daemon=DaemonConfig(drift=DriftReaction.REPORT))
    nothing = frozenset[Any]()
    facts = PassFacts(machine(), rows, nothing, nothing, {}, nothing, config, WorkerPool())
    return set(Judge(Order(PassReason.AUDIT))(facts).left_alone(rows))
