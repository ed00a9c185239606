"""Tests of hbatune/act/chain.py."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from hbatune.act.chain import (
    LOCKING_LUNS,
    Chain,
    ChainWriter,
    Step,
    WriteResult,
    add_jitter,
    decode_reply,
)
from hbatune.act.rollback_record import UNGUARDED, RollbackGuard
from hbatune.facts.attributes import reread_attribute
from hbatune.facts.model import Missing
from hbatune.plan.rows import Outcome
from hbatune.workers import Finished, Pool, Replied, WorkerPool
from tests.kernel.chains import write_chain
from tests.unit.disk_files import SDA, Disk


def test_ineffective_write_is_ignored(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk()
    monkeypatch.setattr("hbatune.act.chain._store", lambda path, text: None)
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("rq_affinity", 2, 1),))
    [result] = write_chain(chain)
    assert (result.outcome, result.found) == (Outcome.IGNORED, 1)


def test_refusal_carries_errno(disk: Callable[..., Disk]) -> None:
    sda = disk()
    path = sda.path / "queue/nomerges"
    path.unlink()
    path.mkdir()  # opening it for writing is EISDIR, reading it as well
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("nomerges", 1, 0),))
    [result] = write_chain(chain)
    assert result.outcome is Outcome.REFUSED
    assert result.errno


def busy(monkeypatch: pytest.MonkeyPatch, times: int) -> list[float]:
    """Make the kernel answer a write with EBUSY ``times`` times; return the pauses."""
    pauses: list[float] = []
    remaining = iter(range(times))
    real = os.write

    def write(descriptor: int, data: bytes) -> int:
        if next(remaining, None) is not None:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return real(descriptor, data)

    monkeypatch.setattr("hbatune.act.chain.os.write", write)
    monkeypatch.setattr("hbatune.act.chain.time.sleep", pauses.append)
    return pauses


def test_busy_queue_gets_retries(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk()
    pauses = busy(monkeypatch, times=2)
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("rq_affinity", 2, 1),))
    [result] = write_chain(chain)
    assert (result.outcome, sda.value("queue/rq_affinity")) == (Outcome.WRITTEN, "2")
    assert len(pauses) == 2
    assert 0 < pauses[0] < pauses[1] * 3, "longer each time, on average"


def test_worker_has_turn_during_write(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk(queue__nr_requests="64")

    def write(path: str, text: str) -> None:
        with pytest.raises(BlockingIOError):
            take_lock(sda.path)
        Path(path).write_text(text)

    monkeypatch.setattr("hbatune.act.chain._store", write)
    step = Step("nr_requests", 128, 64)
    [result] = write_chain(
        Chain("sda", "id", None, None, str(sda.path), (step,), turn=str(sda.path))
    )
    assert result.outcome is Outcome.WRITTEN
    os.close(take_lock(sda.path))


def test_rollback_during_wait_cancels_write(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sda, records = disk(queue__nr_requests="64"), tmp_path / "records"
    records.mkdir()
    monkeypatch.setattr(
        "hbatune.act.chain.fcntl.flock", lambda *_: (records / "everything").touch()
    )
    step = Step("nr_requests", 128, 64)
    chain = Chain("sda", "id", None, None, str(sda.path), (step,), turn=str(sda.path))
    [result] = read_results(ChainWriter(5.0, RollbackGuard((records,)))(chain))
    assert result is not None, "the wait was too short for a message"
    assert result.outcome is Outcome.CANCELLED
    assert sda.value("queue/nr_requests") == "64"


def take_lock(directory: Path) -> int:
    """Take the turn, as another worker does, or fail; return the descriptor that has it."""
    descriptor = os.open(directory, os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def test_late_turn_loses_no_write(disk: Callable[..., Disk]) -> None:
    sda = disk(queue__nr_requests="64")
    other = take_lock(sda.path)
    step = Step("nr_requests", 128, 64)
    chain = Chain("sda", "id", None, None, str(sda.path), (step,), turn=str(sda.path))
    *waits, result = read_results(ChainWriter(0.1, UNGUARDED)(chain))
    assert waits == [None] * (LOCKING_LUNS - 1), "one for each LUN that may be before it"
    assert result is not None
    assert result.outcome is Outcome.WRITTEN
    os.close(other)


def test_deadline_begins_with_turn(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait has used up the time for retries, and the kernel still answers EBUSY once."""
    sda = disk(queue__nr_requests="64")
    other = take_lock(sda.path)
    step = Step("nr_requests", 128, 64)
    chain = Chain("sda", "id", None, None, str(sda.path), (step,), turn=str(sda.path))
    results = read_results(ChainWriter(0.1, UNGUARDED)(chain))
    assert next(results) is None, "it still waits"
    os.close(other)
    assert next(results) is None, "it has the turn"
    pauses = busy(monkeypatch, times=1)
    result = next(results)
    assert result is not None
    assert (result.outcome, len(pauses)) == (Outcome.WRITTEN, 1)


def read_results(replies: Iterable[bytes]) -> Iterator[WriteResult | None]:
    """Yield the results, or None if a worker only reports that it waits or has its turn."""
    return (decode_reply(reply)[0] for reply in replies)


def test_retry_pauses_are_jittered() -> None:
    pauses = [add_jitter(0.1) for _ in range(200)]
    assert 0.05 <= min(pauses) < 0.07
    assert 0.13 < max(pauses) < 0.151


