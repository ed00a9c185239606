"""The daemon's loop with made-up source, passes and systemd: what it does upon what."""

import errno
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hbatune import children
from hbatune.act import rollback_record
from hbatune.act.block_trace import BlockTrace
from hbatune.act.paths import Paths
from hbatune.act.tracefs import WriteTrace
from hbatune.agent import loop, monitor, passes, writers
from hbatune.agent.configuration import LastGoodConfiguration, Policy
from hbatune.agent.events import DeviceEvent, UdevMonitor
from hbatune.agent.loop import DaemonLoop
from hbatune.agent.monitor import DepthWatch, MetricsMonitor
from hbatune.agent.orders import (
    DelayedScan,
    DepthLevel,
    Handled,
    Order,
    PassReport,
    Retry,
    SettingChange,
    UnwrittenFile,
    WriterKind,
    encode_report,
)
from hbatune.agent.service import ServiceManager
from hbatune.agent.status import Status
from hbatune.agent.writers import WriterWatch
from hbatune.cli.command import watch_for_faults
from hbatune.errors import UsageError
from hbatune.facts import sampler
from hbatune.plan.rows import Outcome
from hbatune.policy.config import Config, DaemonConfig, MetricsConfig, WatchConfig
from hbatune.policy.rules import Doubts
from hbatune.policy.toml_files import PolicyError
from hbatune.processes import read_clock_id
from hbatune.settings.table import Cause
from hbatune.watch.alerts import AlertCondition
from hbatune.watch.latency import LatencySampler
from hbatune.watch.subjects import find_subjects
from hbatune.watch.watch import Alert
from hbatune.workers import find_this_process
from tests.unit.machines import machine
from tests.unit.profiles import profile

HOST = find_subjects(machine())
SCHEDULER = SettingChange(
    "sda", "id-sda", "scheduler", "none", "mq-deadline", "rule", Handled.WRITTEN
)


def make_report(endpoints: int, changes: tuple[SettingChange, ...] = (), **more: Any) -> PassReport:
    """Build the report of a full pass."""
    return PassReport("test", endpoints, changes, subjects=HOST, **more)


class Source(UdevMonitor):
    """A source of the events that the test puts into it."""

    def __init__(self, folder: Path) -> None:
        self._reader, self._writer = os.pipe()
        # Passes have none of the daemon's descriptors.
        self._fifo = folder / "taken"
        os.mkfifo(self._fifo)
        self._taken = os.open(self._fifo, os.O_RDWR)
        self._heard: list[tuple[tuple[DeviceEvent, ...], bool]] = []

    def fileno(self) -> int:
        return self._reader

    def put(self, *names: str, overrun: bool = False) -> None:
        self.put_events(*map(DeviceEvent, names), overrun=overrun)

    def put_events(self, *events: DeviceEvent, overrun: bool = False) -> None:
        self._heard.append((events, overrun))
        os.write(self._writer, b"x")

    def take(self) -> tuple[tuple[DeviceEvent, ...], bool]:
        os.read(self._reader, 1)
        os.write(self._taken, b"x")
        return self._heard.pop(0)

    def wait_until_taken(self, batches: int) -> None:
        """Wait, in a pass, until the daemon has taken this many batches."""
        with self._fifo.open("rb", buffering=0) as fifo:
            for _ in range(batches):
                fifo.read(1)


