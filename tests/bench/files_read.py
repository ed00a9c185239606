"""Which attribute files a command reads of each kind of device, as strace sees it."""

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.hosts.namespace import run

# strace -y: a file opened for reading, relative to the directory of a device, and the link from a
# device to another one, followed once for all files behind it.
_OPENED = re.compile(r'openat\(\d+<(/sys/devices/[^>]+)>, "([^"]+)", O_RDONLY\|O_CLOEXEC\)')
_FOLLOWED = re.compile(
    r'openat\(\d+<(/sys/devices/[^>]+)>, "([^"]+/)", [A-Z|_]*O_PATH[A-Z|_]*\) = \d+<([^>]+)>'
)


def files_read(root: Path, command: Sequence[str], log: Path) -> dict[str, list[str]]:
    """Return the attributes, by the subsystem of their device, that the command opens.

    Those that a device does not have are among them: they cost an open, too. What is behind a
    disk's link to its device is the disk's. ``command`` may exit 1, which is what drift is.
    """
    strace = ("strace", "-ff", "-y", "-qq", "-e", "trace=openat", "-o", str(log), *command)
    run(root, ("sh", "-c", '"$@" >/dev/null || test $? = 1', "sh", *strace))
    # A log for each process: in one for all, the parts of a call may stand apart.
    trace = "".join(process_log.read_text() for process_log in log.parent.glob(f"{log.name}.*"))
    links = {end: (start, link) for start, link, end in _FOLLOWED.findall(trace)}
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for opened, name in _OPENED.findall(trace):
        directory, link = links.get(opened, (opened, ""))
        names[_subsystem(root, directory)][link + name] = None
    return {subsystem: list(paths) for subsystem, paths in sorted(names.items())}


def _subsystem(root: Path, directory: str) -> str:
    return (root / directory.lstrip("/") / "subsystem").readlink().name
