"""The watch as the daemon keeps it: what it watches, when, and where its metrics go."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.act import paths
from hbatune.agent.orders import Report
from hbatune.agent.sentry import NEVER, Sentry
from hbatune.agent.status import Status
from hbatune.facts import sampler
from hbatune.policy.config import Config, MetricsConfig, WatchConfig
from hbatune.watch.alarm import Change
from hbatune.watch.alerts import Condition
from hbatune.workers import this_process
from tests.unit.factory import endpoint, machine
from tests.unit.test_plan import profile

DISK = endpoint(address=None)
SEEN = Report("test", 1, machine=machine(DISK))
STATUS = Status(this_process(), 0.0, "test")
BUSY = replace(WatchConfig(), interval_seconds=1.0, window_seconds=2.0, counters_seconds=1.0)


class Bench:
    """A clock, and a disk that is as busy as the test says."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.ticks = 0
        self.diskstats = folder / "diskstats"
        self.config = Config(watch=BUSY)
        self.sentry = Sentry(clock=lambda: self.now)

    def go(self, seconds: int, share: float) -> list[tuple[Change, Condition]]:
        """Let the disk be busy for a share of so many seconds; return what became of alerts."""
        found = []
        for _ in range(seconds):
            self.now += 1.0
            self.ticks += round(share * 1000)
            ios = round(self.now * 100)
            counts = f"{ios} 0 {ios * 8} {ios * 5} 0 0 0 0 0 {self.ticks} {self.ticks}"
            self.diskstats.write_text(f"   8       0 sda {counts} 0 0 0 0 0 0\n")
            _, events = self.sentry.tick(STATUS)
            found += [(each.change, each.alert.condition) for each in events]
        return found


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setattr(sampler, "_DISKSTATS", str(made.diskstats))
    monkeypatch.setattr(paths, "LATENCY", tmp_path / "latency.json")
    return made


def test_before_anything_was_seen_and_without_a_profile_nothing_is_watched(bench: Bench) -> None:
    assert bench.sentry.due == NEVER
    bench.sentry.look_at(SEEN, bench.config, profile())
    assert bench.sentry.due == 0.0
    bench.sentry.rest()
    assert bench.sentry.due == NEVER
    bench.sentry.look_at(Report("test", 1), bench.config, profile())
    assert bench.sentry.due == NEVER


def test_an_alert_is_raised_once_and_cleared_once_across_passes(bench: Bench) -> None:
    bench.sentry.look_at(SEEN, bench.config, profile())
    events = bench.go(4, 1.0)
    bench.sentry.look_at(SEEN, bench.config, profile())
    events += bench.go(4, 1.0)
    events += bench.go(6, 0.1)
    busy = [change for change, condition in events if condition is Condition.UTILISATION]
    assert busy == [Change.RAISED, Change.CLEARED]


def test_an_alert_that_an_earlier_daemon_left_raised_is_not_raised_again(bench: Bench) -> None:
    bench.sentry.look_at(SEEN, bench.config, profile())
    bench.go(6, 1.0)
    state, _ = bench.sentry.tick(STATUS)
    again = Bench(bench.diskstats.parent)
    again.now = bench.now
    again.ticks = bench.ticks
    again.sentry = Sentry(state.alerts, clock=lambda: again.now)
    again.sentry.look_at(SEEN, again.config, profile())
    assert again.go(6, 1.0) == []
    assert again.go(6, 0.1) == [(Change.CLEARED, Condition.UTILISATION)]


def test_the_interval_is_kept_without_catching_up(bench: Bench) -> None:
    bench.sentry.look_at(SEEN, bench.config, profile())
    bench.go(1, 0.0)
    assert bench.sentry.due == 1.0
    bench.now = 60.0
    bench.sentry.tick(STATUS)
    assert bench.sentry.due == 60.0


def test_metrics_go_where_they_are_wanted(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    config = replace(bench.config, metrics=MetricsConfig(textfile=str(folder)))
    bench.sentry.look_at(SEEN, config, profile())
    bench.go(2, 0.5)
    [file] = folder.iterdir()
    assert "hbatune_endpoint_utilisation_ratio{" in file.read_text()
    assert bench.sentry.problem is None


def test_a_folder_that_goes_is_told_and_the_watch_goes_on(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    config = replace(bench.config, metrics=MetricsConfig(textfile=str(folder)))
    bench.sentry.look_at(SEEN, config, profile())
    folder.rmdir()
    bench.go(2, 0.5)
    assert bench.sentry.problem is not None
    assert "metrics cannot be written" in bench.sentry.problem
    folder.mkdir()
    bench.go(1, 0.5)
    assert bench.sentry.problem is None


def test_metrics_that_cannot_be_served_are_told(bench: Bench, tmp_path: Path) -> None:
    config = replace(bench.config, metrics=MetricsConfig(textfile=str(tmp_path / "none")))
    bench.sentry.look_at(SEEN, config, profile())
    assert bench.sentry.problem is not None
    bench.go(2, 0.5)


def test_a_socket_is_there_while_it_is_wanted(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "metrics.sock"
    config = replace(bench.config, metrics=MetricsConfig(listen=f"unix:{path}"))
    bench.sentry.look_at(SEEN, config, profile())
    assert bench.sentry.fileno() is not None
    assert path.exists()
    bench.sentry.look_at(SEEN, bench.config, profile())
    assert bench.sentry.fileno() is None
    assert not path.exists()
