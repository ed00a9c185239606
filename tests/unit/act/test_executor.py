"""How many chains run at once, on a clock of the test's own and a kernel that is a function."""

import errno
import heapq
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hbatune.act import chain as chain_module
from hbatune.act.chain import (
    LOCKING_LUNS,
    Chain,
    ChainWriter,
    Step,
    WriteResult,
    encode_reply,
)
from hbatune.act.executor import (
    IDLE_WINDOW_S,
    INITIAL_WORKERS,
    MAX_WORKERS,
    Executor,
    IdleCpus,
    Report,
    compute_max_workers,
)
from hbatune.act.rollback_record import UNGUARDED
from hbatune.facts.sampler import CpuTime
from hbatune.plan.rows import Outcome
from hbatune.workers import Finished, Pool, Process, Replied, Stuck
from tests.unit.disk_files import Disk, chains

STEPS = (Step("scheduler", "mq-deadline", "none"), Step("nr_requests", 2048, 256))


@dataclass(frozen=True)
class Written:
    """What the kernel made of a write: how long it took, and how it was met."""

    seconds: float
    busy: bool = False
    errno: int | None = None


class Kernel:
    """A pool of which every write takes as long as ``write`` says; it notes who ran at once."""

    DEADLINE = 10.0

    def __init__(
        self,
        write: Callable[["Kernel", Chain, int], Written],
        size: int = MAX_WORKERS,
        steps: tuple[Step, ...] = STEPS,
    ) -> None:
        self.size = size
        self.steps = steps
        self.behind: list[str | None] = []
        self.now = 0.0
        self.running = 0
        self.at_once: list[tuple[float, int]] = []
        self.writing: Counter[tuple[str | None, str]] = Counter()  # by adapter and setting
        self.beside: dict[str | None, list[int]] = defaultdict(list)  # at each start, by adapter
        self.prepared: list[tuple[float, int]] = []  # when, and how many were to be idle
        self._write = write
        self._events: list[tuple[float, int, Any]] = []
        self._count = 0

    @property
    def free(self) -> int:
        return self.size - self.running

    @property
    def most(self) -> int:
        return max(number for _, number in self.at_once)

    def prepare(self, tasks: int) -> None:
        assert tasks <= INITIAL_WORKERS
        self.prepared.append((self.now, tasks))

    def start(self, chain: Chain) -> None:
        assert self.free
        self.running += 1
        self.behind.append(chain.behind)
        self.at_once.append((self.now, self.running))
        counts = (n for (adapter, _), n in self.writing.items() if adapter == chain.adapter)
        self.beside[chain.adapter].append(sum(counts))
        self._step(chain, 0)

    def wait(self) -> list[Any]:
        self.now, _, (kind, chain, at, met) = heapq.heappop(self._events)
        if kind == "stuck":
            self.running -= 1
            return [Stuck(chain, Process(1, 1))]
        name = self.steps[at].setting
        self.writing[chain.adapter, name] -= 1
        result = WriteResult(name, Outcome.REFUSED if met.errno else Outcome.WRITTEN, met.errno)
        events: list[Any] = [Replied(chain, encode_reply((result, met.busy)))]
        if at + 1 < len(self.steps):
            self._step(chain, at + 1)
        else:
            self.running -= 1
            events.append(Finished(chain))
        return events

    def _step(self, chain: Chain, at: int) -> None:
        met = self._write(self, chain, at)
        self.writing[chain.adapter, self.steps[at].setting] += 1
        stuck = met.seconds > self.DEADLINE
        due = self.now + (self.DEADLINE if stuck else met.seconds)
        self._count += 1
        event = ("stuck" if stuck else "replied", chain, at, met)
        heapq.heappush(self._events, (due, self._count, event))


def run(
    kernel: Kernel,
    luns: int,
    *,
    workers: int = INITIAL_WORKERS,
    adapters: int = 1,
    idle: bool = True,
    steps: tuple[Step, ...] = STEPS,
    sysfs: str = "/sys/{n}",
) -> Report:
    disk_chains = [
        Chain(f"sd{n}", f"sd{n}", f"adapter{n % adapters}", None, sysfs.format(n=n), steps)
        for n in range(luns)
    ]
    pool: Any = kernel
    return Executor(pool, workers=workers, clock=lambda: kernel.now, has_idle_cpu=lambda: idle).run(
        disk_chains
    )


