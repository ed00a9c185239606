"""Run fio with a deadline and parse its output.

Parses fio's JSON: merges its jobs and cuts a run into windows. Pure.

fio's json+ has the latency histogram of every job (``bins``: nanoseconds → I/Os), so percentiles
of several jobs come from one merged histogram: percentiles themselves cannot be averaged.

With ``--status-interval`` fio writes one JSON document after another, each counting from the end
of the warm-up. Those written during the warm-up count the warm-up's I/Os, hold no latencies, and
the counters start again after it (seen with fio 3.33; stat.c: reset_io_stats).

When the time is up, fio waits for the I/Os in flight. ``runtime`` then includes that wait and the
histogram includes those latencies, which are too long, but ``total_ios`` does not count these I/Os
(seen with fio 3.33). With 128 reads in flight on a disk that does 400 a second, the rate would come
out a tenth too low. So the figures are those of the last status within the time, not of the end.

Runs fio with a deadline, so that no device can hold hbatune up, and leaves nothing behind.

A read from a hung disk waits in the kernel, where SIGKILL does not reach it: fio gets its own
session, files instead of pipes, a deadline, and is walked away from if it does not die.

fio counts the CPU time of its own threads; that of interrupts, the larger part of it on a fast
drive, is counted here (``Meter``), over a stretch in which I/O is in flight for certain: from a
moment after the warm-up to the end of the runtime, as fio itself takes a while to start.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from hbatune import children
from hbatune.facts.sampler import CpuTime, cpu_time
from hbatune.probe.result import (
    Failed,
    Failure,
    Figures,
    Histogram,
    Skip,
    Window,
    Workload,
    merge_histograms,
)
from hbatune.render import render
from hbatune.workers import Process, process

BESIDE = "beside"
"""The name of the job of a bulk writer, which is not among the figures."""
QUOTED = 500  # characters of another program's output that are kept
SHORTEST = 0.5
"""Share of the longest window: a shorter one, such as the last, is joined to the one before."""
LATE = 1.02
"""Share of the time asked for: a later status includes the wait for the last I/Os in flight."""


class Count(Struct, frozen=True):
    """The counters of a run at one moment, all jobs together; seconds since warm-up."""

    seconds: float
    by_job: tuple[int, ...]
    bytes: int
    histogram: Histogram
    mean_ns: float
    user: float
    system: float

    @property
    def ios(self) -> int:
        """The I/Os of all jobs."""
        return sum(self.by_job)


def parse_figures(target: str, output: str, asked: float) -> Figures | Failed:
    """Return the figures in fio's json+ ``output``; warnings before the JSON are skipped.

    The last document is the whole run; those before it are its state at intervals. ``asked`` is
    the measured time that the job file asked for, in seconds.
    """
    try:
        seen = [msgspec.convert(one, _Output, strict=False).jobs for one in json_documents(output)]
        if not seen:
            raise ValueError(output.strip() or "fio wrote nothing")
        counts = [_count(_measured(jobs)) for jobs in seen]
    except ValueError as error:  # not JSON at all, or not fio's
        return Failed(target, Failure.GARBAGE, text=str(error)[:QUOTED])
    jobs = seen[-1]
    for job in jobs:
        if job.error:
            return Failed(target, Failure.IO, errno=job.error)
    if not any(side.lat_ns.count for job in _measured(jobs) for side in job.sides):
        return Failed(target, Failure.NO_IO)
    if not counts[-1].histogram.counts:
        return Failed(target, Failure.GARBAGE, text="no latency histogram")
    if counts[-1].seconds <= 0:
        return Failed(target, Failure.GARBAGE, text="I/Os that took no time")
    return replace(_figures(counts_in_time(counts, asked)), written_beside=_written_beside(jobs))


def json_documents(output: str) -> Iterator[object]:
    """Yield the JSON objects in fio's output; text between them is skipped.

    A truncated or broken object ends the search: its end cannot be found.
    """
    decoder = json.JSONDecoder()
    start = re.compile(r"^\{", re.MULTILINE)
    found = start.search(output)
    while found:
        try:
            document, end = decoder.raw_decode(output, found.start())
        except (ValueError, RecursionError):
            return
        yield document
        found = start.search(output, end)


def counts_in_time(counts: Sequence[Count], asked: float) -> list[Count]:
    """Return the counts of a run that lie within the ``asked`` seconds after its warm-up.

    The last one, of the whole run, is used only where the others cover less than half of the time.
    It may have more latencies than I/Os: fio waited for those when the time was up.
    """
    *told, whole = _after_warm_up(counts)
    found = [count for count in told if count.seconds <= LATE * asked]
    if not found or found[-1].seconds < SHORTEST * asked:
        waited = whole.histogram.count > whole.ios
        # With fio's own runtime, which includes the wait, the rate would be too low.
        found.append(replace(whole, seconds=min(whole.seconds, asked)) if waited else whole)
    return found


def cut_windows(counts: Sequence[Count]) -> tuple[Window, ...]:
    """Return the windows between the counts of one run; their sum is the last count."""
    return tuple(_between(first, second) for first, second in pairwise(_marks(counts)))


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
        """The directions in which it did I/O."""
        both = (self.read, *((self.write,) if self.write else ()))
        return tuple(side for side in both if side.total_ios)


class _Output(Struct, frozen=True):
    jobs: tuple[_Job, ...]


def _measured(jobs: Sequence[_Job]) -> list[_Job]:
    return [job for job in jobs if job.jobname != BESIDE]


def _written_beside(jobs: Sequence[_Job]) -> float | None:
    """Return the bytes/s of the bulk writer, None where there is none."""
    sides = [job.write for job in jobs if job.jobname == BESIDE and job.write is not None]
    return sum(side.io_bytes * 1000 / side.runtime for side in sides if side.runtime) or None


def _count(jobs: Sequence[_Job]) -> Count:
    sides = [side for job in jobs for side in job.sides]
    timed = sum(side.lat_ns.count for side in sides)
    waited = sum(side.lat_ns.mean * side.lat_ns.count for side in sides)
    return Count(
        seconds=max((side.runtime for side in sides), default=0) / 1000,
        by_job=tuple(sum(side.total_ios for side in job.sides) for job in jobs),
        bytes=sum(side.io_bytes for side in sides),
        histogram=merge_histograms(Histogram(side.lat_ns.bins) for side in sides),
        mean_ns=waited / timed if timed else 0.0,
        user=sum(job.usr_cpu * job.job_runtime for job in jobs) / 100_000,
        system=sum(job.sys_cpu * job.job_runtime for job in jobs) / 100_000,
    )


def _figures(counts: Sequence[Count]) -> Figures:
    run = counts[-1]
    return Figures(
        iops=run.ios / run.seconds,
        bandwidth=run.bytes / run.seconds,
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


def _after_warm_up(counts: Iterable[Count]) -> list[Count]:
    kept: list[Count] = []
    for count in counts:
        # Counters that went back were reset after the warm-up: everything before belongs to it.
        if kept and not _follows(kept[-1], count):
            kept = []
        if count.histogram.counts:
            kept.append(count)
    return kept


def _follows(earlier: Count, later: Count) -> bool:
    return later.seconds >= earlier.seconds and all(
        later.histogram.counts.get(value, 0) >= count
        for value, count in earlier.histogram.counts.items()
    )


def _marks(counts: Sequence[Count]) -> list[Count]:
    """Return the counts at which to cut, from zero to the last one."""
    if not counts:
        return []
    ends = [0.0, *(count.seconds for count in counts)]
    longest = max(second - first for first, second in pairwise(ends))
    marks = [Count(0.0, (), 0, Histogram(), 0.0, 0.0, 0.0)]
    for count in counts:
        if count.seconds - marks[-1].seconds >= SHORTEST * longest:
            marks.append(count)
    if len(marks) > 1:
        # The rest at the end joins the last window, so that no I/O is lost between two windows.
        marks[-1] = counts[-1]
    return marks


def _between(first: Count, second: Count) -> Window:
    return Window(
        seconds=second.seconds - first.seconds,
        ios=max(0, second.ios - first.ios),
        bytes=max(0, second.bytes - first.bytes),
        histogram=second.histogram.minus(first.histogram),
        user=max(0.0, second.user - first.user),
        system=max(0.0, second.system - first.system),
    )


OLDEST = (3, 23)  # older ones understand flow otherwise, and their JSON lacks percentiles of lat
MARGIN = 15.0  # seconds beyond the workload's own: starting, and waiting for slow I/O to end
GRACE = 2.0  # seconds for a killed fio to go away
_PR_SET_PDEATHSIG = 1
START = 0.25
"""Seconds allowed for the start of fio; of runs under one second, a quarter is taken instead."""
Wait = Callable[[float], int | None]
"""Waits for a process to end, for at most the seconds given; returns its status or None."""


class Fio(Struct, frozen=True):
    """A usable fio: its path and the version that it reports."""

    path: str
    version: str


class UnusableOutput(Struct, frozen=True):
    """No usable fio; ``detail`` is the version found, or why there is none to be found."""

    reason: Skip
    detail: str | None = None


class Cost(Struct, frozen=True):
    """CPU seconds spent in interrupts per second, and the share of time (0 to 1) not idle."""

    interrupts: float
    busy: float


class Meter:
    """Counts the time of the CPUs given during one run, or of all CPUs if none is."""

    def __init__(
        self,
        workload: Workload,
        cpus: tuple[int, ...] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        start = min(START, workload.runtime / 4)
        self._pauses = (workload.ramp + start, workload.runtime - start)
        self._cpus = cpus
        self._clock = clock
        self._marks: list[tuple[float, CpuTime]] = []

    def during(self, wait: Wait, seconds: float) -> int | None:
        """Wait as ``wait`` does, and count CPU time meanwhile."""
        for pause in self._pauses:
            status = wait(pause)
            if status is not None:
                return status
            spent = cpu_time(self._cpus)
            self._marks += [(self._clock(), spent)] if spent else []
        return wait(seconds - sum(self._pauses))

    @property
    def cost(self) -> Cost | None:
        """The CPU time spent; None where the run ended too early, or /proc could not be read."""
        if len(self._marks) < 2:
            return None
        (began, first), (ended, last) = self._marks
        spent = last.since(first)
        if spent.total <= 0 or ended <= began:
            return None
        return Cost(spent.interrupts / (ended - began), 1 - spent.idle / spent.total)


def find() -> Fio | UnusableOutput:
    """Look for fio on PATH and ask its version."""
    path = shutil.which("fio")
    if path is None:
        return UnusableOutput(Skip.NO_FIO)
    # One that does not answer may still write its files while the folder is removed.
    import tempfile  # not for a daemon that starts, whose memory counts

    with tempfile.TemporaryDirectory(prefix="hbatune-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        try:
            ended = _run([path, "--version"], directory, MARGIN)
        except OSError as error:
            return UnusableOutput(Skip.BROKEN_FIO, os.strerror(error.errno or 0))
        said, complained = (_text(directory / each).strip() for each in ("stdout", "stderr"))
    found = re.match(r"fio-(\d+)\.(\d+)", said)
    if found is None:
        return UnusableOutput(Skip.BROKEN_FIO, _why_broken(ended, complained or said))
    if (int(found[1]), int(found[2])) < OLDEST:
        return UnusableOutput(Skip.OLD_FIO, said[:QUOTED])
    return Fio(path, said.removeprefix("fio-")[:QUOTED])


def measure(
    fio: Fio,
    target: str,
    node: str,
    size: int,
    workload: Workload,
    *,
    margin: float = MARGIN,
    write: bool = False,
    cpus: str | None = None,
    involved: tuple[int, ...] = (),
    others: tuple[str, ...] = (),
) -> Figures | Failed:
    """Run the workload on ``node`` and return its figures.

    On each of the ``others`` it runs at the same time, and the figures are those of all nodes.
    ``size`` is the node's in bytes. fio runs on ``cpus`` only, if they are given. The time of
    interrupts is counted on the CPUs ``involved``, or on all CPUs if that is empty. Without
    ``write``, fio itself refuses a workload that writes; a caller that allows it must have checked
    that the device is empty (``guard``).

    Returns within the workload's seconds plus ``margin`` and ``GRACE``, even if the device hangs.
    Raises ``UnsafeNameError`` for a node that a job file cannot name.
    """
    values = {"workload": workload, "node": node, "size": size, "cpus": cpus, "others": others}
    job = render("templates", "probe.fio.j2", **values)
    try:
        for each in (node, *others):
            os.stat(each)  # fio calls a missing file EINVAL
        # A fio that could not be killed may still write its files while the folder is removed.
        import tempfile  # not for a daemon that starts, whose memory counts

        with tempfile.TemporaryDirectory(prefix="hbatune-", ignore_cleanup_errors=True) as name:
            directory = Path(name)  # mode 0700: no other user can write the job or read the result
            (directory / "probe.fio").write_text(job, encoding="utf-8")
            command = [
                fio.path,
                # A second lock beside the guard: with it fio refuses any job that writes.
                *(() if write else ("--readonly",)),
                "--output-format=json+",
                f"--status-interval={workload.window_ms}ms",
                "--output=out",
                "probe.fio",
            ]
            meter = Meter(workload, involved)
            ended = _run(command, directory, workload.seconds + margin, meter)
            return _outcome(target, ended, directory, meter, workload.runtime)
    except OSError as error:
        return Failed(target, Failure.LAUNCH, errno=error.errno)


class _Ended(Struct, frozen=True):
    status: int


class _Overdue(Struct, frozen=True):
    left: Process | None  # still waiting in the kernel


def _why_broken(ended: _Ended | _Overdue, said: str) -> str:
    """Return the reason why fio told no version: in its own words, where it has some."""
    if isinstance(ended, _Overdue):
        return f"no answer within {MARGIN:g} s"
    return said[:QUOTED] or f"it says nothing, with exit status {ended.status}"


def _outcome(
    target: str, ended: _Ended | _Overdue, directory: Path, meter: Meter, asked: float
) -> Figures | Failed:
    if isinstance(ended, _Overdue):
        reason = Failure.STUCK if ended.left else Failure.TIMEOUT
        return Failed(target, reason, process=ended.left)
    found = parse_figures(target, _text(directory / "out"), asked)
    told_why = isinstance(found, Failed) and found.reason is Failure.IO
    # An I/O error that fio has reported with its errno says more than the exit status it causes.
    if ended.status and not told_why:
        words = _text(directory / "stderr").strip() or _text(directory / "out").strip()
        return Failed(target, Failure.EXIT, status=ended.status, text=words[-QUOTED:] or None)
    return found if isinstance(found, Failed) else _with_cost(found, meter.cost)


def _with_cost(figures: Figures, cost: Cost | None) -> Figures:
    """Return the figures with the CPU cost of interrupts, where that was counted."""
    if cost is None or figures.iops <= 0:
        return figures
    per_io = cost.interrupts * 1_000_000 / figures.iops
    return replace(figures, interrupt_us_per_io=per_io, busy=cost.busy)


def _run(
    command: list[str], directory: Path, seconds: float, meter: Meter | None = None
) -> _Ended | _Overdue:
    """Run in ``directory``, which gets ``stdout`` and ``stderr``; the ``meter`` counts meanwhile.

    The whole session is killed after ``seconds``.
    """
    running: subprocess.Popen[bytes] | None = None
    try:
        with _interrupts_later():
            running = _start(command, directory)
        wait = partial(children.wait, running)
        status = meter.during(wait, seconds) if meter else wait(seconds)
    except BaseException:
        # Not even an interrupt may leave fio behind: it would go on loading the disk.
        if running is not None:
            children.stop(running, GRACE)
        raise
    if status is not None:
        return _Ended(status)
    return _Overdue(process(running.pid) if children.stop(running, GRACE) is None else None)


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the body ends: before that there is no process to kill.

    A signal mask would not do: it belongs to one thread, and a signal that another thread takes
    still interrupts this one.
    """
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in came:
            signal.raise_signal(caught)


def _start(command: list[str], directory: Path) -> "subprocess.Popen[bytes]":
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        return subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            # A fixed locale, since output and messages are parsed.
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            # Ctrl-C then reaches hbatune alone, and one kill ends all that fio has started.
            start_new_session=True,
            preexec_fn=_prepare(os.getpid()),
        )


def _prepare(parent: int) -> Callable[[], None]:
    """Return a function for the child: with it the child dies when ``parent`` does (prctl(2))."""
    # Loaded before the fork: the child must not allocate or take the loader's lock.
    prctl = ctypes.CDLL(None).prctl

    def child() -> None:  # pragma: no cover  (runs between fork and exec)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # The parent may have died before prctl took effect; then no signal will ever come.
        if os.getppid() != parent:
            os._exit(1)

    return child


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
