"""A captured load, replayed on another disk."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.lab.guest.traced_loads import (
    LOADS,
    capture_load,
    hash_disk,
    make_twins,
    replay_trace,
)

KERNELS = ("newest",)


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
