"""Which attribute files a command reads of each kind of device, as strace sees it."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.hosts.namespace import run

# strace -y: a file opened for reading, relative to the directory of a device.
_OPENED = re.compile(r'openat\(\d+<(/sys/devices/[^>]+)>, "([^"]+)", O_RDONLY\|O_CLOEXEC\)')


def files_read(root: Path, command: Sequence[str], log: Path) -> dict[str, list[str]]:
    """Return the attributes, by the subsystem of their device, that the command opens.

    Those that a device does not have are among them: they cost an open, too. ``command`` may
    exit 1, which is what drift is.
    """
    strace = ("strace", "-f", "-y", "-qq", "-e", "trace=openat", "-o", str(log), *command)
    run(root, ("sh", "-c", '"$@" >/dev/null || test $? = 1', "sh", *strace))
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for directory, name in _OPENED.findall(log.read_text()):
        names[_subsystem(root, directory)][name] = None
    return {subsystem: list(found) for subsystem, found in sorted(names.items())}


def _subsystem(root: Path, directory: str) -> str:
    return (root / directory.lstrip("/") / "subsystem").readlink().name
