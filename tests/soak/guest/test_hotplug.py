"""How soon a disk is right again after its event: by the daemon, and by tuned where it hears."""

import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.lab.guest import appear, multipath
from tests.lab.guest.kit import loaded_scsi_debug, settle
from tests.lab.guest.service import QUIET, UNIT, resident, running, systemctl, without_rules
from tests.soak.guest.results import save_results

KERNELS = ("6.1", "6.12")
pytestmark = pytest.mark.usefixtures("virtual_disks_wanted")
TIMES = 50
ROUNDS = 5
TIMES_TUNED = 2.0
"""At most so many times what tuned takes, or where it hears nothing, of what a rescan takes it."""
RESOLUTION = 0.01
SCAN = 1.0
"""Seconds in which a scan of namespaces has reset their limits."""
TUNED = Path("/etc/tuned/one-scheduler/tuned.conf")
Distributions = dict[str, dict[str, object]]
"""By event, the distribution of the seconds that it took."""
LUN = {"max_luns": 1, "num_tgts": 1, "max_queue": 192, "submit_queues": 2, "vpd_use_hostno": 0}


def seconds_wrong(way: appear.Way, watched: float) -> float:
    """Have it happen once; return how long the value as sysfs tells it was wrong.

    From the event as a listener receives it until it is right, and for at least as many seconds as
    it is ``watched``: the kernel may spoil it later still.
    """
    name = appear.again(way)
    began = last = time.monotonic()
    wrong, right = 0.0, False
    while not right or last - began < watched:
        was_right, right = right, way.right(name)  # the kernel answers once it is through
        current = time.monotonic()
        wrong += 0 if was_right else current - last
        last = current
        time.sleep(RESOLUTION)  # to look all the time would cost whoever sets it half of the CPUs
    settle()
    return wrong


@contextmanager
def installed() -> Iterator[None]:
    """hbatune as it is installed: udev's rules set what they can, the daemon does the rest."""
    with running(QUIET):
        yield


@contextmanager
def without_udev() -> Iterator[None]:
    """hbatune's daemon alone."""
    with running(QUIET), without_rules():
        yield


@contextmanager
def by_tuned() -> Iterator[None]:
    """Debian's tuned, told to give every disk this scheduler."""
    TUNED.parent.mkdir(parents=True, exist_ok=True)
    TUNED.write_text("[main]\nsummary=one scheduler\n[disk]\ndynamic=0\nelevator=mq-deadline\n")
    subprocess.run(["systemctl", "start", "tuned.service"], check=True)
    subprocess.run(["tuned-adm", "profile", TUNED.parent.name], check=True)
    try:
        yield
    finally:
        subprocess.run(["systemctl", "stop", "tuned.service"], check=True)


def measured(way: appear.Way, times: int, *, watched: float = 0.0) -> list[float]:
    """Return how long it was wrong, so many times."""
    return [seconds_wrong(way, watched) for _ in range(times)]


def distribution(wrong_seconds: Iterable[float]) -> dict[str, object]:
    """Return the distribution of the wrong seconds for the results file."""
    seconds = sorted(round(duration, 3) for duration in wrong_seconds)
    low, median, high = statistics.quantiles(seconds, n=4)
    return {
        "median": round(median, 3),
        "quartiles": [round(low, 3), round(high, 3)],
        "longest": seconds[-1],
        "seconds": seconds,
    }


def what_both_hear() -> Iterator[tuple[str, list[float]]]:
    """Yield what is measured of events that tuned hears, too."""
    yield "rescan", measured(appear.Rescan(), TIMES // ROUNDS)
    yield "driver bound", measured(appear.Bound(), TIMES // ROUNDS)


def what_the_daemon_hears() -> Iterator[tuple[str, list[float]]]:
    """Yield what is measured of all events."""
    yield from what_both_hear()
    with appear.less_read_ahead():
        systemctl("reload", UNIT)
        yield "NVMe reset", measured(appear.Reset(), TIMES // ROUNDS, watched=SCAN)
    with appear.two_hosts(), multipath.joined() as name:
        systemctl("reload", UNIT)
        yield "table of a map", measured(appear.Reloaded(name), TIMES // ROUNDS)


Service = Callable[[], AbstractContextManager[None]]
Events = Callable[[], Iterable[tuple[str, list[float]]]]


def in_turns(*services: tuple[Service, Events]) -> list[Distributions]:
    """Return what each service takes for its events, some of each and in turns.

    A machine that is slower in one minute than in the next is so for all of them.
    """
    times_by_service: list[dict[str, list[float]]] = [defaultdict(list) for _ in services]
    for _ in range(ROUNDS):
        for (service, events), event_times in zip(services, times_by_service, strict=True):
            with loaded_scsi_debug(**LUN), service():
                for event, seconds in events():
                    event_times[event] += seconds
    return [
        {event: distribution(durations) for event, durations in event_times.items()}
        for event_times in times_by_service
    ]


def _median(times: dict[str, object]) -> float:
    return float(str(times["median"]))


def kib(unit: str) -> int:
    """Return what a service has in memory."""
    return resident(int(systemctl("show", "--property=MainPID", "--value", unit)))


@pytest.mark.deadline(7200)
def test_hotplug_matches_tuned_speed() -> None:
    with_rules, daemon_only, tuned = in_turns(
        (installed, what_both_hear),
        (without_udev, what_the_daemon_hears),
        (by_tuned, what_both_hear),
    )
    with loaded_scsi_debug(**LUN), without_udev():
        measured(appear.Rescan(), TIMES)
        ours = kib(UNIT)
    with by_tuned():
        theirs = kib("tuned.service")
    times = {
        event: round(_median(event_distribution) / _median(tuned.get(event, tuned["rescan"])), 2)
        for event, event_distribution in daemon_only.items()
    }
    save_results(
        "from udev's event to the right value, without udev's rules and with them, as it is "
        "installed; tuned hears two of four",
        name="hotplug",
        times=TIMES,
        times_tuned=times,
        hbatune=daemon_only,
        with_rules=with_rules,
        tuned=tuned,
        resident_kib={"hbatune": ours, "tuned": theirs},
    )
    assert all(ratio <= TIMES_TUNED for ratio in times.values()), times
    assert ours <= min(30 * 1024, theirs)
