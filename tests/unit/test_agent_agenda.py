"""What the daemon has to look at: nothing is lost, nothing is put off for ever."""

from hypothesis import given
from hypothesis import strategies as st

from hbatune.agent.agenda import SETTLE, Agenda
from hbatune.agent.events import Event
from hbatune.agent.orders import Order, Reason
from hbatune.settings.table import Cause

SDA, SDB = Event("sda"), Event("sdb")
SOME = st.sampled_from([SDA, SDB, Event("nvme0", Cause.CONNECTED), Event("nvme0")])
EVENTS = st.lists(st.tuples(SOME, st.floats(0.0, 1.0)), min_size=1)


def idle() -> Agenda:
    """Return one on which nothing stands."""
    agenda = Agenda(0.0)
    agenda.take()
    return agenda


def test_it_begins_with_everything() -> None:
    agenda = Agenda(5.0)
    assert agenda.ripe(5.0)
    assert agenda.take() == (Reason.START, ())
    assert not agenda.ripe(1e9), "and then waits for something to happen"


@given(EVENTS)
def test_a_stream_of_events_puts_the_first_off_no_further(
    events: list[tuple[Event, float]],
) -> None:
    agenda, now = idle(), 100.0
    first = now + SETTLE
    for event, later in events:
        agenda.hear([event], now)
        now += later
    assert agenda.due <= first
    assert agenda.ripe(max(now, first))
    assert agenda.take() == (Reason.EVENT, tuple(dict.fromkeys(event for event, _ in events)))


@given(EVENTS, st.sampled_from([Reason.OVERRUN, Reason.RELOAD]))
def test_a_look_at_everything_still_knows_what_was_reset(
    events: list[tuple[Event, float]], why: Reason
) -> None:
    agenda = idle()
    for event, later in events:
        agenda.hear([event], later)
    agenda.everything(why, 1.0)
    reason, taken = agenda.take()
    assert (reason, set(taken)) == (why, {event for event, _ in events})
    assert Order(reason, taken).names is None
    assert not agenda.announced


def test_an_audit_comes_when_nothing_else_has() -> None:
    agenda = idle()
    agenda.audit(60.0)
    assert agenda.due == 60.0
    assert not agenda.ripe(59.9)
    assert agenda.ripe(60.0)
    assert agenda.take() == (Reason.AUDIT, ())


def test_what_could_not_be_done_is_tried_again_with_what_came_since() -> None:
    agenda = idle()
    agenda.hear([SDA], 0.0)
    reason, events = agenda.take()
    agenda.hear([SDB], 1.0)
    agenda.again(Order(reason, events), 3.0)
    assert not agenda.ripe(2.9)
    assert agenda.ripe(3.0)
    assert agenda.take() == (Reason.EVENT, (SDA, SDB))
