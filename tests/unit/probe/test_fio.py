"""fio for real for a moment, and programs that pretend to be fio and misbehave."""

import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hbatune.facts.sampler import CpuTime
from hbatune.probe import fio
from hbatune.probe.fio import Meter
from hbatune.probe.replay import make_replay
from hbatune.probe.result import (
    Failed,
    Failure,
    Figures,
    Pattern,
    Skip,
    Skipped,
    Workload,
    merge_histograms,
)
from hbatune.text.probe_tables import explain_missing_result
from hbatune.workers import find_process
from tests.unit.noisy_disks import figures
from tests.unit.traces import save, steady_ios

RECORDED = Path(__file__).parent / "recorded" / "fio-3.33-1-jobs.json"
SHORT = Workload(ramp=0, runtime=0.1)
SIZE = 1 << 20
HUNG = 2.0  # long enough for a script to say that it runs
VERSION = 'if [ "$1" = --version ]; then echo fio-3.33; exit; fi\n'

real_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


class Fake:
    """A directory on PATH whose fio is a shell script."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.node = directory / "disk"
        self.node.write_bytes(bytes(4096))

    def script(self, body: str, version: str = VERSION) -> None:
        """Make fio do this; it finds the recorded output in $RECORDED."""
        path = self.directory / "fio"
        path.write_text(f"#!/bin/sh\nRECORDED='{RECORDED}'\n{version}{body}\n")
        path.chmod(0o755)

    def measure(self, *, margin: float = 30.0) -> Figures | Failed | Skipped:
        """Run it as a probe would."""
        return fio.measure(usable(), "sda", (str(self.node),), SIZE, SHORT, margin=margin)


def usable() -> fio.Fio:
    """Return the fio on PATH and assert that it is usable."""
    program = fio.find("sda")
    assert isinstance(program, fio.Fio)
    return program


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Put a fio that can be scripted in front of PATH, and temporary files where they show."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return Fake(tmp_path / "bin")


@pytest.fixture
def disk() -> Iterator[Path]:
    """Return a file on a real filesystem, whose name has what fio takes for a separator."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        path = Path(directory) / "a:b,c=d%e@f+g~h!i-j:"
        path.write_bytes(os.urandom(1 << 20))
        yield path


@real_fio
def test_fio_refuses_unpermitted_writes(disk: Path) -> None:
    before = disk.read_bytes()
    writing = Workload(Pattern.RANDOM_MIX, ramp=0, runtime=0.2, reads=50)
    refused = fio.measure(usable(), "sda", (str(disk),), SIZE, writing)
    assert isinstance(refused, Failed)
    assert disk.read_bytes() == before
    done = fio.measure(usable(), "sda", (str(disk),), SIZE, writing, write=True)
    assert isinstance(done, Figures)
    assert disk.read_bytes() != before
    assert sum(window.ios for window in done.windows) in range(done.ios - 8, done.ios + 1)


def test_fio_runs_on_given_cpus(fake: Fake) -> None:
    fake.script("grep cpus_allowed= >&2; exit 7")
    outcome = fio.measure(usable(), "sda", (str(fake.node),), SIZE, SHORT, cpus="0,2-3")
    assert isinstance(outcome, Failed)
    assert "cpus_allowed=0,2-3" in (outcome.text or "")


@real_fio
def test_real_fio_preserves_data(disk: Path) -> None:
    before = disk.read_bytes()
    # Long enough that what is in flight as the ramp ends is lost in it, however busy the machine.
    workload = Workload(ramp=0.1, runtime=1.0, jobs=2)
    outcome = fio.measure(usable(), "sda", (str(disk),), SIZE, workload)
    assert isinstance(outcome, Figures)
    assert 0 < outcome.p50_us <= outcome.p95_us <= outcome.p99_us <= outcome.p999_us
    assert outcome.ios == pytest.approx(outcome.iops * outcome.runtime, rel=0.2)
    assert outcome.bandwidth == pytest.approx(outcome.iops * 4096, rel=0.01)
    assert outcome.cpu_us_per_io > 0
    assert len(outcome.job_iops) == 2
    assert disk.read_bytes() == before
    assert sorted(disk.parent.iterdir()) == [disk]


@real_fio
def test_real_windows_sum_to_run(disk: Path) -> None:
    outcome = fio.measure(usable(), "sda", (str(disk),), SIZE, Workload(ramp=0.4, runtime=1.0))
    assert isinstance(outcome, Figures)
    assert len(outcome.windows) > 1
    assert sum(window.seconds for window in outcome.windows) == pytest.approx(outcome.runtime)
    assert sum(window.ios for window in outcome.windows) == outcome.ios
    merged = merge_histograms(window.histogram for window in outcome.windows)
    assert merged.percentile(99) / 1000 == outcome.p99_us


