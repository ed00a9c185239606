"""How soon a 9600's depths are right again, after resets and after news that have no event."""

import time
from collections.abc import Callable, Iterator

import pytest
import pyudev

from tests.lab.guest import tri_mode
from tests.lab.guest.command import hbatune
from tests.lab.guest.service import QUIET, running
from tests.lab.guest.tri_mode import OWN, Card, busy
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
TOPOLOGY = "tri-mode"
TIMES = 5
AFTER_RESET = 2.0
"""Seconds from the first event."""
AFTER_NEWS = 10.0
"""Seconds from the firmware's word, of which there is no event."""
RESOLUTION = 0.01


@pytest.fixture
def wanted() -> Iterator[dict[str, int]]:
    """The depths that the profile raises; a daemon without audits keeps them."""
    with running(QUIET):
        yield {disk: depth for disk, depth in tri_mode.depths().items() if depth != OWN}


def seconds_while(wrong: Callable[[], bool]) -> float:
    """Return how long it is wrong."""
    began = time.monotonic()
    while wrong():
        time.sleep(RESOLUTION)  # to look all the time would cost whoever sets it half of the CPUs
    return round(time.monotonic() - began, 2)


@pytest.mark.deadline(1800)
def test_depths_are_repaired_promptly(wanted: dict[str, int]) -> None:
    resets, late, news = [], [], []

    def wrong() -> bool:
        return not wanted.items() <= tri_mode.depths().items()

    with Card() as card, busy(*wanted):
        for _ in range(TIMES):
            monitor = pyudev.Monitor.from_netlink(pyudev.Context())
            monitor.filter_by("scsi")
            monitor.start()
            card.fail()
            while "SDEV_UA" not in (monitor.poll() or {}):
                pass
            # The driver puts the depths back a moment before or after the event.
            late.append(seconds_while(lambda: not wrong()))
            resets.append(round(late[-1] + seconds_while(wrong), 2))
        for _ in range(TIMES):
            card.inform()
            seconds_while(lambda: not wrong())  # the driver takes a moment
            news.append(seconds_while(wrong))
    status = hbatune("status", "--json").json["status"]
    save_results(
        "from the first event of a reset, and from the driver's own depth without an event, to the "
        "right one on every disk, with reads in flight",
        name="tri_mode_times",
        resets=resets,
        driver_after_event=late,
        news=news,
        given_up=[change["target"] for change in status["open"]],
    )
    assert status["open"] == []
    assert max(resets) <= AFTER_RESET, resets
    assert max(news) <= AFTER_NEWS, news
