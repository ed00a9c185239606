"""A folder as a disk: without a loop device, so that it works in a container too."""

import subprocess
from pathlib import Path

from tests.lab.problem import LabError


def pack(tree: Path, disk: Path, size: int) -> None:
    """Make ``disk`` a sparse file of ``size`` bytes with an ext4 filesystem that holds ``tree``.

    It has no journal: nobody keeps what the guest writes there. Raises LabError.
    """
    with disk.open("wb") as file:
        file.truncate(size)
    done = subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(tree), str(disk)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"mke2fs could not make {disk}:\n{done.stdout}")