@real_fio
@pytest.mark.parametrize("every_us", [500, 5])
def test_real_fio_replays_trace(disk: Path, tmp_path: Path, every_us: int) -> None:
    """Also groups of I/Os that start together."""
    before = disk.read_bytes()
    # Overlapping I/Os need several jobs, and half of the addresses are beyond the file's end.
    path = save(tmp_path / "disk.trace", steady_ios(120, every_us=every_us, writes=40))
    reading = make_replay(path)
    outcome = fio.measure(usable(), "sda", (str(disk),), SIZE // 2, reading)
    assert isinstance(outcome, Figures)
    assert outcome.moved == 16
    assert (outcome.ios, outcome.runtime) == (80, 1.0)
    assert outcome.iops == pytest.approx(80)
    assert outcome.bandwidth == pytest.approx(80 * 8192)
    assert 0 < outcome.p50_us <= outcome.p999_us
    assert disk.read_bytes() == before
    writing = make_replay(path, writes=True)
    assert isinstance(fio.measure(usable(), "sda", (str(disk),), SIZE, writing), Failed)
    assert disk.read_bytes() == before
    outcome = fio.measure(usable(), "sda", (str(disk),), SIZE, writing, write=True)
    assert isinstance(outcome, Figures)
    assert outcome.ios == 120
    assert disk.read_bytes() != before
    assert sorted(disk.parent.iterdir()) == [disk]


def test_replay_may_open_many_files(fake: Fake, tmp_path: Path) -> None:
    path = save(tmp_path / "disk.trace", steady_ios(3))
    fake.script(f"cat >job; ulimit -n >{fake.directory}/limit; exit 7")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
    try:
        fio.measure(usable(), "sda", (str(fake.node),), SIZE, make_replay(path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (fake.directory / "limit").read_text().strip() == str(hard)


def test_fio_gets_readonly_flag(fake: Fake) -> None:
    fake.script(f'echo "$@" >{fake.directory}/argv; cat "$RECORDED" >out')
    assert isinstance(fake.measure(), Figures)
    assert "--readonly" in (fake.directory / "argv").read_text().split()


def test_private_folder_is_removed(fake: Fake) -> None:
    fake.script(f'stat -c %a . >{fake.directory}/mode; cat "$RECORDED" >out')
    fake.measure()
    assert (fake.directory / "mode").read_text().strip() == "700"
    assert list((fake.directory.parent / "tmp").iterdir()) == []


def test_missing_fio_is_reported(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(fake.directory))
    assert fio.find("sda") == Skipped("sda", Skip.NO_FIO)


def test_version_is_read_once(fake: Fake) -> None:
    """A proof has dozens of runs, and fio's start takes a part of each."""
    log = fake.directory / "versions"
    fake.script("", version=f"echo 3.33 >>{log}; echo fio-3.33\n")
    assert usable() == usable()
    assert log.read_text().split() == ["3.33"]
    fake.script("", version=f"echo 3.41 >>{log}; echo fio-3.41\n")
    path = fake.directory / "fio"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert usable().version == "3.41", "a package has replaced it"
    assert log.read_text().split() == ["3.33", "3.41"]


@pytest.mark.parametrize(
    ("version", "does_groups"),
    [
        ("fio-3.33", True),
        ("fio-3.26", True),
        ("fio-3.25", False),
        ("fio-3.23", False),
        ("fio-3.36-17-gb1f2", True),
        ("fio-4.0", True),
    ],
)
def test_supported_fio_is_accepted(fake: Fake, version: str, does_groups: bool) -> None:
    fake.script("", version=f"echo '{version}'\n")
    path = str(fake.directory / "fio")
    assert fio.find("sda") == fio.Fio(path, version.removeprefix("fio-"), does_groups)


@pytest.mark.parametrize("version", ["fio-3.22", "fio-3.19", "fio-2.99"])
def test_old_fio_is_refused(fake: Fake, version: str) -> None:
    fake.script("", version=f"echo '{version}'\n")
    assert fio.find("sda") == Skipped("sda", Skip.OLD_FIO, version)


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("echo flexible beer; exit", "flexible beer"),
        ("exit", "it says nothing, with exit status 0"),
        ("exit 3", "it says nothing, with exit status 3"),
        ("echo 'libaio.so.1: no such file' >&2; exit 127", "libaio.so.1: no such file"),
    ],
)
def test_failing_fio_is_broken(fake: Fake, script: str, detail: str) -> None:
    fake.script("", version=f"{script}\n")
    assert fio.find("sda") == Skipped("sda", Skip.BROKEN_FIO, detail)
    explanation = explain_missing_result(Skipped("sda", Skip.BROKEN_FIO, detail))
    assert explanation == f"fio is installed and does not start: try `fio --version` ({detail})"


def test_unexecutable_fio_is_broken(fake: Fake) -> None:
    fake.script("")
    (fake.directory / "fio").write_bytes(b"\x7fELF of another machine")
    assert fio.find("sda") == Skipped("sda", Skip.BROKEN_FIO, "Exec format error")


def test_hanging_fio_is_broken(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fio, "TIME_MARGIN_S", 0.2)
    fake.script("", version="exec sleep 60\n")
    assert fio.find("sda") == Skipped("sda", Skip.BROKEN_FIO, "it did not end within 0.2 s")


def test_warnings_preserve_figures(fake: Fake) -> None:
    fake.script('{ echo "note: something"; cat "$RECORDED"; } >out; echo warning >&2')
    assert isinstance(fake.measure(), Figures)


def test_garbage_output_is_failure(fake: Fake) -> None:
    fake.script("echo 'panic {}' >out")
    outcome = fake.measure()
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.text) == (Failure.GARBAGE, "panic {}")