class CallRecorder:
    """Records the calls of its methods, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, arguments))

    def of(self, name: str) -> list[Any]:
        return [arguments for method, arguments in self.calls if method == name]


class Systemd(ServiceManager):
    """Stands in for systemd."""

    def __init__(self, watchdog: float = math.inf) -> None:
        self.watchdog = watchdog
        self.states: list[str] = []

    def notify(self, state: str) -> None:
        self.states.append(state)

    def log(self, *_: object) -> None:
        raise AssertionError("the teller logs")


class Bench:
    """A daemon whose passes answer by the script, and a scenario that goes on at each status.

    Passes run in forks, so that what they were ordered is read from a file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source, self.recorder, self.systemd = Source(folder), CallRecorder(), Systemd()
        self.policy = Policy(Config(profile="test"), profile(("nomerges", None)))  # type: ignore[arg-type]
        self.reports: Callable[[Order], PassReport] = lambda order: make_report(1)
        self.mistake: UsageError | None = None
        self.doubts: list[PolicyError] = []
        self.open: tuple[SettingChange, ...] = ()
        self.alerts: tuple[Alert, ...] = ()
        self.writers = WriterWatch(root=str(folder))
        (folder / "orders").touch()
        (folder / "site").mkdir()

    def load(self, doubts: Doubts) -> Policy:
        if doubts is not None:
            doubts += self.doubts
        if self.mistake is not None:
            raise self.mistake
        return self.policy

    def touch(self) -> None:
        """Change the configuration's files."""
        (self.folder / "site" / str(len(os.listdir(self.folder / "site")))).touch()

    def answer(self, order: Order, *_: object) -> bytes:
        with (self.folder / "orders").open("a") as file:
            print(json.dumps([order.reason, order.names]), file=file)
        return encode_report(self.reports(order))

    @property
    def orders(self) -> list[tuple[str, list[str] | None]]:
        lines = (self.folder / "orders").read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines]

    def run(self, *steps: Callable[[], None]) -> list[Status]:
        """Run the daemon, with one step after each status, and stop it after the last step."""
        remaining, statuses = iter(steps), list[Status]()

        def save(daemon_status: Status) -> None:
            if not daemon_status.ready:
                return  # before the first pass
            statuses.append(daemon_status)
            step = next(remaining, lambda: os.kill(os.getpid(), signal.SIGTERM))
            step()

        last_good = LastGoodConfiguration(self.folder / "site", self.load)
        latencies = LatencySampler(BlockTrace("test", ()), self.folder / "latency.json")
        monitor = MetricsMonitor(latencies, self.alerts)
        arguments = self.source, last_good, self.systemd, self.recorder, save, monitor, self.writers
        DaemonLoop(*arguments, open=self.open).run()
        return statuses


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    new_bench = Bench(tmp_path)
    for name in (
        "rollbacks",
        "rollbacks_now",
        "hands_off",
        "hands_off_now",
        "replacing",
    ):
        monkeypatch.setattr(Paths, name, tmp_path / name)
    monkeypatch.setattr(sampler, "TRACEFS", str(tmp_path / "tracing"))
    monkeypatch.setattr(passes, "run", new_bench.answer)
    handlers = {number: signal.getsignal(number) for number in loop._SIGNALS}
    yield new_bench
    assert {number: signal.getsignal(number) for number in loop._SIGNALS} == handlers


def audited(bench: Bench, seconds: float = 1.0) -> None:
    config = replace(bench.policy.config, daemon=DaemonConfig(audit_seconds=seconds))
    bench.policy = replace(bench.policy, config=config)


def test_full_rollback_idles_daemon(bench: Bench) -> None:
    rollback_record.record_rollback(Paths())
    [status] = bench.run()
    assert bench.orders == []
    assert (status.rolled_back, status.profile, status.well) == (True, None, True)


def test_restarted_daemon_shows_earlier_alerts(bench: Bench) -> None:
    bench.alerts = (Alert(AlertCondition.P99, "sda", "sda", None, 4, 2, "mean", 1.0, "D0-7"),)
    [status] = bench.run()
    assert status.alerts == bench.alerts
    assert not status.well


