"""Runs fio with a deadline, so that no device can hold hbatune up, and leaves nothing behind.

A read from a hung disk waits in the kernel, where SIGKILL does not reach it: fio gets its own
session, files instead of pipes, a deadline, and is walked away from if it does not die.

fio counts the CPU time of its own threads; that of interrupts, the larger part of it on a fast
drive, is counted here (``Meter``), over a stretch in which I/O is in flight for certain: from a
moment after the warm-up to the end of the runtime, as fio itself takes a while to start.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from hbatune import children
from hbatune.facts.sampler import CpuTime, cpu_time
from hbatune.probe.fio_output import QUOTED, parse_figures
from hbatune.probe.model import Failed, Failure, Figures, Skip, Workload
from hbatune.render import render
from hbatune.workers import Process, process

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


class Unusable(Struct, frozen=True):
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


def find() -> Fio | Unusable:
    """Look for fio on PATH and ask its version."""
    path = shutil.which("fio")
    if path is None:
        return Unusable(Skip.NO_FIO)
    # One that does not answer may still write its files while the folder is removed.
    import tempfile  # not for a daemon that starts, whose memory counts

    with tempfile.TemporaryDirectory(prefix="hbatune-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        try:
            ended = _run([path, "--version"], directory, MARGIN)
        except OSError as error:
            return Unusable(Skip.BROKEN_FIO, os.strerror(error.errno or 0))
        said, complained = (_text(directory / each).strip() for each in ("stdout", "stderr"))
    found = re.match(r"fio-(\d+)\.(\d+)", said)
    if found is None:
        return Unusable(Skip.BROKEN_FIO, _why_broken(ended, complained or said))
    if (int(found[1]), int(found[2])) < OLDEST:
        return Unusable(Skip.OLD_FIO, said[:QUOTED])
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
