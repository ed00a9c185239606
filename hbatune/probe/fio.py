"""Run fio with a deadline and parse its output.

A read from a hung disk waits in the kernel, where SIGKILL does not reach it. So fio gets its own
session, files instead of pipes, and a deadline. If it does not die, hbatune continues without it.
Percentiles of several jobs come from one merged histogram, since percentiles cannot be averaged.
"""

import contextlib
import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from hbatune import children
from hbatune.facts.sampler import CpuTime, read_cpu_time
from hbatune.probe.result import (
    REPLAY_GRACE_S,
    Failed,
    Failure,
    Figures,
    Histogram,
    Prepare,
    Skip,
    Skipped,
    Window,
    Workload,
    merge_histograms,
)
from hbatune.render import render_template
from hbatune.workers import find_process, worker

WRITER_JOB, END_JOB = "beside", "end"  # the names of jobs that the figures do not include
MAX_QUOTED = 500  # characters of another program's output to keep
MIN_WINDOW_FRACTION = 0.5
"""Fraction of the longest window: shorter ones, such as the last, join the previous one."""
LATE_FACTOR = 1.02
"""Factor on the requested time: a later status includes the wait for the last I/Os in flight."""


class Count(Window, frozen=True):
    """The counters of a run from its warm-up to one moment, all jobs together."""

    by_job: tuple[int, ...]
    mean_ns: float


def parse_figures(target: str, output: str, workload: Workload) -> Figures | Failed:
    """Return the figures in fio's json+ ``output``; warnings before the JSON are skipped.

    The last document covers the entire run, and earlier ones are its state at intervals.
    """
    try:
        counts = []
        for document in parse_documents(output):
            jobs = msgspec.convert(document, _Output, strict=False).jobs
            counts.append(_sum_counters(jobs))
        if not counts:
            raise ValueError(output.strip() or "fio wrote nothing")
        for job in jobs:
            if job.error:
                return Failed(target, Failure.IO, errno=job.error)
        if not counts[-1].mean_ns:
            return Failed(target, Failure.NO_IO)
        if not counts[-1].histogram.counts:
            raise ValueError("no latency histogram")
        if counts[-1].seconds <= 0:
            raise ValueError("I/Os that took no time")
    except (ValueError, msgspec.MsgspecError) as error:  # not JSON at all, or not fio's
        return Failed(target, Failure.GARBAGE, text=str(error)[:MAX_QUOTED])
    if workload.trace is not None:
        return _make_replay_figures(counts[-1], jobs, workload.runtime, workload.trace.rate)
    figures = _make_figures(select_counts(counts, workload.runtime), workload.block_size)
    rate = 0.0
    for job in jobs:
        if job.jobname == WRITER_JOB and job.write is not None and job.write.runtime:
            rate += job.write.io_bytes * 1000 / job.write.runtime
    return replace(figures, written_beside=rate or None)


def parse_documents(output: str) -> Iterator[object]:
    """Yield the JSON objects in fio's output; other text and broken objects are skipped.

    With ``--status-interval`` fio writes one after another, each counting from the end of the
    warm-up. Raises ValueError if the last is broken: the others do not cover the entire run.
    """
    decoder = json.JSONDecoder()
    damage: Exception | None = None
    for text in re.split(r"^(?=\{)", output, flags=re.MULTILINE)[1:]:
        damage = None
        try:
            yield decoder.raw_decode(text)[0]
        except (ValueError, RecursionError) as error:
            damage = error
    if damage is not None:
        raise ValueError(f"the last document is broken: {damage}")


def select_counts(counts: Sequence[Count], requested: float) -> list[Count]:
    """Return the counts of a run within the ``requested`` seconds after its warm-up.

    The last count, of the entire run, is used only if the others cover less than half of the time.
    When the time is up, fio waits for the I/Os in flight. ``runtime`` includes that wait, and the
    histogram includes their latencies, which are too long, but ``total_ios`` does not count them
    (seen with fio 3.33). With 128 reads in flight at 400 IOPS, the rate would be a tenth too low.
    """
    measured: list[Count] = []
    for count in counts:
        # The counters start again after the warm-up, during which there are no latencies (seen
        # with fio 3.33; stat.c: reset_io_stats). All counts before they decreased belong to it.
        if measured and not _is_continuation(measured[-1], count):
            measured = []
        if count.histogram.counts:
            measured.append(count)
    *statuses, final = measured
    in_time = [count for count in statuses if count.seconds <= LATE_FACTOR * requested]
    if not in_time or in_time[-1].seconds < MIN_WINDOW_FRACTION * requested:
        waited = final.histogram.count > final.ios
        in_time.append(replace(final, seconds=min(final.seconds, requested)) if waited else final)
    return in_time


