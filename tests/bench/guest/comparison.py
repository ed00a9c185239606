"""Two ways to do one thing, timed in turns: the samples and what they come to.

Used on the host and in the guest, so it stands in the folder that both have.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """A median and the quartiles that the middle half of the samples lies between."""

    median: float
    low: float
    high: float


class Timing(msgspec.Struct, frozen=True):
    """One of the two: what was run, and how long it took each time, in seconds."""

    what: str
    seconds: Figure
    samples: tuple[float, ...]


class Comparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """A benchmark: ``ratio`` is of the subject's time to the reference's, pair by pair.

    ``bound`` is what the ratio's median may be at most; ``notes`` say what the figures hang on.
    ``split`` are the subject's seconds by phase, from runs of their own.
    """

    name: str
    title: str
    bound: float
    ratio: Figure
    subject: Timing
    reference: Timing
    date: str
    kernel: str
    cpus: int
    python: str
    notes: dict[str, object]
    split: dict[str, float] = {}

    @property
    def met(self) -> bool:
        """Whether the bound holds."""
        return self.ratio.median <= self.bound

    def __str__(self) -> str:
        """Say what a failed assertion shows."""
        return (
            f"{self.title}: {self.ratio.median:.2f} (middle half {self.ratio.low:.2f} to "
            f"{self.ratio.high:.2f}), at most {self.bound}; {self.subject.what} "
            f"{self.subject.seconds.median:.3f} s, {self.reference.what} "
            f"{self.reference.seconds.median:.3f} s"
        )


def figure(samples: Sequence[float]) -> Figure:
    """Return the median and the quartiles of at least two samples."""
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Figure(round(median, 6), round(low, 6), round(high, 6))


def ratio(subject: Sequence[float], reference: Sequence[float]) -> Figure:
    """Return the figure of the ratios of the pairs."""
    return figure([mine / theirs for mine, theirs in zip(subject, reference, strict=True)])


def compared(
    name: str,
    title: str,
    bound: float,
    subject: tuple[str, Sequence[float]],
    reference: tuple[str, Sequence[float]],
    notes: Mapping[str, object],
    split: Mapping[str, float] | None = None,
) -> Comparison:
    """Return the comparison of the two, each with its samples, as measured here and now."""
    mine, theirs = _timing(*subject), _timing(*reference)
    return Comparison(
        name=name,
        title=title,
        bound=bound,
        ratio=ratio(mine.samples, theirs.samples),
        subject=mine,
        reference=theirs,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        kernel=platform.release(),
        cpus=os.cpu_count() or 1,
        python=platform.python_version(),
        notes=dict(notes),
        split=dict(split or {}),
    )


def _timing(command: str, samples: Sequence[float]) -> Timing:
    rounded = tuple(round(sample, 6) for sample in samples)
    return Timing(command, figure(rounded), rounded)


def in_turns(
    rounds: int, subject: Callable[[], float], reference: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Time the two in turns, so that whatever else the machine does falls on both."""
    pairs = [(subject(), reference()) for _ in range(rounds)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def seconds(command: Sequence[str], *, expected: int = 0) -> float:
    """Return the wall time of a whole process; RuntimeError where it exits otherwise."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    started = time.perf_counter()
    pid = os.posix_spawnp(command[0], list(command), dict(os.environ), file_actions=quiet)
    status = os.waitpid(pid, 0)[1]
    took = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status) != expected:
        raise RuntimeError(f"{command} ended with status {status}")
    return took


def cpu_seconds(command: Sequence[str], *, expected: int = 0) -> float:
    """Return the CPU time of a whole process and of those that it has waited for, in seconds."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawnp(command[0], list(command), dict(os.environ), file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status) != expected:
        raise RuntimeError(f"{command} ended with status {status}")
    return used.ru_utime + used.ru_stime


def save(comparison: Comparison, folder: Path) -> None:
    """Write the results file of a comparison."""
    folder.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(comparison), indent=1) + b"\n"
    (folder / f"{comparison.name}.json").write_bytes(text)


def load(path: Path) -> Comparison:
    """Read a results file."""
    return msgspec.json.decode(path.read_bytes(), type=Comparison)
