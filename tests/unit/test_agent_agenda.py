"""What the daemon has to look at: nothing is lost, nothing is put off for ever."""

from hypothesis import given
from hypothesis import strategies as st

from hbatune.agent.agenda import SETTLE, Agenda
from hbatune.agent.orders import Order, Reason

NAMES = st.sampled_from(["sda", "sdb", "nvme0"])
EVENTS = st.lists(st.tuples(NAMES, st.floats(0.0, 1.0)), min_size=1)


def idle() -> Agenda:
    """Return one on which nothing stands."""
    agenda = Agenda(0.0)
    agenda.take()
    return agenda


def test_it_begins_with_everything() -> None:
    agenda = Agenda(5.0)
    assert agenda.ripe(5.0)
    assert agenda.take() == (Reason.START, None)
    assert not agenda.ripe(1e9), "and then waits for something to happen"


@given(EVENTS)
def test_a_stream_of_events_puts_the_first_off_no_further(events: list[tuple[str, float]]) -> None:
    agenda, now = idle(), 100.0
    first = now + SETTLE
    for name, later in events:
        agenda.hear([name], now)
        now += later
    assert agenda.due <= first
    assert agenda.ripe(max(now, first))
    assert agenda.take() == (Reason.EVENT, tuple(dict.fromkeys(name for name, _ in events)))


@given(EVENTS, st.sampled_from([Reason.OVERRUN, Reason.RELOAD]))
def test_everything_is_more_than_any_names(events: list[tuple[str, float]], why: Reason) -> None:
    agenda = idle()
    for name, later in events:
        agenda.hear([name], later)
    agenda.everything(why, 1.0)
    assert agenda.take() == (why, None)
    assert not agenda.announced


def test_an_audit_comes_when_nothing_else_has() -> None:
    agenda = idle()
    agenda.audit(60.0)
    assert agenda.due == 60.0
    assert not agenda.ripe(59.9)
    assert agenda.ripe(60.0)
    assert agenda.take() == (Reason.AUDIT, None)


def test_what_could_not_be_done_is_tried_again_with_what_came_since() -> None:
    agenda = idle()
    agenda.hear(["sda"], 0.0)
    reason, names = agenda.take()
    agenda.hear(["sdb"], 1.0)
    agenda.again(Order(reason, names), 3.0)
    assert not agenda.ripe(2.9)
    assert agenda.ripe(3.0)
    assert agenda.take() == (Reason.EVENT, ("sda", "sdb"))