def cut_windows(counts: Sequence[Window]) -> tuple[Window, ...]:
    """Return the windows between the counts of one run; their sum is the last count."""
    longest = end = 0.0
    for count in counts:
        longest, end = max(longest, count.seconds - end), count.seconds
    marks = [Window(0.0, 0, Histogram(), 0.0, 0.0)]
    for count in counts:
        if count.seconds - marks[-1].seconds >= MIN_WINDOW_FRACTION * longest:
            marks.append(count)
    if len(marks) > 1:
        # The remainder joins the last window, so no I/O is lost between two windows.
        marks[-1] = counts[-1]
    windows = []
    for first, second in pairwise(marks):
        window = Window(
            seconds=second.seconds - first.seconds,
            ios=max(0, second.ios - first.ios),
            histogram=second.histogram.minus(first.histogram),
            user=max(0.0, second.user - first.user),
            system=max(0.0, second.system - first.system),
        )
        windows.append(window)
    return tuple(windows)


class _Latency(Struct, frozen=True):
    mean: float
    count: int = field(name="N")
    bins: dict[int, int] = field(default_factory=dict)


class _Side(Struct, frozen=True):
    runtime: int  # ms
    total_ios: int
    io_bytes: int
    lat_ns: _Latency


class _Job(Struct, frozen=True):
    error: int
    job_runtime: int  # ms
    usr_cpu: float  # percent of job_runtime
    sys_cpu: float
    read: _Side
    write: _Side | None = None  # some versions leave out a direction without I/O
    jobname: str = ""

    @property
    def sides(self) -> tuple[_Side, ...]:
        """The directions with I/O."""
        return tuple(side for side in (self.read, self.write) if side and side.total_ios)


class _Output(Struct, frozen=True):
    jobs: tuple[_Job, ...]


def _sum_counters(jobs: Sequence[_Job]) -> Count:
    by_job, sides = [], list[_Side]()
    user = system = 0.0
    for job in jobs:
        if job.jobname not in (WRITER_JOB, END_JOB):
            sides += job.sides
            by_job.append(sum(side.total_ios for side in job.sides))
            user += job.usr_cpu * job.job_runtime
            system += job.sys_cpu * job.job_runtime
    timed = sum(side.lat_ns.count for side in sides)
    waited = sum(side.lat_ns.mean * side.lat_ns.count for side in sides)
    return Count(
        seconds=max((side.runtime for side in sides), default=0) / 1000,
        ios=sum(by_job),
        by_job=tuple(by_job),
        histogram=merge_histograms(Histogram(side.lat_ns.bins) for side in sides),
        mean_ns=waited / timed if timed else 0.0,
        user=user / 100_000,
        system=system / 100_000,
    )


def _make_figures(counts: Sequence[Count], block_size: float) -> Figures:
    run = counts[-1]
    return Figures(
        iops=run.ios / run.seconds,
        # A status reads its ``io_bytes`` earlier than ``total_ios``, on a busy machine by 11 ms
        # (seen with fio 3.33; stat.c: __show_running_run_stats).
        bandwidth=run.ios * block_size / run.seconds,
        mean_us=run.mean_ns / 1000,
        p50_us=run.histogram.percentile(50) / 1000,
        p95_us=run.histogram.percentile(95) / 1000,
        p99_us=run.histogram.percentile(99) / 1000,
        p999_us=run.histogram.percentile(99.9) / 1000,
        cpu_us_per_io=(run.user + run.system) * 1_000_000 / run.ios,
        ios=run.ios,
        runtime=run.seconds,
        job_iops=tuple(ios / run.seconds for ios in run.by_job),
        windows=cut_windows(counts),
    )


def _make_replay_figures(run: Count, jobs: Sequence[_Job], seconds: float, rate: float) -> Figures:
    """Return the figures of a replay: fio's time includes the lead-in, and the sizes differ."""
    transferred, end = 0, run.seconds
    for job in jobs:
        if job.jobname == END_JOB:
            end = job.job_runtime / 1000
        else:
            transferred += sum(side.io_bytes for side in job.sides)
    if run.ios < round(rate * seconds):
        # Each job still had an I/O in flight at the end. It counts, so its time counts, too.
        seconds += REPLAY_GRACE_S + max(0.0, run.seconds - end)
    return _make_figures([replace(run, seconds=seconds)], transferred / run.ios)


