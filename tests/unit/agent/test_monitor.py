"""The watch as the daemon keeps it: what it watches, when, and where its metrics go."""

import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from hbatune.agent.monitor import NEVER, MetricsMonitor
from hbatune.agent.orders import PassReport
from hbatune.agent.status import Status
from hbatune.facts import sampler
from hbatune.facts.health import LOST_IO
from hbatune.facts.model import Protocol
from hbatune.facts.sampler import find_sampled_places
from hbatune.policy.config import Config, MetricsConfig, WatchConfig
from hbatune.text.watch_view import describe_alert
from hbatune.watch.alerts import AlertChange, AlertCondition
from hbatune.watch.latency import LatencySampler
from hbatune.watch.readings import Subjects
from hbatune.watch.subjects import find_subjects
from hbatune.workers import find_this_process
from tests.unit.machines import endpoint, machine

DISK = endpoint(address=None)
SEEN = PassReport(
    "test", 1, subjects=find_subjects(machine(DISK)), places=find_sampled_places(machine(DISK))
)
STATUS = Status(find_this_process(), 0.0, "test")
BUSY = replace(WatchConfig(), interval_seconds=1.0, window_seconds=2.0, counters_seconds=1.0)


class FakeSampler(LatencySampler):
    """Notes when samples are planned, and traces nothing."""

    def __init__(self) -> None:
        self.planned: list[float] = []
        self.intervals = ()
        self.closed = 0

    def plan(self, current_time: float) -> None:
        self.planned.append(current_time)

    def close(self) -> None:
        self.closed += 1


class Bench:
    """A clock, and a disk that is as busy as the test says."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.ticks = 0
        self.diskstats = folder / "diskstats"
        self.config = Config(watch=BUSY)
        self.latencies = FakeSampler()
        self.monitor = MetricsMonitor(self.latencies, clock=lambda: self.now)

    def go(self, seconds: int, share: float) -> list[tuple[AlertChange, AlertCondition]]:
        """Keep the disk busy for a share of ``seconds``; return the changes of alerts."""
        changes = []
        for _ in range(seconds):
            self.now += 1.0
            self.ticks += round(share * 1000)
            ios = round(self.now * 100)
            counts = f"{ios} 0 {ios * 8} {ios * 5} 0 0 0 0 0 {self.ticks} {self.ticks}"
            self.diskstats.write_text(f"   8       0 sda {counts} 0 0 0 0 0 0\n")
            _, events = self.monitor.tick(STATUS)
            changes += [(event.change, event.alert.condition) for event in events]
        return changes


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    new_bench = Bench(tmp_path)
    monkeypatch.setattr(sampler, "_DISKSTATS", str(new_bench.diskstats))
    return new_bench


def test_idle_monitor_never_fires(bench: Bench) -> None:
    assert bench.monitor.due == NEVER
    bench.monitor.watch(SEEN, bench.config)
    assert bench.monitor.due == 0.0
    bench.monitor.stop_watching()
    assert bench.monitor.due == NEVER
    bench.monitor.watch(PassReport("test", 1), bench.config)
    assert bench.monitor.due == NEVER


def test_idle_disk_reuses_sample_after_scan(bench: Bench) -> None:
    """Thousands of them would otherwise take their memory twice after each audit."""
    samples = []
    for _ in range(2):
        bench.monitor.watch(SEEN, bench.config)
        bench.diskstats.write_text("8 0 sda 1500 20 12000 3000 500 3 4000 1500 7 2000 4507\n")
        bench.monitor.tick(STATUS)
        samples.append(bench.monitor._disks[DISK.id])
    assert samples[0] is samples[1]


def test_only_busy_disks_with_objective_are_sampled(bench: Bench) -> None:
    bench.monitor.watch(SEEN, bench.config)
    bench.go(3, 0.5)
    assert bench.latencies.planned == []  # no objective
    [subject] = find_subjects(machine(DISK)).disks
    goal = Subjects((replace(subject, objective_ms=2.0),))
    bench.monitor.watch(replace(SEEN, subjects=goal), bench.config)
    bench.go(2, 0.5)
    assert bench.latencies.planned == [4.0, 5.0]
    for _ in range(3):
        bench.now += 1.0
        bench.monitor.tick(STATUS)  # idle
    assert bench.latencies.planned == [4.0, 5.0]
    bench.monitor.stop_watching()
    assert bench.latencies.closed


def test_alert_fires_and_clears_once(bench: Bench) -> None:
    bench.monitor.watch(SEEN, bench.config)
    events = bench.go(4, 1.0)
    bench.monitor.watch(SEEN, bench.config)
    events += bench.go(4, 1.0)
    events += bench.go(6, 0.1)
    busy = [change for change, condition in events if condition is AlertCondition.UTILISATION]
    assert busy == [AlertChange.RAISED, AlertChange.CLEARED]


def test_inherited_alert_is_not_repeated(bench: Bench) -> None:
    bench.monitor.watch(SEEN, bench.config)
    bench.go(6, 1.0)
    state, _ = bench.monitor.tick(STATUS)
    again = Bench(bench.diskstats.parent)
    again.now = bench.now
    again.ticks = bench.ticks
    again.monitor = MetricsMonitor(again.latencies, state.alerts, clock=lambda: again.now)
    again.monitor.watch(SEEN, again.config)
    assert again.go(6, 1.0) == []
    assert again.go(6, 0.1) == [(AlertChange.CLEARED, AlertCondition.UTILISATION)]


def test_lost_nvme_io_raises_alert(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter that root sets to 0 raises none."""
    monkeypatch.setattr(sampler, "_BLOCK", str(tmp_path))
    counter = tmp_path / "nvme0n1/diag" / LOST_IO
    counter.parent.mkdir(parents=True)
    found = machine(endpoint(target="nvme0n1", address=None, protocol=Protocol.NVME))
    places = find_sampled_places(found)
    report = PassReport("test", 1, subjects=find_subjects(found), places=places)
    bench.monitor.watch(report, bench.config)
    bench.diskstats.write_text(f" 259       0 nvme0n1 {'0 ' * 17}\n")
    changes = []
    for count in (3, 3, 4, 4, 4, 4, 0, 0, 2):
        bench.now += 1.0
        counter.write_text(f"{count}\n")
        _, events = bench.monitor.tick(STATUS)
        changes += [(bench.now, event.change, describe_alert(event.alert)) for event in events]
    text = f"{LOST_IO} rose by {{}}: I/O failed, since no path was left"
    assert changes == [
        (3.0, AlertChange.RAISED, text.format(1)),
        (5.0, AlertChange.CLEARED, text.format(1)),
        (9.0, AlertChange.RAISED, text.format(2)),
    ]