def test_empty_output_is_failure(fake: Fake) -> None:
    fake.script("exit 0")
    outcome = fake.measure()
    assert isinstance(outcome, Failed)
    assert outcome.reason is Failure.GARBAGE


def test_failed_fio_yields_no_figures(fake: Fake) -> None:
    fake.script('cat "$RECORDED" >out; echo "engine libaio not loadable" >&2; exit 3')
    outcome = fake.measure()
    assert outcome == Failed("sda", Failure.EXIT, status=3, text="engine libaio not loadable")


def test_io_error_precedes_exit_status(fake: Fake) -> None:
    fake.script('sed \'s/"error":0/"error":5/\' "$RECORDED" >out; exit 1')
    assert fake.measure() == Failed("sda", Failure.IO, errno=5)


def test_killed_fio_reports_signal(fake: Fake) -> None:
    fake.script('head -c 500 "$RECORDED" >out; kill -9 $$')
    outcome = fake.measure()
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.status) == (Failure.EXIT, -signal.SIGKILL)


def test_vanished_device_fails_launch(fake: Fake) -> None:
    fake.script('cat "$RECORDED" >out')
    fake.node.unlink()
    outcome = fake.measure()
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.errno) == (Failure.LAUNCH, 2)


def test_timeout_kills_process_group(fake: Fake) -> None:
    pids = fake.directory / "pids"
    fake.script(f"trap '' TERM; sleep 1000 & echo $$ $! >{pids}; wait")
    outcome = fake.measure(margin=HUNG)
    assert outcome == Failed("sda", Failure.TIMEOUT)
    assert_gone(pids)


