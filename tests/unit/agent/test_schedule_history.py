"""What could not be set is tried again for ever, ever more seldom, and never forgotten."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hbatune.agent.events import DeviceEvent
from hbatune.agent.orders import ChangeOrigin, Handled, Order, PassReason, PassReport, SettingChange
from hbatune.agent.schedule import MAX_RETRY_DELAY_S, PassHistory, Retries
from hbatune.plan.rows import Outcome
from hbatune.watch.readings import Subjects

EPOCH = 1_700_000_000.0
FAILED = SettingChange("sda", "id-sda", "nomerges", 0, 2, "rule", Handled.FAILED, Outcome.REFUSED)
WAITING = replace(FAILED, handled=Handled.WAITING, outcome=None)


def report(*changes: SettingChange) -> PassReport:
    """What came of a pass over everything."""
    return PassReport("test", 1, changes, subjects=Subjects())


def audits(experience: PassHistory, until: float, every: float, works: float) -> list[float]:
    """Audit until ``until``; writes succeed from ``works`` on. Return the times of the attempts."""
    tried, current_time = list[float](), 0.0
    while current_time <= until:
        order = experience.order(PassReason.AUDIT, (), current_time)
        change = WAITING
        if FAILED.key not in order.waiting:
            tried.append(current_time)
            change = replace(FAILED, handled=Handled.WRITTEN) if current_time >= works else FAILED
        experience.record(order, report(change), current_time, EPOCH + current_time)
        if change.handled is Handled.WRITTEN:
            return tried
        current_time += every
    return tried


def test_ten_minute_failure_recovers() -> None:
    tried = audits(PassHistory(300.0, current_time=0.0, epoch=EPOCH), 86_400.0, 300.0, works=600.0)
    assert tried == [0.0, 300.0, 900.0]


def test_permanent_failure_retries_hourly() -> None:
    day = 86_400.0
    tried = audits(PassHistory(60.0, current_time=0.0, epoch=EPOCH), day, 60.0, works=10 * day)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses[:6] == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0]
    assert set(pauses[7:]) == {MAX_RETRY_DELAY_S}
    assert tried[-1] > day - MAX_RETRY_DELAY_S - 60.0


@given(st.integers(1, 86_400), st.integers(1, 80))
def test_retry_pause_grows_to_limit(audit: int, tries: int) -> None:
    retries, current_time, before = Retries(audit), 0.0, 0.0
    for number in range(1, tries + 1):
        retries.record([FAILED], current_time, EPOCH + current_time, is_complete=True)
        [failure] = retries.failures.values()
        pause = failure.due - current_time
        assert before <= pause <= max(audit, MAX_RETRY_DELAY_S)
        assert (failure.retry.tries, failure.retry.since) == (number, EPOCH)
        before, current_time = pause, failure.due
    assert retries.find_due(current_time) == {FAILED.key}


def test_blocked_setting_is_tried_at_every_audit() -> None:
    """Nothing was tried: a command that hangs says nothing about the setting."""
    retries, blocked = Retries(60.0), replace(FAILED, outcome=Outcome.BLOCKED)
    for audit in range(5):
        current_time = 60.0 * audit
        assert retries.find_due(current_time) == ({FAILED.key} if audit else frozenset())
        retries.record([blocked], current_time, EPOCH + current_time, is_complete=True)


def test_write_or_scan_ends_failure() -> None:
    written = replace(FAILED, handled=Handled.WRITTEN)
    for changes, is_complete, fails in (([written], False, 0), ([], True, 0), ([], False, 1)):
        retries = Retries(60.0)
        retries.record([FAILED], 0.0, EPOCH, is_complete=True)
        retries.record(changes, 60.0, EPOCH, is_complete=is_complete)
        assert len(retries.failures) == fails


def test_report_shows_next_retry() -> None:
    experience = PassHistory(60.0, current_time=0.0, epoch=EPOCH)
    order = experience.order(PassReason.AUDIT, (), 0.0)
    _, recorded = experience.record(order, report(FAILED), 0.0, EPOCH)
    [change] = recorded.changes
    assert change.retry is not None
    assert (change.retry.since, change.retry.tries, change.retry.next) == (EPOCH, 1, EPOCH + 60)


def test_restarted_daemon_inherits_retries() -> None:
    experience = PassHistory(60.0, current_time=0.0, epoch=EPOCH)
    _, recorded = experience.record(
        experience.order(PassReason.AUDIT, (), 0.0), report(FAILED), 0.0, EPOCH
    )
    later = PassHistory(60.0, recorded.changes, current_time=10.0, epoch=EPOCH + 10)
    assert later.order(PassReason.START, (), 10.0).waiting == {FAILED.key}
    assert later.order(PassReason.AUDIT, (), 60.0).due == {FAILED.key}


def test_reload_retries_at_once() -> None:
    experience = PassHistory(60.0, current_time=0.0, epoch=EPOCH)
    experience.record(experience.order(PassReason.AUDIT, (), 0.0), report(FAILED), 0.0, EPOCH)
    experience.reset(60.0, None)
    order = experience.order(PassReason.RELOAD, (), 1.0)
    assert order.waiting == order.due == frozenset()


def test_only_drift_repairs_count() -> None:
    """Otherwise a fight that is fought upon announcements would never end."""
    for origin, fought in (
        (ChangeOrigin.DRIFT, True),
        (ChangeOrigin.NEW, False),
        (ChangeOrigin.RESET, False),
    ):
        experience = PassHistory(60.0, current_time=0.0, epoch=EPOCH)
        done = replace(FAILED, handled=Handled.WRITTEN, origin=origin)
        for current_time in (1.0, 2.0):
            order = experience.order(PassReason.EVENT, (DeviceEvent("sda"),), current_time)
            experience.record(order, report(done), current_time, EPOCH)
        assert bool(experience.order(PassReason.AUDIT, (), 3.0).fought) is fought


def test_second_conflict_is_failure() -> None:
    experience = PassHistory(60.0, current_time=0.0, epoch=EPOCH)
    order = Order(PassReason.EVENT, (DeviceEvent("sda"),))
    conflict = replace(FAILED, outcome=Outcome.CONFLICT)
    again, remaining_report = experience.retry_conflicts(order, report(conflict))
    assert again is not None
    assert (again.names, remaining_report.changes) == (("sda",), ())
    assert experience.retry_conflicts(again, report(conflict)) == (None, report(conflict))
