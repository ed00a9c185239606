"""Reads many snapshots in parallel, each in a process that can be given up.

What is wrong with one file is one result and no end: that it is no snapshot, that a file system
does not answer, or that it brought its process down.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from hbatune.errors import HbatuneError, UsageError
from hbatune.facts.names import natural_key
from hbatune.fleet.facts import HostFact
from hbatune.fleet.host import HostAudit, audit_host
from hbatune.snapshot.file import load
from hbatune.workers import Died, Finished, Pool, Replied, Stuck, Unstarted

SUFFIXES = (".snap", ".snapshot")
"""How the names of those files of a folder end that are looked at."""

DEADLINE = 60.0
"""Seconds for one snapshot: the largest takes a few."""

PROCESSES = 8
"""Processes at most: the largest snapshot takes 256 MiB while it is read."""


class Unusable(Struct, frozen=True):
    """A file that could not be audited, and why."""

    file: str
    reason: str


class _Task(Struct, frozen=True):
    file: str
    profile: str | None


def snapshot_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files to read: those named, and the snapshots in and below the folders named.

    Each file once. UsageError for a folder without any, or one that cannot be read.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            found[path] = None
            continue
        inside = sorted(_snapshots_below(path), key=lambda each: natural_key(str(each)))
        if not inside:
            endings = " or ".join(SUFFIXES)
            raise UsageError(
                f"no file in {str(path)!r} has a name that ends in {endings}",
                hint="name the files themselves, or take them with `hbatune snapshot HOST.snap`",
            )
        found.update(dict.fromkeys(inside))
    return tuple(found)


def _snapshots_below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename!r} cannot be read: {error.strerror}") from error

    for place, _, files in os.walk(folder, onerror=refuse):
        yield from (Path(place, name) for name in files if name.endswith(SUFFIXES))


def read_hosts(
    files: Sequence[Path], profile: str | None, *, processes: int | None = None
) -> Iterator[HostAudit | Unusable]:
    """Yield what is kept of each host, or why its file is of no use, in the order of their ends.

    Each is compared with ``profile``, or with its own active one.
    """
    size = processes or min(PROCESSES, len(os.sched_getaffinity(0)))
    tasks = (_Task(str(file), profile) for file in files)
    known: dict[HostFact, HostFact] = {}
    with Pool[_Task, HostAudit | Unusable](_read, size=size, deadline=DEADLINE) as pool:
        for event in pool.run(tasks):
            match event:
                case Replied(_, HostAudit() as host):
                    yield _sharing(host, known)
                case Replied(_, unusable):
                    yield unusable
                case Stuck(task, _):
                    yield Unusable(task.file, f"not read within {DEADLINE:.0f} seconds")
                case Died(task, status):
                    yield Unusable(task.file, _end(status))
                case Unstarted(task, error):
                    yield Unusable(task.file, f"no process for it: {os.strerror(error)}")
                case Finished():
                    pass


def _sharing(host: HostAudit, known: dict[HostFact, HostFact]) -> HostAudit:
    """Return the host with the facts of earlier hosts in the place of equal ones.

    Alike hosts have most of them in common: a thousand take little more memory than one.
    """
    from msgspec.structs import replace

    return replace(host, facts=tuple(known.setdefault(each, each) for each in host.facts))


def _end(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"the process that read it was ended by signal {os.WTERMSIG(status)}"
    return "a fault of hbatune came up as it was read"


def _read(task: _Task) -> Iterator[HostAudit | Unusable]:
    """Audit one snapshot, in a worker."""
    try:
        yield audit_host(load(Path(task.file)), task.file, task.profile)
    except HbatuneError as error:
        # The reason alone: the message names the file first.
        yield Unusable(task.file, error.message.removeprefix(f"{task.file!r}: "))
    except MemoryError:
        yield Unusable(task.file, "takes more memory than there is")
