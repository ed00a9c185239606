"""What can keep the lab from working, found before it starts."""

import os
import shutil
import sys

# program -> the Debian package that has it
NEEDED = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "setpriv": "util-linux",
    "xz": "xz-utils",
}
GUEST_PYTHON = (3, 11)


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
    if sys.version_info[:2] != GUEST_PYTHON:
        problems.append(
            f"this is Python {sys.version_info[0]}.{sys.version_info[1]}, the guest (Debian 12) "
            "runs 3.11: use a virtual environment of Debian's /usr/bin/python3"
        )
    if problems:
        raise LabError("the lab cannot run here: " + "; ".join(problems))