def steady(seconds: float) -> Callable[[Kernel, Chain, int], Written]:
    return lambda kernel, chain, at: Written(seconds)


def test_fast_writes_grow_crew() -> None:
    kernel = Kernel(steady(0.02))
    report = run(kernel, 512)
    assert {result.outcome for result in report.results.values()} == {Outcome.WRITTEN}
    assert kernel.most == MAX_WORKERS
    first = [number for when, number in kernel.at_once if when <= 0.041]
    assert max(first) == INITIAL_WORKERS + 1, "the usual number, and one for the first LUN"
    after = [number for when, number in kernel.at_once if when <= 0.061]
    assert max(after) == 2 * max(first), "twice as many once each has returned from one write"


def test_forks_match_needed_workers() -> None:
    kernel = Kernel(steady(0.02))
    run(kernel, 2 * INITIAL_WORKERS)
    assert kernel.prepared[0] == (0.0, INITIAL_WORKERS - 1), "beside the first LUN"
    assert (0.04, INITIAL_WORKERS - 2) in kernel.prepared, "for those that are left, and no others"
    slow = Kernel(steady(1.5))
    run(slow, 512)
    assert {idle for when, idle in slow.prepared if when > 3.0} == {0}, "it does not grow"


@pytest.mark.parametrize(("seconds", "idle"), [(1.5, True), (0.02, False)])
def test_load_prevents_crew_growth(seconds: float, idle: bool) -> None:
    kernel = Kernel(steady(seconds))
    run(kernel, 200, idle=idle)
    assert kernel.most == INITIAL_WORKERS


def test_idle_time_since_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, used = 0.0, CpuTime(total=60.0, idle=50.0, interrupts=0.0)
    monkeypatch.setattr("hbatune.act.executor.read_cpu_time", lambda: used)
    monkeypatch.setattr("hbatune.act.executor.time", SimpleNamespace(monotonic=lambda: clock))
    idle_cpus = IdleCpus()
    assert not idle_cpus.found(), "nothing is known yet"
    clock += IDLE_WINDOW_S
    used = CpuTime(60.1, 50.1, 0.0)
    assert idle_cpus.found()
    used = CpuTime(70.1, 50.1, 0.0)
    assert idle_cpus.found(), "too soon for another answer"
    clock += IDLE_WINDOW_S
    assert not idle_cpus.found()


def test_missing_count_means_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((0.0, IDLE_WINDOW_S))
    monkeypatch.setattr("hbatune.act.executor.read_cpu_time", lambda: None)
    monkeypatch.setattr("hbatune.act.executor.time", SimpleNamespace(monotonic=times.__next__))
    idle_cpus = IdleCpus()
    assert not idle_cpus.found()
    assert not idle_cpus.found()


def test_site_limits_workers() -> None:
    assert compute_max_workers(4) == 4
    assert (compute_max_workers(INITIAL_WORKERS), compute_max_workers(64)) == (MAX_WORKERS, 64)
    kernel = Kernel(steady(0.02), size=compute_max_workers(4))
    run(kernel, 200, workers=4)
    assert kernel.most == 4


def test_single_slow_write_limits_crew() -> None:
    """A kernel that stops answering is noticed by its first write, before many wait in it."""

    def stops(kernel: Kernel, chain: Chain, at: int) -> Written:
        return Written(5.0 if chain.target == "sd150" else 0.1)

    kernel = Kernel(stops)
    run(kernel, 1000)
    [began] = [n for n, _ in enumerate(kernel.at_once) if n == 150]
    when = kernel.at_once[began][0]
    assert max(number for _, number in kernel.at_once[:began]) > INITIAL_WORKERS
    beside = [number for at, number in kernel.at_once if when + 1.1 < at < when + 4.9]
    assert beside
    assert max(beside) <= INITIAL_WORKERS


def test_stuck_disks_stay_three() -> None:
    def hangs(kernel: Kernel, chain: Chain, at: int) -> Written:
        return Written(100.0 if chain.target in ("sd0", "sd1", "sd2", "sd3") else 0.02)

    kernel = Kernel(hangs)
    report = run(kernel, 100)
    assert len(report.stuck) == 3
    outcomes = Counter(result.outcome for result in report.results.values())
    assert outcomes == {Outcome.STUCK: 3, Outcome.CANCELLED: 200 - 3}