def _is_continuation(earlier: Count, later: Count) -> bool:
    return later.seconds >= earlier.seconds and all(
        later.histogram.counts.get(value, 0) >= count
        for value, count in earlier.histogram.counts.items()
    )


# Older ones interpret flow differently, and their JSON lacks percentiles of lat.
MIN_FIO_VERSION = (3, 23)
# Older ones do not wait for all I/Os of a group (thinktime_blocks_type).
GROUPS_FIO_VERSION = (3, 26)
TIME_MARGIN_S = 15.0  # seconds added to the workload's own, to start and to wait for slow I/O
KILL_GRACE_S = 2.0  # seconds for a killed fio to exit
START_TIME_S = 0.25  # allowed for the start of fio, or a quarter of a run of less than one second


class Fio(Struct, frozen=True):
    """A usable fio: its path, the version that it reports, and whether it does groups of I/Os."""

    path: str
    version: str
    does_groups: bool = True


class Meter:
    """Counts the time of the given CPUs during one run, or of all CPUs if none are given.

    fio counts only the CPU time of its threads, and interrupts are the larger part on a fast drive.
    fio takes a while to start, so the count runs while I/O is certainly in flight: from a moment
    after the warm-up to the end of the runtime.
    """

    def __init__(self, workload: Workload, cpus: tuple[int, ...]) -> None:
        start = min(START_TIME_S, workload.runtime / 4)
        self._pauses = (workload.ramp + start, workload.runtime - start)
        self._cpus = cpus
        self._marks: list[tuple[float, CpuTime]] = []

    def during(self, wait: Callable[[float], int | None], seconds: float) -> int | None:
        """Wait as ``wait`` does, like ``children.wait``, and count CPU time during the wait."""
        for pause in self._pauses:
            status = wait(pause)
            if status is not None:
                return status
            spent = read_cpu_time(self._cpus)
            self._marks += [(time.monotonic(), spent)] if spent else []
        return wait(seconds - sum(self._pauses))

    def add_cost(self, figures: Figures) -> Figures:
        """Return the figures with CPU time, unless the run ended early or /proc was unreadable."""
        if len(self._marks) < 2:
            return figures
        (began, first), (ended, last) = self._marks
        spent = last.since(first)
        if spent.total <= 0 or ended <= began:
            return figures
        per_io = spent.interrupts / (ended - began) * 1_000_000 / figures.iops
        return replace(figures, interrupt_us_per_io=per_io, busy=1 - spent.idle / spent.total)


def find(target: str) -> Fio | Skipped:
    """Find fio on PATH and read its version; return why ``target`` is skipped without it."""
    path = shutil.which("fio")
    if path is None:
        return Skipped(target, Skip.NO_FIO)
    try:
        version, output = _read_version(path, os.stat(path).st_mtime_ns)
    except OSError as error:
        return Skipped(target, Skip.BROKEN_FIO, error.strerror)
    if version < MIN_FIO_VERSION:
        return Skipped(target, Skip.OLD_FIO, output)
    return Fio(path, output.removeprefix("fio-"), version >= GROUPS_FIO_VERSION)


@cache  # until a package replaces it: fio's start takes as long as a short run on a slow machine
def _read_version(path: str, changed: int) -> tuple[tuple[int, ...], str]:
    completed = children.run([path, "--version"], TIME_MARGIN_S)
    output = completed.stdout.decode("utf-8", "replace").strip()[:MAX_QUOTED]
    errors = completed.stderr.decode("utf-8", "replace").strip()[:MAX_QUOTED]
    match = re.match(r"fio-(\d+)\.(\d+)", output)
    if match is None:
        silence = f"it says nothing, with exit status {completed.returncode}"
        raise OSError(errno.EIO, errors or output or silence)
    return tuple(map(int, match.groups())), output