def test_unkillable_fio_is_abandoned(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = fake.directory / "pids"
    fake.script(f"echo $$ $$ >{pids}; exec sleep 1000")
    with monkeypatch.context() as deaf:
        deaf.setattr(os, "killpg", lambda *_: None)
        deaf.setattr(fio, "KILL_GRACE_S", 0.1)
        outcome = fake.measure(margin=HUNG)
    pid = int(pids.read_text().split()[0])
    still = find_process(pid)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert outcome == Failed("sda", Failure.STUCK, process=still)


def test_interrupt_ends_fio_first(fake: Fake) -> None:
    pids = fake.directory / "pids"
    fake.script(f"sleep 1000 & echo $$ $! >{pids}; kill -INT $PPID; wait")
    with pytest.raises(KeyboardInterrupt):
        fake.measure()
    assert_gone(pids)


def interrupt_by_another_thread() -> None:
    """Send the signal to another thread, such as a progress bar's. The main thread handles it."""
    idle = threading.Event()
    waiter = threading.Thread(target=idle.wait)
    waiter.start()
    try:
        assert waiter.ident is not None
        signal.pthread_kill(waiter.ident, signal.SIGINT)
    finally:
        idle.set()
        waiter.join()


@pytest.mark.parametrize(
    "interrupt", [lambda: signal.raise_signal(signal.SIGINT), interrupt_by_another_thread]
)
def test_interrupt_at_launch_ends_fio(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    fake.script("exec sleep 1000")
    program, started, start = usable(), [], subprocess.Popen

    def interrupted(*args: Any, **options: Any) -> "subprocess.Popen[bytes]":
        running: subprocess.Popen[bytes] = start(*args, **options)
        started.append(find_process(running.pid))
        interrupt()
        return running

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fio.measure(program, "sda", (str(fake.node),), SIZE, SHORT)
    assert [process.alive() for process in started] == [False]


def test_refused_fio_gets_no_job(fake: Fake) -> None:
    ready, job = fake.directory / "ready", fake.directory / "job"
    os.mkfifo(ready)
    fake.script(f"exec 3>{job}; echo $$ >{ready}; exec cat >&3")
    started: list[int] = []

    def refuse() -> Skipped:
        started.append(int(ready.read_text()))
        return Skipped("sda", Skip.BUSY)

    program = usable()
    outcome = fio.measure(program, "sda", (str(fake.node),), SIZE, SHORT, prepare=refuse)
    assert outcome == Skipped("sda", Skip.BUSY)
    assert not job.read_text()
    [pid] = started
    assert not Path(f"/proc/{pid}").exists()


def test_fio_gets_empty_signal_mask(fake: Fake) -> None:
    # No shell here: dash clears the mask that it inherits. The first line of a script cannot name a
    # Python below a path with a blank, so it names a link.
    path, mask, python = (fake.directory / name for name in ("fio", "mask", "python"))
    python.symlink_to(os.path.realpath(sys.executable))
    path.write_text(
        f"#!{python}\nimport signal\n"
        f"open({str(mask)!r}, 'w').write(str(len(signal.pthread_sigmask(0, ()))))\n"
    )
    path.chmod(0o755)
    fio.measure(fio.Fio(str(path), "3.33"), "sda", (str(fake.node),), SIZE, SHORT)
    assert mask.read_text() == "0"


CALLER = """
from hbatune.probe import fio
from hbatune.probe.result import Workload
fio.measure(fio.find("sda"), "sda", ({node!r},), 1048576, Workload(), margin=1000)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_caller_ends_fio(fake: Fake, signum: signal.Signals) -> None:
    ready, pids = fake.directory / "ready", fake.directory / "pids"
    os.mkfifo(ready)
    fake.script(f"echo $$ $$ >{pids}; echo >{ready}; exec sleep 1000")
    with subprocess.Popen(
        [sys.executable, "-c", CALLER.format(node=str(fake.node))],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},  # a killed caller cannot tidy up
    ) as caller:
        ready.read_bytes()  # waits until fio runs
        caller.send_signal(signum)
        caller.wait(30)
    assert_gone(pids)


def test_fio_inherits_no_descriptors(fake: Fake) -> None:
    fake.script(f'ls -l /proc/self/fd >{fake.directory}/fds; cat "$RECORDED" >out')
    lock = fake.directory / "lock"
    with lock.open("w") as open_file:
        os.set_inheritable(open_file.fileno(), True)
        fake.measure()
    descriptors = (fake.directory / "fds").read_text()
    assert str(lock) not in descriptors
    assert re.findall(r"(\d+) -> pipe:", descriptors) == ["0"], "its job comes from a pipe"


def test_fio_job_names_device(fake: Fake) -> None:
    fake.script(f'cat >{fake.directory}/job; cat "$RECORDED" >out')
    fake.measure()
    assert f"filename={fake.node}" in (fake.directory / "job").read_text().splitlines()
    assert stat.S_ISREG(fake.node.stat().st_mode)


def assert_gone(pids: Path) -> None:
    """Wait until the listed processes have ended. A zombie has ended."""
    listed = [find_process(int(pid)) for pid in pids.read_text().split()]
    due = time.monotonic() + 30
    while any(process.alive() for process in listed):
        assert time.monotonic() < due, "a process was left behind"
        os.sched_yield()


def measured(
    monkeypatch: pytest.MonkeyPatch, readings: Iterator[CpuTime | None], ends: float = 9.0
) -> tuple[Meter, list[float]]:
    """Return the meter of a run that ends after ``ends`` seconds, and its waits in seconds."""
    clock_s, waits = [0.0], list[float]()

    def wait(seconds: float) -> int | None:
        waits.append(seconds)
        clock_s[0] += seconds
        return 0 if clock_s[0] >= ends else None

    monkeypatch.setattr(fio, "read_cpu_time", lambda cpus: next(readings))
    monkeypatch.setattr(fio, "time", SimpleNamespace(monotonic=lambda: clock_s[0]))
    meter = Meter(Workload(ramp=0.5, runtime=2.0), (0, 1))
    assert meter.during(wait, 10.0) == 0
    return meter, waits


def test_interrupts_are_measured_during_io(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([CpuTime(100.0, 50.0, 1.0), CpuTime(103.5, 50.7, 1.35)])
    meter, waits = measured(monkeypatch, readings)
    assert waits == [0.75, 1.75, 7.5], "from after the warm-up to the end of the runtime"
    measured_figures = meter.add_cost(figures(1000, 100, 200))
    assert measured_figures.interrupt_us_per_io == pytest.approx(200)
    assert measured_figures.busy == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("readings", "ends"),
    [([CpuTime(1, 0, 0)], 1.0), ([None, None], 9.0), ([CpuTime(1, 0, 0)] * 2, 9.0)],
)
def test_incomplete_run_has_no_cost(
    monkeypatch: pytest.MonkeyPatch, readings: list[CpuTime | None], ends: float
) -> None:
    unmetered = figures(1000, 100, 200)
    assert measured(monkeypatch, iter(readings), ends)[0].add_cost(unmetered) == unmetered