def test_stuck_disk_stops_growth() -> None:
    def hangs(kernel: Kernel, chain: Chain, at: int) -> Written:
        return Written(100.0 if chain.target == "sd0" else 0.1)

    kernel = Kernel(hangs)
    report = run(kernel, 4000, adapters=8)
    assert len(report.stuck) == 1
    later = [number for when, number in kernel.at_once if when > Kernel.DEADLINE]
    assert later
    assert max(later) <= INITIAL_WORKERS


def locked(kernel: Kernel, chain: Chain, at: int) -> Written:
    """Answer as a kernel does that try-locks the tag set of adapter0 for nr_requests."""
    is_locked = chain.adapter == "adapter0" and kernel.writing[chain.adapter, "nr_requests"] > 0
    return Written(0.02, busy=at == 1 and is_locked)


def test_locking_adapter_gets_few_writes() -> None:
    kernel = Kernel(locked)
    report = run(kernel, 800, adapters=2)
    assert {result.outcome for result in report.results.values()} == {Outcome.WRITTEN}
    late = kernel.beside["adapter0"][MAX_WORKERS:]
    assert max(late) < LOCKING_LUNS
    assert max(kernel.beside["adapter1"]) > INITIAL_WORKERS


def test_locking_kernel_is_told_by_file(tmp_path: Path) -> None:
    """No write has to meet EBUSY first, and no fourth LUN starts."""
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue/async_depth").touch()
    kernel = Kernel(steady(0.02))
    run(kernel, 24, sysfs=str(tmp_path))
    assert kernel.most == LOCKING_LUNS


def test_other_settings_stay_parallel() -> None:
    """The first step of these chains locks the adapter for 20 ms, the second takes 10 s."""

    def write(kernel: Kernel, chain: Chain, at: int) -> Written:
        locks = kernel.writing[chain.adapter, "nr_requests"]
        return Written(9.0) if at else Written(0.02, busy=locks > 0)

    steps = (Step("nr_requests", 2048, 256), Step("nomerges", 1, 0))
    kernel = Kernel(write, steps=steps)
    run(kernel, INITIAL_WORKERS + 1, steps=steps)
    assert kernel.most == INITIAL_WORKERS
    assert kernel.now < 3 * 9.0, "the first LUN, and then all others"


def test_stuck_write_names_siblings_it_blocks() -> None:
    """A kernel that locks the adapter: sd0 hangs with the lock, and all siblings are refused."""

    def write(kernel: Kernel, chain: Chain, at: int) -> Written:
        if chain.target == "sd0":
            return Written(100.0 if at else 0.02)
        return Written(0.02, busy=True, errno=errno.EBUSY)

    kernel = Kernel(write)
    report = run(kernel, 4)
    said = {key: (result.outcome, result.said) for key, result in report.results.items()}
    waits = "the write has not returned; until it does, adding and removing disks of this adapter"
    blocked = (Outcome.BLOCKED, "a write to sd0 has not returned and locks the adapter")
    assert said.pop(("sd0", "scheduler")) == (Outcome.WRITTEN, None)
    assert said.pop(("sd0", "nr_requests")) == (Outcome.STUCK, f"{waits} waits")
    assert set(said.values()) == {blocked}
    assert kernel.behind == [None, "sd0", "sd0", "sd0"]


def _hang_on_fifo(chain: Chain) -> Iterator[bytes]:
    """Write as a worker does; a fifo without a reader stands for a queue that never drains."""
    for step in chain.steps:
        with open(f"{chain.sysfs}/gate", "w"):
            yield encode_reply((WriteResult(step.setting, Outcome.WRITTEN), False))


def test_three_stuck_disks_close_adapter(tmp_path: Path) -> None:
    disk_chains = chains(tmp_path, hung=3, fine=5)
    with Pool[Chain, bytes](_hang_on_fifo, size=4, deadline=2.0) as pool:
        report = Executor(pool).run(disk_chains)
    results = [report.results[chain.id, "nomerges"] for chain in disk_chains]
    assert [result.outcome for result in results[:3]] == [Outcome.STUCK] * 3
    assert {result.outcome for result in results[3:]} == {Outcome.CANCELLED}
    assert len(report.stuck) == 3


