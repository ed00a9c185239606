"""What can keep the lab from working, found before it starts."""

import os
import shutil
from pathlib import Path

# program -> the Debian package that has it
NEEDED = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "setpriv": "util-linux",
    "xz": "xz-utils",
}


class LabError(Exception):
    """The lab cannot do what was asked, and why."""


def require_lab() -> None:
    """Raise LabError where this machine cannot run the lab, naming everything that is missing."""
    problems = []
    if os.geteuid() != 0:
        problems.append("it needs root (mmdebstrap makes the guest's root filesystem)")
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if missing:
        problems.append(f"missing: apt-get install --no-install-recommends {' '.join(missing)}")
    if problems:
        raise LabError("the lab cannot run here: " + "; ".join(problems))


def require_room(folder: Path, wanted: int, purpose: str) -> None:
    """Raise LabError where the file system of ``folder`` has less than ``wanted`` bytes free."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    free = shutil.disk_usage(existing).free
    if free < wanted:
        raise LabError(
            f"{purpose} needs {gigabytes(wanted)} in {folder}, and {gigabytes(free)} are free "
            "there: make room, or name another folder in HBATUNE_LAB_CACHE"
        )


def gigabytes(count: int) -> str:
    """Return a number of bytes as a person reads it."""
    return f"{count / 1e9:.1f} GB"
