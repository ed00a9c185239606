"""A captured load, replayed on another disk."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.lab.guest.command import configure, hbatune, list_calls
from tests.lab.guest.known import forget, profile
from tests.lab.guest.traced_loads import (
    LOADS,
    capture_load,
    hash_disk,
    make_twins,
    measure_trace,
    replay_trace,
    select_replay,
)
from tests.lab.guest.values import put

KERNELS = ("newest",)
WRITE_CALLS = "write,writev,pwrite64,pwritev,pwritev2,io_submit,io_uring_setup"


def test_replay_reads_what_was_read(scsi_debug: Callable[..., list[str]], tmp_path: Path) -> None:
    """The writes of the load are left out, unless they are permitted."""
    first, second = make_twins(scsi_debug)
    file, copy = tmp_path / "db.trace", tmp_path / "replayed.trace"
    captured = capture_load(first, LOADS["mixed"], file, 3)
    before = hash_disk(second)
    done, replayed = replay_trace(file, second, copy)
    assert "were not replayed" in done.err
    assert hash_disk(second) == before
    assert sum(replayed.writes) == 0
    reads = Counter[int]()
    for sector, is_write in zip(captured.sectors, captured.writes, strict=True):
        reads[sector] += not is_write
    # hbatune and udev read the beginning of the disk, too.
    assert reads <= Counter(replayed.sectors)
    _, replayed = replay_trace(file, second, copy, "--destructive")
    assert sum(replayed.writes) == sum(captured.writes) > 0
    assert Counter(captured.sectors) <= Counter(replayed.sectors)


def test_replay_opens_disk_read_only(scsi_debug: Callable[..., list[str]], tmp_path: Path) -> None:
    """No process of a replay can write to the disk, whatever its load wrote."""
    first, second = make_twins(scsi_debug)
    file = tmp_path / "db.trace"
    capture_load(first, LOADS["mixed"], file, 2)
    words = ("probe", "--trace", str(file), second)
    calls = list_calls(*words, calls=f"open,openat,openat2,{WRITE_CALLS}", log=tmp_path / "calls")
    # A line of another thread may be between an open and its result.
    opened = [line for line in calls if "open" in line and f"/dev/{second}" in line]
    assert len(opened) > 8, "fio opens the disk once per job"
    assert [line for line in opened if re.search(r"O_WRONLY|O_RDWR", line)] == []
    assert [line for line in calls if re.search(rf"write\w*\(\d+</dev/{second}>", line)] == []
    submitted = [line for line in calls if "io_submit(" in line]
    assert [line for line in submitted if "IOCB_CMD_PREAD" not in line and " = " in line] == []
    assert [line for line in calls if "PWRITE" in line or "io_uring_setup(" in line] == []


def test_latencies_exclude_waits(scsi_debug: Callable[..., list[str]], tmp_path: Path) -> None:
    """I/Os that start together are completed before fio waits for the next burst, 100 ms later."""
    first, second = make_twins(scsi_debug)
    file = tmp_path / "db.trace"
    captured = capture_load(first, LOADS["bursts"], file, 3)
    done, replayed = replay_trace(file, second, tmp_path / "replayed.trace")
    [run] = done.json["runs"]
    traced = measure_trace(select_replay(replayed, len(captured.arrivals_us)))
    assert run["outcome"]["figures"]["p99_us"] < 1000 * traced.p99_ms + 20_000


def test_change_is_compared_at_trace(
    scsi_debug: Callable[..., list[str]], tmp_path: Path, rolled_back: None
) -> None:
    """One command at a time is too few for the recorded load."""
    first, second = make_twins(scsi_debug)
    file = tmp_path / "db.trace"
    capture_load(first, LOADS["steady"], file, 3)
    put(second, "device/queue_depth", "1")
    words = profile("deep", "queue_depth", 32)
    configure("[probe]\nverify_pairs = 8\nverify_seconds = 0.5\n")
    done = hbatune("apply", *words, "--verify", "--trace", str(file), "--json", second)
    forget("deep")
    assert done.code == 0, done.out + done.err
    [proof] = done.json["verdicts"]
    assert proof["last"]["workload"]["trace"]["path"] == str(file)
    assert proof["verdict"]["word"] == "improved"
