"""One run of the lab at a time in one folder: two would overwrite each other's disks."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.problem import LabError


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Have the folder, which is made where it is not there; LabError while another run has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"another run of the lab is at work in {folder}: wait for it, or use another clone"
            ) from None
        yield