def test_stuck_disk_spares_siblings(tmp_path: Path) -> None:
    disk_chains = chains(tmp_path, hung=1, fine=6)
    with Pool[Chain, bytes](_hang_on_fifo, size=4, deadline=3.0) as pool:
        report = Executor(pool).run(disk_chains)
    outcomes = [report.results[chain.id, "nomerges"].outcome for chain in disk_chains]
    assert outcomes == [Outcome.STUCK] + [Outcome.WRITTEN] * 6


def test_deadline_of_lun_starts_with_its_turn(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write takes 0.6 of the deadline, so the third LUN ends at 1.8 of it."""
    deadline = 2.0

    def write(path: str, text: str) -> None:
        time.sleep(0.6 * deadline)  # the kernel waits for the commands in flight
        Path(path).write_text(text)

    monkeypatch.setattr(chain_module, "_store", write)
    step = Step("nr_requests", 128, 64)
    disk_chains = []
    for name in ("sda", "sdb", "sdc", "sdd"):
        files = {"queue__nr_requests": "64", "queue__async_depth": "64"}
        path = str(disk(name, **files).path)
        disk_chains.append(Chain(name, name, "adapter", None, path, (step,)))
    with Pool(ChainWriter(deadline, UNGUARDED), size=4, deadline=deadline) as pool:
        report = Executor(pool).run(disk_chains)
    results = [report.results[chain.id, "nr_requests"] for chain in disk_chains]
    assert [result.outcome for result in results] == [Outcome.WRITTEN] * 4


def test_stop_request_cancels_disks(tmp_path: Path) -> None:
    disk_chains = chains(tmp_path, hung=0, fine=4)
    with Pool[Chain, bytes](_hang_on_fifo, size=2, deadline=20) as pool:
        report = Executor(pool, stop=lambda: True).run(disk_chains)
    assert {result.outcome for result in report.results.values()} == {Outcome.CANCELLED}
    assert len(report.results) == 4


class _Watched(Pool[Chain, bytes]):
    """A pool that notes how many chains run at once."""

    def __init__(self, size: int) -> None:
        super().__init__(_hang_on_fifo, size=size, deadline=20)
        self.begun: list[tuple[str, int]] = []

    def start(self, task: Chain) -> object:  # type: ignore[override]
        self.begun.append((task.id, self.running))
        return super().start(task)


def test_first_disk_runs_alone(tmp_path: Path) -> None:
    disk_chains = chains(tmp_path, hung=0, fine=6)
    with _Watched(4) as pool:
        Executor(pool).run(disk_chains)
    alongside = dict(pool.begun)
    assert alongside["sd0"] == 0
    assert alongside["sd1"] == 0, "the second waits for the first"
    assert max(alongside.values()) == 3, "then they go in parallel"


def test_map_paths_run_sequentially(tmp_path: Path) -> None:
    disk_chains = chains(tmp_path, hung=0, fine=5, map="dm-0")
    with _Watched(4) as pool:
        Executor(pool).run(disk_chains)
    assert {alongside for _, alongside in pool.begun} == {0}


def test_dead_workers_spare_adapter(tmp_path: Path) -> None:
    disk_chains = chains(tmp_path, hung=0, fine=5)
    with Pool[Chain, bytes](_die_of_first_four, size=2, deadline=20) as pool:
        report = Executor(pool).run(disk_chains)
    results = [report.results[chain.id, "nomerges"] for chain in disk_chains]
    assert [result.errno for result in results] == [errno.ECHILD] * 4 + [None]
    assert not report.stuck


def _die_of_first_four(chain: Chain) -> Iterator[bytes]:
    if chain.target != "sd4":
        os._exit(9)
    yield encode_reply((WriteResult("nomerges", Outcome.WRITTEN), False))


def test_refused_fork_refuses_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    disk_chains = chains(tmp_path, hung=0, fine=3)
    monkeypatch.setattr(os, "fork", none)
    monkeypatch.setattr("hbatune.workers.pool.START_PATIENCE_S", 0.05)
    with Pool[Chain, bytes](_hang_on_fifo, size=2, deadline=20) as pool:
        report = Executor(pool).run(disk_chains)
    assert {(chain.id, "nomerges"): (Outcome.REFUSED, errno.EAGAIN) for chain in disk_chains} == {
        key: (result.outcome, result.errno) for key, result in report.results.items()
    }