def test_busy_queue_finally_refuses(
    disk: Callable[..., Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    sda = disk()
    pauses = busy(monkeypatch, times=1000)
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("rq_affinity", 2, 1),))
    [result] = write_chain(chain)
    assert (result.outcome, result.errno) == (Outcome.REFUSED, errno.EBUSY)
    assert sda.value("queue/rq_affinity") == "1"
    assert 0 < sum(pauses) < 5


@pytest.mark.parametrize(
    ("raised", "outcome", "writes"),
    [
        ([0], Outcome.WRITTEN, 1),
        ([1], Outcome.WRITTEN, 2),
        ([2, 1, 1], Outcome.WRITTEN, 4),
        ([131], Outcome.WRITTEN, 2),  # a raise that began before it was lowered
        ([1] * 100, Outcome.IGNORED, 12),
        ([-4], Outcome.IGNORED, 1),  # a driver's clamp, which stays the same however often
    ],
)
def test_depth_bounce_repeats_lowering(
    disk: Callable[..., Disk],
    monkeypatch: pytest.MonkeyPatch,
    raised: list[int],
    outcome: Outcome,
    writes: int,
) -> None:
    sda = disk(device__queue_depth="150")
    written: list[str] = []

    def store(path: str, text: str) -> int | None:
        by = raised[len(written)] if len(written) < len(raised) else 0
        written.append(text)
        Path(path).write_text(str(int(text) + by))
        return None

    monkeypatch.setattr("hbatune.act.chain._store", store)
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("queue_depth", 20, 150),))
    [result] = write_chain(chain)
    assert (result.outcome, written) == (outcome, ["20"] * writes)
    assert result.found == int(sda.value("device/queue_depth"))


@pytest.mark.parametrize(
    ("current", "outcome"),
    [
        (151, Outcome.WRITTEN),
        (148, Outcome.WRITTEN),
        (139, Outcome.CONFLICT),
        (161, Outcome.CONFLICT),
    ],
)
def test_ramp_step_is_no_conflict(
    disk: Callable[..., Disk], current: int, outcome: Outcome
) -> None:
    sda = disk(device__queue_depth=str(current))
    chain = Chain("sda", "id", None, None, str(sda.path), (Step("queue_depth", 200, 150),))
    [result] = write_chain(chain)
    assert result.outcome is outcome


def test_latency_tolerance_accepts_any(
    tmp_path: Path,
) -> None:
    file = tmp_path / "power/pm_qos_latency_tolerance_us"
    file.parent.mkdir()
    file.write_text("any")
    # Of one length: a file of sysfs is written anew as a whole, a plain one is not.
    for value, before, text in ((100, "any", "100"), ("any", 100, "any")):
        step = Step("pm_qos_latency_tolerance_us", value, before)
        [result] = write_chain(Chain("nvme0", "id-nvme0", None, None, str(tmp_path), (step,)))
        assert (result.outcome, result.found) == (Outcome.WRITTEN, value)
        assert file.read_text() == text


def test_pool_switches_leak_no_descriptors(disk: Callable[..., Disk], tmp_path: Path) -> None:
    sda = disk()
    chain = Chain("sda", SDA, None, None, str(sda.path), (Step("nomerges", 0, 0),))

    def opened(worker_pool: WorkerPool) -> set[int]:
        with Pool(_count_descriptors, size=1, deadline=20, worker_pool=worker_pool) as pool:
            return {event.reply for event in pool.run([0]) if isinstance(event, Replied)}

    writer = ChainWriter(5.0, UNGUARDED)
    with WorkerPool() as worker_pool:
        before = opened(worker_pool)
        for _ in range(2000):
            with Pool(writer, size=1, deadline=20, worker_pool=worker_pool) as pool:
                events = list(pool.run([chain]))
            assert [type(event) for event in events] == [Replied, Finished]
        assert opened(worker_pool) == before


def _count_descriptors(task: int) -> Iterator[int]:
    yield len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("before", ["7", "3", ""])
@pytest.mark.parametrize("after", [["7"], [""], ["7", "", "7"]])
def test_transient_affinity_is_reread(
    before: str, after: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPUs that it had before, or none at all."""
    file = tmp_path / "smp_affinity_list"
    file.write_text(before)
    readings = [] if before == "7" else [before, "", "7"]
    readings += after

    def look(*where: str) -> str | Missing:
        return readings.pop(0) if readings else reread_attribute(*where)

    monkeypatch.setattr("hbatune.act.chain.reread_attribute", look)
    step = Step("irq_affinity", "3", "7")
    [result] = write_chain(
        Chain("irq30", "msix-0@0000:01:00.0", None, None, str(tmp_path), (step,))
    )
    assert (result.outcome, result.found, readings) == (Outcome.WRITTEN, "3", [])
    assert file.read_text() == "3"


def test_unmoved_vector_reports_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smp_affinity_list").write_text("7")
    monkeypatch.setattr("hbatune.act.chain.reread_attribute", lambda *where: "7")
    step = Step("irq_affinity", "3", "7")
    [result] = write_chain(
        Chain("irq30", "msix-0@0000:01:00.0", None, None, str(tmp_path), (step,))
    )
    assert (result.outcome, result.found) == (Outcome.IGNORED, "7")
