"""The directory of a block device in sysfs, as plain files."""

import os
from pathlib import Path


def make_disk(directory: Path, state: str = "running") -> Path:
    """Make a disk with a scheduler that has two tunables; return its directory."""
    (directory / "queue" / "iosched").mkdir(parents=True)
    (directory / "device").mkdir()
    (directory / "mq" / "0").mkdir(parents=True)
    (directory / "device" / "state").write_text(f"{state}\n")
    (directory / "queue" / "nr_requests").write_text("256\n")
    (directory / "queue" / "iosched" / "fifo_batch").write_text("16\n")
    (directory / "queue" / "iosched" / "read_expire").write_text("500\n")
    return directory


def hang_queue(directory: Path) -> None:
    """Make the queue's nr_requests a file that never finishes opening."""
    (directory / "queue" / "nr_requests").unlink()
    os.mkfifo(directory / "queue" / "nr_requests")