def test_stopped_daemon_removes_kprobe(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()
    monkeypatch.setattr(WriteTrace, "start", lambda _: calls.append("start"))
    monkeypatch.setattr(WriteTrace, "remove", lambda _: calls.append("remove"))
    bench.writers = WriterWatch(root="/dev/shm")
    bench.run()
    assert calls == ["start", "remove"]


def test_drift_gets_its_writer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write comes during the pass, and the daemon reads its event before the report."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder, "nomerges")
        file.touch()
        inode = file.stat().st_ino
        monkeypatch.setattr(writers, "find_inodes", lambda *arguments: [inode])
        bench.writers = WriterWatch(root="/dev/shm")
        if problem := bench.writers.start():
            pytest.skip(problem)

        def answer(order: Order) -> PassReport:
            command = f"read start; echo 2 > {file}; echo; sleep 9"
            writer = subprocess.Popen(
                ["setsid", "--fork", "sh", "-c", command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert writer.stdin is not None
            assert writer.stdout is not None
            writer.wait()  # until setsid has ended, its child descends from the daemon
            writer.stdin.write(b"\n")
            writer.stdin.flush()
            writer.stdout.readline()
            drift = replace(SCHEDULER, setting="nomerges", handled=Handled.REPORTED)
            return make_report(1, (drift,))

        bench.reports = answer
        [status] = bench.run()
    [change] = status.open
    assert change.writer is not None
    assert (change.writer.kind, change.writer.comm) == (WriterKind.PROCESS, "sh")
    assert bench.recorder.of("passed")[0][1].changes == (change,)
    bench.writers.stop()


def test_lost_write_events_are_counted(bench: Bench) -> None:
    bench.writers.overruns = 2
    assert bench.run()[-1].lost_writes == 2


def test_unreadable_rollback_record_runs_pass(bench: Bench) -> None:
    """Its pass reports the record; a daemon at rest would be idle, which is good."""
    Paths.rollbacks.mkdir(parents=True)
    (Paths.rollbacks / "targets-1").write_text("{")
    bench.run()
    assert bench.orders == [("start", None)]


def test_readiness_follows_first_pass(bench: Bench) -> None:
    bench.run()
    assert bench.orders == [("start", None)]
    assert bench.systemd.states == ["READY=1", "STOPPING=1"]
    assert [method for method, _ in bench.recorder.calls] == ["unnamed", "passed", "began", "ended"]


def test_pass_fault_spares_daemon(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"

    def fail(order: Order) -> PassReport:
        if order.reason != "start":
            raise KeyError("sda")
        return make_report(1)

    def tell(line: str) -> None:  # in the fork that fails
        with lines.open("a") as file:
            print(line, file=file)

    bench.reports = fail
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    watch_for_faults(["daemon"], tell)
    statuses = bench.run(lambda: bench.source.put("sda"))
    [line] = lines.read_text().splitlines()
    assert line.startswith("internal error: KeyError: 'sda'; the traceback is in /")
    [file] = (Paths.state / "log").glob("fault-*.txt")
    assert str(file) in line
    assert "in fail" in file.read_text()
    assert statuses[-1].error == "its process has died"


def test_later_events_are_batched(bench: Bench) -> None:
    def appear() -> None:
        for name in ("sda", "sdb", "sdc", "sdb"):
            bench.source.put(name)

    def answer(order: Order) -> PassReport:
        if order.names == ("sda",):
            bench.source.wait_until_taken(4)
        return make_report(1)

    bench.reports = answer
    statuses = bench.run(appear, lambda: None)
    assert bench.orders == [("start", None), ("event", ["sda"]), ("event", ["sdb", "sdc"])]
    assert [status.last.reason for status in statuses if status.last] == ["start", "event", "event"]


def test_events_reuse_process_until_reload(bench: Bench) -> None:
    """Its memory is of the look at everything; a new look is a new process's."""
    pids = bench.folder / "pids"

    def answer(order: Order) -> PassReport:
        with pids.open("a") as file:
            print(os.getpid(), len(order.levels), file=file)
        return make_report(1, levels={"id-sda": DepthLevel(1, 0, 0)})

    def reload() -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    bench.reports = answer
    bench.run(lambda: bench.source.put("sda"), lambda: bench.source.put("sdb"), reload)
    assert [reason for reason, _ in bench.orders] == ["start", "event", "event", "reload"]
    (start, first, second, again) = (line.split() for line in pids.read_text().splitlines())
    assert start[0] == first[0] == second[0] != again[0]
    assert [fields[1] for fields in (first, again)] == ["0", "1"], "it remembers the levels itself"
    for pid in (start[0], again[0]):
        assert not os.path.exists(f"/proc/{pid}"), "none is left behind"


def test_audits_replace_aged_process(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = bench.folder / "pids"
    audited(bench)

    def answer(order: Order) -> PassReport:
        with pids.open("a") as file:
            print(os.getpid(), len(order.levels), file=file)
        return make_report(1, levels={"id-sda": DepthLevel(1, 0, 0)})

    bench.reports = answer
    grow_old = partial(monkeypatch.setattr, loop, "PASS_PROCESS_MAX_AGE_S", 0.0)
    bench.run(lambda: None, lambda: None, grow_old)
    assert [reason for reason, _ in bench.orders] == ["start", "audit", "audit", "audit"]
    (start, first, second, third) = (line.split() for line in pids.read_text().splitlines())
    assert start[0] == first[0] == second[0] != third[0]
    assert first[1] == "1", "a look at everything forgets the levels"


def test_audits_check_every_ten_minutes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    file = bench.folder / "checks"
    audited(bench)

    def answer(order: Order) -> PassReport:
        with file.open("a") as lines:
            print(order.reason, order.checks, file=lines)
        if not order.checks:
            return make_report(1)
        return make_report(1, findings={"warning": 1}, lost_rules=("60-io.rules",))

    bench.reports = answer
    ten_minutes_pass = partial(monkeypatch.setattr, loop, "CHECK_INTERVAL_S", 0.0)
    statuses = bench.run(lambda: None, lambda: None, ten_minutes_pass)
    checks = ["start False", "audit True", "audit False", "audit True"]
    assert file.read_text().splitlines() == checks
    assert [status.findings for status in statuses[:3]] == [None, *[{"warning": 1}] * 2]
    assert [status.lost_rules for status in statuses[:3]] == [(), *[("60-io.rules",)] * 2]
    first, second, third = [status.checked for status in statuses[1:4]]
    assert first == second != third


def test_killed_process_is_replaced(bench: Bench) -> None:
    pids = bench.folder / "pids"

    def answer(order: Order) -> PassReport:
        pids.write_text(str(os.getpid()))
        return make_report(1)

    def kill() -> None:
        pid = int(pids.read_text())
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        bench.source.put("sda")

    bench.reports = answer
    statuses = bench.run(kill)
    assert bench.orders == [("start", None), ("event", ["sda"])]
    assert statuses[-1].error is None


def test_pass_process_inherits_no_connection(bench: Bench) -> None:
    """A client of the metrics would wait for ever for the end of an answer."""
    local, remote = socket.socketpair()

    def close() -> None:
        local.close()
        remote.settimeout(20)
        assert remote.recv(1) == b""
        os.kill(os.getpid(), signal.SIGTERM)

    bench.run(close)
    remote.close()


def test_lost_events_trigger_full_scan(bench: Bench) -> None:
    statuses = bench.run(lambda: bench.source.put("sda", overrun=True))
    assert bench.orders == [("start", None), ("overrun", None)]
    assert bench.recorder.of("overrun") == [()]
    assert statuses[-1].overruns == 1


def test_lost_nvme_reset_is_scanned(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"nvme0": 5, "nvme1": 0}
    monkeypatch.setattr(loop, "read_reset_counts", counts.copy)
    config = replace(bench.policy.config, watch=WatchConfig(interval_seconds=0.5))
    bench.policy = replace(bench.policy, config=config)

    def answer(order: Order) -> PassReport:
        return make_report(sum(event.cause is Cause.CONNECTED for event in order.events))

    def set_to_zero() -> None:
        counts["nvme0"] = 0
        bench.source.put("sda")

    bench.reports = answer
    statuses = bench.run(
        lambda: counts.update(nvme0=6), set_to_zero, lambda: counts.update(nvme0=1, nvme2=3)
    )
    assert [names for _, names in bench.orders] == [None, ["nvme0"], ["sda"], ["nvme0"]]
    assert [status.endpoints for status in statuses] == [0, 1, 0, 1]


def test_missing_profile_runs_no_pass(bench: Bench) -> None:
    bench.policy = Policy(Config(), None)
    [status] = bench.run()
    assert bench.orders == []
    assert "READY=1" in bench.systemd.states
    assert (status.profile, status.well) == (None, True)


def test_removed_profile_stays_unapplied(bench: Bench) -> None:
    def roll_back() -> None:
        bench.policy = Policy(Config(), None)
        bench.touch()
        os.kill(os.getpid(), signal.SIGHUP)

    statuses = bench.run(roll_back)
    assert bench.orders == [("start", None)]
    assert statuses[-1].profile is None


def test_reload_applies_new_profile(bench: Bench) -> None:
    def reload() -> None:
        bench.policy = replace(bench.policy, config=Config(profile="other"))
        bench.touch()
        os.kill(os.getpid(), signal.SIGHUP)

    bench.run(reload)
    assert bench.orders == [("start", None), ("reload", None)]
    assert [state.partition("\n")[0] for state in bench.systemd.states[1:3]] == [
        "RELOADING=1",
        "READY=1",
    ]


def test_doubtful_rule_is_reported(bench: Bench) -> None:
    def correct_rule() -> None:
        bench.touch()
        os.kill(os.getpid(), signal.SIGHUP)

    bench.doubts = [PolicyError("D0-2 does not cover it", file="mine.toml", hint="cite another")]
    statuses = bench.run(correct_rule)
    hint = "cite another; `hbatune config check` shows all errors"
    doubt = f"mine.toml: D0-2 does not cover it ({hint})"
    assert (statuses[0].doubts, statuses[0].well) == ((doubt,), False)
    assert bench.recorder.of("began") == [("test", (doubt,))]
    assert (statuses[-1].doubts, statuses[-1].well) == ((), True), "the rule was corrected"


def test_configuration_mistake_is_reported(bench: Bench) -> None:
    def spoil() -> None:
        bench.mistake = UsageError("no such profile")
        bench.touch()
        os.kill(os.getpid(), signal.SIGHUP)

    statuses = bench.run(spoil)
    assert statuses[-1].mistake == "no such profile"
    assert not statuses[-1].well
    assert [str(mistake) for _, mistake in bench.recorder.of("reloaded")] == ["no such profile"]
    assert bench.orders[-1] == ("reload", None), "with the last good one"


def test_third_drift_stays_unrepaired(bench: Bench) -> None:
    def answer(order: Order) -> PassReport:
        given_up = order.left or order.fought
        handled = Handled.LEFT if given_up else Handled.WRITTEN
        return make_report(1, (replace(SCHEDULER, handled=handled),))

    audited(bench)
    bench.reports = answer
    statuses = bench.run(*[lambda: None] * 4)
    assert [reason for reason, _ in bench.orders] == ["start", *["audit"] * 4]
    assert [len(status.open) for status in statuses] == [0, 0, 0, 1, 1]
    assert [[change.setting for change in changes] for (changes,) in bench.recorder.of("left")] == [
        ["scheduler"]
    ], "said once"


def test_failed_setting_stays_open(bench: Bench) -> None:
    def answer(order: Order) -> PassReport:
        failed = replace(SCHEDULER, handled=Handled.FAILED)
        if order.names == ("sdb",):
            return make_report(2)
        return make_report(2, (failed if order.names is None else SCHEDULER,))

    bench.reports = answer
    statuses = bench.run(lambda: bench.source.put("sdb"), lambda: bench.source.put("sda"))
    assert [len(status.open) for status in statuses] == [1, 1, 0]


@pytest.mark.parametrize(("crossings", "still_open"), [(1, 0), (5, 1)])
def test_conflict_is_retried_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, crossings: int, still_open: int
) -> None:
    monkeypatch.setattr(loop, "CONFLICT_DELAY_S", 0.05)

    def answer(order: Order) -> PassReport:
        if 1 < len(bench.orders) <= 1 + crossings:
            crossed = replace(SCHEDULER, handled=Handled.FAILED, outcome=Outcome.CONFLICT)
            return make_report(1, (crossed,))
        return make_report(1, () if len(bench.orders) == 1 else (SCHEDULER,))

    bench.reports = answer
    statuses = bench.run(lambda: bench.source.put("sda"), lambda: None)
    assert bench.orders == [("start", None), *[("event", ["sda"])] * 2]
    assert len(statuses[-1].open) == still_open
    failed = [change for _, report in bench.recorder.of("passed") for change in report.open]
    assert len(failed) == still_open, "told where it does not come right"


def test_locked_pass_is_retried(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LOCK_RETRY_S", 0.05)

    def answer(order: Order) -> PassReport:
        return PassReport("test", locked=len(bench.orders) < 3)

    bench.reports = answer
    bench.run()
    assert [reason for reason, _ in bench.orders] == ["start"] * 3
    assert bench.systemd.states[0].startswith("EXTEND_TIMEOUT_USEC=")
    assert bench.systemd.states.index("READY=1") == 2


@pytest.mark.parametrize("how", ["error", "dies"])
def test_failed_pass_is_repeated(bench: Bench, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(loop, "FAILED_PASS_DELAY_S", 0.05)

    def answer(order: Order) -> PassReport:
        if len(bench.orders) > 1:
            return make_report(1)
        if how == "dies":
            os._exit(9)
        return PassReport("test", error="the journal cannot be written")

    bench.reports = answer
    first, second = bench.run(lambda: None)
    assert first.error is not None
    assert not first.well
    assert second.error is None
    assert bench.orders == [("start", None)] * 2


def test_hung_pass_is_abandoned(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PASS_TIMEOUT_S", 0.2)

    def hang(order: Order) -> PassReport:
        signal.pause()
        raise AssertionError

    bench.reports = hang
    [status] = bench.run()
    assert status.error is not None


def test_long_pass_feeds_watchdog(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.systemd.watchdog = 0.1
    monkeypatch.setattr(loop, "PASS_TIMEOUT_S", 0.5)
    bench.reports = lambda order: signal.pause()  # type: ignore[assignment,return-value]
    bench.run()
    assert bench.systemd.states.count("WATCHDOG=1") >= 3


def test_stop_awaits_current_pass(bench: Bench) -> None:
    done = bench.folder / "done"

    def slow(order: Order) -> PassReport:
        if order.names:
            os.kill(os.getppid(), signal.SIGTERM)
            done.write_text("yes")
        return make_report(1)

    bench.reports = slow
    bench.run(lambda: bench.source.put("sda"), lambda: None)
    assert done.read_text() == "yes"


@pytest.mark.parametrize("problem", [None, "3 values could not be put back"])
def test_rollback_on_stop_restores_values(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, problem: str | None
) -> None:
    config = Config(profile="test", daemon=DaemonConfig(rollback_on_stop=True))
    bench.policy = replace(bench.policy, config=config)
    back = bench.folder / "back"

    def put_back(config: Config) -> str | None:
        back.write_text("yes")
        return problem

    monkeypatch.setattr(passes, "restore_all", put_back)
    bench.run()
    assert back.read_text() == "yes"
    assert bench.recorder.of("restored") == [(problem,)]


def test_daemon_leaks_no_descriptor(bench: Bench) -> None:
    def events(count: int) -> Iterator[Callable[[], None]]:
        for number in range(count):
            yield lambda number=number: bench.source.put(f"sd{number}")  # type: ignore[misc]

    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before, child_pids = len(os.listdir("/proc/self/fd")), children.read_text()
    bench.run(*events(20))
    assert len(bench.orders) == 21
    assert len(os.listdir("/proc/self/fd")) == before
    assert children.read_text() == child_pids


def test_waiting_audit_never_spins(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    audited(bench)
    monkeypatch.setattr(loop, "LOCK_RETRY_S", 0.5)
    polls = 0
    patience = DaemonLoop._compute_timeout_ms

    def counted(daemon: DaemonLoop) -> float:
        nonlocal polls
        polls += 1
        return patience(daemon)

    monkeypatch.setattr(DaemonLoop, "_compute_timeout_ms", counted)
    bench.reports = lambda order: (
        PassReport("test", locked=True)
        if order.reason == "audit" and len(bench.orders) < 4
        else make_report(1)
    )
    bench.run(lambda: None)
    assert len(bench.orders) >= 4
    assert polls < 60


def test_failed_setting_retries_back_off(bench: Bench) -> None:
    """An array with a hiccup: no reload is needed once it takes writes again."""

    def answer(order: Order) -> PassReport:
        tries = sum(reason == "audit" for reason, _ in bench.orders)
        if order.waiting:
            return make_report(1, (replace(SCHEDULER, handled=Handled.WAITING),))
        handled = Handled.WRITTEN if tries >= 4 else Handled.FAILED
        return make_report(1, (replace(SCHEDULER, handled=handled),))

    audited(bench)
    bench.reports = answer
    statuses = bench.run(*[lambda: None] * 7)
    change_lists = [report.changes for _, report in bench.recorder.of("passed")]
    [first], [second] = change_lists[:2]
    assert (first.retry.tries, second.retry.tries) == (1, 2)
    assert second.retry.next - second.retry.since > first.retry.next - first.retry.since
    waited = [status.open[0] for status in statuses if status.open and status.open[0].retry]
    assert {change.handled for change in waited} == {Handled.FAILED, Handled.WAITING}
    assert all(not status.well for status in statuses[:3])
    assert statuses[-1].open == (), "and it came right"


def test_restarted_daemon_resumes_retries(bench: Bench) -> None:
    retry = Retry(time.time() - 60, 3, time.time() + 1000)
    bench.open = (replace(SCHEDULER, handled=Handled.WAITING, retry=retry),)
    waiting = bench.folder / "waiting"

    def answer(order: Order) -> PassReport:
        waiting.write_text(json.dumps(sorted(order.waiting)))
        return make_report(1, (replace(SCHEDULER, handled=Handled.WAITING),))

    bench.reports = answer
    [status] = bench.run()
    assert json.loads(waiting.read_text()) == [["id-sda", "scheduler"]]
    assert status.open[0].retry == retry


def test_ramp_is_reported_once(bench: Bench) -> None:
    ramping = SettingChange("sda", "id-sda", "queue_depth", 60, 64, "rule", Handled.RAMPING)
    audited(bench)
    bench.reports = lambda order: make_report(1, (replace(ramping, before=60 + len(bench.orders)),))
    statuses = bench.run(lambda: None, lambda: None)
    assert all(status.well and status.open for status in statuses)
    change_lists = [report.changes for _, report in bench.recorder.of("passed") if report.changes]
    assert [[change.before for change in changes] for changes in change_lists] == [[61]]


def test_new_disk_skips_failure_delay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.reports = lambda order: (
        make_report(1) if len(bench.orders) != 2 else PassReport("test", error="the disk is full")
    )
    bench.run(lambda: bench.source.put("sda"), lambda: bench.source.put("sdb"))
    assert [names for _, names in bench.orders] == [None, ["sda"], ["sda", "sdb"]]


def refuse_first_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system refuse one process."""
    fork, failing = os.fork, iter([True])

    def limited() -> int:
        if next(failing, False):
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(os, "fork", limited)


def test_refused_fork_delays_pass(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_first_fork(monkeypatch)
    monkeypatch.setattr(loop, "FAILED_PASS_DELAY_S", 0.0)
    opened = len(os.listdir("/proc/self/fd"))
    first, second = bench.run(lambda: None)
    assert len(os.listdir("/proc/self/fd")) == opened
    assert first.error == "no process can be started: Resource temporarily unavailable"
    assert second.error is None
    assert bench.orders == [("start", None)]


def test_package_replacement_skips_rollback(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(bench.policy.config, daemon=DaemonConfig(rollback_on_stop=True))
    bench.policy = replace(bench.policy, config=config)
    monkeypatch.setattr(passes, "restore_all", lambda config: None)
    process = find_this_process()
    Paths.replacing.write_text(f"{process.pid} {process.start_time}\n")
    bench.run()
    assert bench.recorder.of("restored") == []
    assert bench.recorder.of("ended") == [()]


@pytest.mark.parametrize(
    "text",
    ["", f"{os.getpid()} 1\n", "99999999 5\n", "1", "what"],
    ids=["empty", "reused", "dead", "short", "words"],
)
def test_stale_marker_is_ignored(bench: Bench, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    config = replace(bench.policy.config, daemon=DaemonConfig(rollback_on_stop=True))
    bench.policy = replace(bench.policy, config=config)
    monkeypatch.setattr(passes, "restore_all", lambda config: None)
    Paths.replacing.write_text(text)
    bench.run()
    assert bench.recorder.of("restored") == [(None,)]


def test_refused_fork_still_restores(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(bench.policy.config, daemon=DaemonConfig(rollback_on_stop=True))
    bench.policy = replace(bench.policy, config=config)

    def starve() -> None:
        refuse_first_fork(monkeypatch)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(passes, "restore_all", lambda config: None)
    bench.run(starve)
    assert bench.recorder.of("restored") == [(None,)]


def test_failed_restore_reports_refused_fork(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    config = replace(bench.policy.config, daemon=DaemonConfig(rollback_on_stop=True))
    bench.policy = replace(bench.policy, config=config)

    def starve() -> None:
        monkeypatch.setattr(os, "fork", none)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("hbatune.workers.pool.START_PATIENCE_S", 0.05)
    bench.run(starve)
    [(problem,)] = bench.recorder.of("restored")
    assert problem == "no process can be started to read the devices: Cannot allocate memory"
    assert bench.recorder.of("ended") == [()]


def test_depth_watch_triggers_pass(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr(
        loop, "DepthWatch", lambda: DepthWatch(lambda endpoints: {"sda": 32, "sdb": 64})
    )
    bench.reports = lambda order: make_report(2, resettable={"sda": (32,), "sdb": (32,)})
    bench.run(lambda: None)
    assert bench.orders == [("start", None), ("event", ["sda"])]


def after_a_reset(bench: Bench, monkeypatch: pytest.MonkeyPatch, depth: int) -> None:
    """Report a reset to a daemon whose next poll is an hour away."""
    monkeypatch.setattr(monitor, "POLL_INTERVAL_S", 3600.0)
    monkeypatch.setattr(loop, "DepthWatch", lambda: DepthWatch(lambda endpoints: {"sda": depth}))
    bench.reports = lambda order: make_report(1, resettable={"sda": (32,)})
    bench.run(lambda: bench.source.put_events(DeviceEvent("host0", Cause.RESET)))


def test_reset_event_hurries_depth_watch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "RESET_DELAY_S", 3600.0)
    after_a_reset(bench, monkeypatch, 32)
    assert bench.orders == [("start", None), ("event", ["host0", "sda"])]


def test_reset_event_repeats_scan(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "RESET_DELAY_S", 0.0)
    after_a_reset(bench, monkeypatch, 64)
    assert bench.orders == [("start", None), ("event", ["host0"])]


def test_delayed_scan_is_run(bench: Bench) -> None:
    back = DeviceEvent("nvme0", Cause.CONNECTED)
    later = (DelayedScan(0.0, (DeviceEvent("nvme0n1", Cause.CONNECTED),)),)
    bench.reports = lambda order: make_report(1, later=later if back in order.events else ())
    bench.run(lambda: bench.source.put_events(back), lambda: None)
    assert bench.orders == [("start", None), ("event", ["nvme0"]), ("event", ["nvme0n1"])]


def test_idle_status_is_refreshed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SAVE_EVERY_S", 0.05)
    times = [status.times for status in bench.run(lambda: None, lambda: None)]
    assert bench.orders == [("start", None)]
    assert [pass_times is not None for pass_times in times] == [True] * 3
    saved = [pass_times.saved for pass_times in times if pass_times]
    assert saved == sorted(set(saved))
    for pass_times in filter(None, times):
        assert pass_times.clock == read_clock_id()
        assert pass_times.started <= (pass_times.pass_ended or 0) <= pass_times.saved
        assert pass_times.saved + loop.SAVE_EVERY_S < pass_times.save_due
        audit = bench.policy.config.daemon.audit_seconds
        assert pass_times.pass_due == pytest.approx(
            (pass_times.pass_ended or 0) + audit + loop.PASS_LIMIT_S
        )


def test_running_pass_shows_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "SHOWN_AFTER_S", 0.05)
    os.mkfifo(bench.folder / "go")

    def answer(order: Order) -> PassReport:
        if order.names:
            (bench.folder / "go").read_bytes()
        return make_report(1)

    bench.reports = answer

    def go_on() -> None:
        (bench.folder / "go").write_bytes(b"x")

    before, during, after = bench.run(lambda: bench.source.put("sda"), go_on)
    assert before.times
    assert during.times
    assert after.times
    assert before.times.pass_started is None
    assert during.times.pass_started is not None
    assert before.times.saved <= during.times.pass_started <= during.times.saved
    assert during.times.pass_due <= during.times.pass_started + loop.PASS_LIMIT_S
    assert during.times.pass_ended == before.times.pass_ended
    assert after.times.pass_started is None


def test_locked_passes_keep_deadline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another hbatune that holds the lock for good is noticed by the age of the last pass."""
    audited(bench)
    monkeypatch.setattr(loop, "LOCK_RETRY_S", 0.0)
    monkeypatch.setattr(loop, "SAVE_EVERY_S", 0.05)

    def answer(order: Order) -> PassReport:
        return PassReport("test", locked=True) if order.reason == "audit" else make_report(1)

    bench.reports = answer
    statuses = bench.run(*[lambda: None] * 30)
    assert ("audit", None) in bench.orders
    first, *later_dues = [status.times.pass_due for status in statuses if status.times]
    assert max(later_dues) <= first


def test_missing_profile_extends_deadline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.policy = replace(bench.policy, profile=None)
    audited(bench)
    first, second = bench.run(lambda: None)
    assert first.times
    assert second.times
    assert second.times.pass_due > first.times.pass_due


def test_unwritten_file_is_named(bench: Bench) -> None:
    journal = UnwrittenFile("/var/lib/hbatune/journal.json", "No space left on device")
    bench.reports = lambda order: make_report(1, unwritten=(journal,) if not order.names else ())
    first, second = bench.run(lambda: bench.source.put("sda"))
    assert (first.unwritten, first.well) == ((journal,), False)
    assert (second.unwritten, second.well) == ((), True)


def test_unpublishable_metrics_are_named(bench: Bench, tmp_path: Path) -> None:
    textfile = str(tmp_path / "missing")
    config = replace(bench.policy.config, metrics=MetricsConfig(textfile=textfile))
    bench.policy = replace(bench.policy, config=config)
    [status] = bench.run()
    assert [file.path for file in status.unwritten] == [textfile]
    assert "does not exist" in status.unwritten[0].reason


def test_three_hung_passes_block_fourth(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [3, 3]  # before the pass and in the status
    monkeypatch.setattr(children, "collect_abandoned", lambda: counts.pop() if counts else 0)
    monkeypatch.setattr(loop, "FAILED_PASS_DELAY_S", 0.0)
    first, second = bench.run(lambda: None)
    assert first.error == "3 processes hang in the kernel, so no further pass is started"
    assert not first.well
    assert second.error is None
    assert bench.orders == [("start", None)]


def test_unkillable_pass_spares_daemon(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "PASS_TIMEOUT_S", 0.2)
    monkeypatch.setattr(loop, "FAILED_PASS_DELAY_S", 0.0)
    monkeypatch.setattr(children.kill, "__defaults__", (0.1,))
    kill, deaf = os.kill, list[int]()

    def ignore(pid: int, number: int) -> None:
        if number == signal.SIGKILL and not deaf:
            deaf.append(pid)
            return
        kill(pid, number)

    def answer(order: Order) -> PassReport:
        if len(bench.orders) == 1:
            signal.pause()
        return make_report(1)

    bench.reports = answer
    monkeypatch.setattr(os, "kill", ignore)
    first, second = bench.run(lambda: None)
    assert (first.abandoned, first.error) == (1, "it did not come to its end")
    assert (second.abandoned, second.error, second.well) == (1, None, False)
    kill(deaf[0], signal.SIGKILL)
    os.waitid(os.P_PID, deaf[0], os.WEXITED | os.WNOWAIT)
    assert children.collect_abandoned() == 0