def measure(
    fio: Fio,
    target: str,
    nodes: tuple[str, ...],
    size: int,
    workload: Workload,
    *,
    margin: float = TIME_MARGIN_S,
    write: bool = False,
    cpus: str | None = None,
    involved: tuple[int, ...] = (),
    prepare: Prepare = lambda: None,
) -> Figures | Failed | Skipped:
    """Run the workload on all ``nodes`` concurrently and return the figures of all together.

    ``prepare`` is called while fio starts, which does no I/O before it gets its job. If it returns
    a reason, the job is not run. ``size`` is the smallest node's in bytes. fio runs only on
    ``cpus``, if they are given. The time of interrupts is counted on the CPUs ``involved``, or on
    all CPUs if that is empty. Without ``write``, fio itself refuses a workload that writes; a
    caller that allows writes must have checked that the device is empty (``guard``). The logs of a
    replay are files in the same directory as its output.

    Returns within the workload's seconds plus ``margin`` and ``KILL_GRACE_S``, even if the device
    hangs. Raises ``UnsafeNameError`` for a node that a job file cannot name.
    """
    from hbatune.probe.replay import MAX_DEPTH, make_jobs  # it also loads what records a trace

    jobs, moved = make_jobs(workload, size, MAX_DEPTH if fio.does_groups else 1)
    values = {"workload": workload, "size": size, "cpus": cpus, "jobs": jobs}
    job = render_template("templates", "probe.fio.j2", nodes=nodes, **values)
    try:
        for path in nodes:
            os.stat(path)  # fio calls a missing file EINVAL
        # A fio that could not be killed may still write its files while the folder is removed.
        import tempfile  # not for a daemon that starts, whose memory counts

        with tempfile.TemporaryDirectory(prefix="hbatune-", ignore_cleanup_errors=True) as name:
            directory = Path(name)  # mode 0700: no other user can read the result
            for number, replay in enumerate(jobs):
                (directory / f"log-{number}").write_text(replay.log)
            # json+ has the latency histogram of every job (``bins``: nanoseconds → I/Os).
            command = [fio.path, "--output-format=json+", "--output=out"]
            if not write:
                # A second lock in addition to the guard: fio then refuses any job that writes.
                command.append("--readonly")
            command += ["-"] if jobs else [f"--status-interval={workload.window_ms}ms", "-"]
            meter = Meter(workload, involved)
            with _start(command, directory) as running:
                if jobs:
                    # Each job opens two files, and 1024 is the usual limit.
                    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                    resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (hard, hard))
                if (refusal := prepare()) is not None:
                    return refusal
                assert running.stdin is not None
                # If it has already ended, its status shows why.
                with contextlib.suppress(BrokenPipeError), running.stdin:
                    running.stdin.write(job.encode())
                status = meter.during(partial(children.wait, running), workload.seconds + margin)
                if status is None:
                    if children.stop(running, KILL_GRACE_S) is not None:
                        return Failed(target, Failure.TIMEOUT)
                    return Failed(target, Failure.STUCK, process=find_process(running.pid))
            output = _read_text(directory / "out")
            errors = _read_text(directory / "stderr").strip() or output.strip()
    except OSError as error:
        return Failed(target, Failure.LAUNCH, errno=error.errno)
    figures = parse_figures(target, output, workload)
    has_errno = isinstance(figures, Failed) and figures.reason is Failure.IO
    # An errno that fio has reported is more precise than the exit status that it causes.
    if status and not has_errno:
        return Failed(target, Failure.EXIT, status=status, text=errors[-MAX_QUOTED:] or None)
    return figures if isinstance(figures, Failed) else meter.add_cost(replace(figures, moved=moved))


@contextlib.contextmanager
def _start(command: list[str], directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a command in ``directory``, with ``stderr`` as a file there; kill it at the end."""
    running: subprocess.Popen[bytes] | None = None
    try:
        with (directory / "stderr").open("wb") as errors, _defer_interrupts():
            running = subprocess.Popen(
                command,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                # A fixed locale, since output and messages are parsed.
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                # Ctrl-C then reaches only hbatune, and one kill ends all processes of fio.
                start_new_session=True,
                preexec_fn=partial(worker.die_with_parent, os.getpid()),
            )
        yield running
    finally:
        # Not even an interrupt may leave fio running: it would continue to load the disk.
        if running is not None and running.returncode is None:
            children.stop(running, KILL_GRACE_S)


@contextlib.contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Defer SIGINT and SIGTERM until the body ends: before that there is no process to kill.

    A signal mask is not enough: it belongs to one thread, and a signal that another thread takes
    still interrupts this one.
    """
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        received.append(number)

    handlers = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for signum in received:
            signal.raise_signal(signum)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