def test_missed_intervals_are_skipped(bench: Bench) -> None:
    bench.monitor.watch(SEEN, bench.config)
    bench.go(1, 0.0)
    assert bench.monitor.due == 1.0
    bench.now = 60.0
    bench.monitor.tick(STATUS)
    assert bench.monitor.due == 60.0


def test_textfile_receives_metrics(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    config = replace(bench.config, metrics=MetricsConfig(textfile=str(folder)))
    bench.monitor.watch(SEEN, config)
    bench.go(2, 0.5)
    [file] = folder.iterdir()
    assert file.name == "hbatune.prom"
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert "hbatune_endpoint_utilisation_ratio{" in file.read_text()
    assert bench.monitor.problem is None
    bench.monitor.stop_watching()
    assert not file.exists(), "a daemon that is gone says nothing of the present"


def test_textfile_symlink_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    """The folder may be another user's, who may put there what he likes."""
    folder, precious = tmp_path / "textfile", tmp_path / "precious"
    folder.mkdir()
    precious.write_text("mine")
    for name in (".hbatune.prom.new", "hbatune.prom"):
        (folder / name).symlink_to(precious)
    config = replace(bench.config, metrics=MetricsConfig(textfile=str(folder)))
    bench.monitor.watch(SEEN, config)
    bench.go(2, 0.5)
    assert precious.read_text() == "mine"
    assert "hbatune_" in (folder / "hbatune.prom").read_text()


def test_removed_metrics_folder_is_reported(bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    config = replace(bench.config, metrics=MetricsConfig(textfile=str(folder)))
    bench.monitor.watch(SEEN, config)
    folder.rmdir()
    bench.go(2, 0.5)
    assert bench.monitor.problem is not None
    assert "metrics cannot be written" in bench.monitor.problem
    folder.mkdir()
    bench.go(1, 0.5)
    assert bench.monitor.problem is None


def test_unserved_metrics_are_reported(bench: Bench, tmp_path: Path) -> None:
    config = replace(bench.config, metrics=MetricsConfig(textfile=str(tmp_path / "none")))
    bench.monitor.watch(SEEN, config)
    assert bench.monitor.problem is not None
    bench.go(2, 0.5)
