"""Decides whether an endpoint may be written to: only one that was named and is empty.

Three checks in order: the facts, then the device's own blocks (libblkid, which knows every
filesystem, RAID and partition table), and last the kernel: opening a block device exclusively
fails while a mount, swap or another device holds it (open(2): O_EXCL).
"""

import errno
import os
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from hbatune.facts.devices import SWAP
from hbatune.facts.ids import stable_part
from hbatune.facts.model import Endpoint, Kind
from hbatune.probe.model import Skip, Skipped, Subject

_NOTHING = 2  # blkid(8): nothing was recognised
_AMBIVALENT = 8  # blkid(8): several signatures contradict each other
_SECONDS = 10.0  # for blkid, which waits in the kernel where the disk does not answer

Look = Callable[[str], "str | OSError | None"]
"""Takes a device node; returns its content's type, None if empty, or why it cannot be read."""


def guarded(
    subject: Subject, named: Collection[str], *, look: Look | None = None
) -> Skipped | None:
    """Return why the subject must not be written to, or None where it may be.

    ``named`` are the names that the user gave. Reads a few blocks of the device.
    """
    endpoint = subject.endpoint
    told = _told(endpoint, subject, named)
    if told is not None:
        return told
    node = endpoint.device_node
    if node is None:
        return Skipped(endpoint.target, Skip.NO_NODE)
    content = (look or signature)(node)
    if isinstance(content, OSError):
        return Skipped(endpoint.target, Skip.UNKNOWN_CONTENT, detail=_why(content))
    if content is not None:
        return Skipped(endpoint.target, Skip.SIGNED, detail=content)
    return None


@contextmanager
def exclusively(subject: Subject) -> Iterator[Skipped | None]:
    """Claim the device for the time of a run, or yield why that is impossible.

    The kernel refuses to mount it, to swap on it or to stack a device on it meanwhile
    (block/bdev.c: bd_prepare_to_claim).
    """
    target, node = subject.target, subject.endpoint.device_node
    if node is None:
        yield Skipped(target, Skip.NO_NODE)
        return
    try:
        claim = os.open(node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        taken = error.errno == errno.EBUSY
        reason = Skip.TAKEN if taken else Skip.UNKNOWN_CONTENT
        yield Skipped(target, reason, detail=None if taken else _why(error))
        return
    try:
        yield None
    finally:
        os.close(claim)


def _told(endpoint: Endpoint, subject: Subject, named: Collection[str]) -> Skipped | None:
    """Return the reason among the facts for not writing to it."""
    stable = stable_part(endpoint.id)
    # By name of this very disk: an adapter or a pattern that includes it is not enough.
    if not {endpoint.target, f"/dev/{endpoint.target}", endpoint.id, stable} & set(named):
        return Skipped(endpoint.target, Skip.NOT_NAMED)
    if endpoint.kind is not Kind.DISK or endpoint.map or subject.paths:
        return Skipped(endpoint.target, Skip.MULTIPATH, detail=endpoint.map or endpoint.target)
    if SWAP in endpoint.mounts:
        return Skipped(endpoint.target, Skip.SWAP)
    if endpoint.mounts:
        return Skipped(endpoint.target, Skip.MOUNTED, detail=", ".join(endpoint.mounts))
    if endpoint.holders:
        return Skipped(endpoint.target, Skip.HELD, detail=", ".join(endpoint.holders))
    if _partitioned(endpoint.sysfs):
        return Skipped(endpoint.target, Skip.PARTITIONED)
    return None


def _partitioned(sysfs: str) -> bool:
    """Whether the kernel shows partitions (block/partitions/core.c: part_attrs)."""
    try:
        return any(os.path.exists(f"{entry.path}/partition") for entry in os.scandir(sysfs))
    except OSError:
        return True  # gone or unreadable: not to be written to either


def signature(node: str) -> "str | OSError | None":
    """Return the type that libblkid finds, None if it finds none, or why it could not look."""
    command = ["blkid", "--probe", "--output", "export", "--", node]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    except OSError as error:
        return error
    if done.returncode == _AMBIVALENT:
        return "several things at once"
    # An unknown status must not pass for an empty disk.
    if done.returncode not in (0, _NOTHING):
        return OSError(errno.EIO, f"blkid ended with status {done.returncode}")
    return _held(done.stdout.decode("utf-8", "replace"))


def _held(said: str) -> str | None:
    tags = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    return tags.get("TYPE") or tags.get("PTTYPE")


def _why(error: OSError) -> str:
    return error.strerror or "no reason was given"
