"""Check a disk before a probe, or make a file to probe. The checks only read.

A disk in use is not probed: the probe would disturb its I/O, and the figures would be wrong. Only
an endpoint that was named and is empty may be written to. Three checks decide that, in this order:
the facts, the device's own blocks (libblkid), and the kernel (``claim_device``).
"""

import errno
import mmap
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from msgspec import Struct

from hbatune import children
from hbatune.errors import UsageError
from hbatune.facts import devices, ids, model, sampler
from hbatune.loader import close_on_exit
from hbatune.probe.result import Load, Skip, Skipped, Subject
from hbatune.settings.table import SETTINGS
from hbatune.shipped import fill_message
from hbatune.workers import Pool, Replied

_NOTHING = 2  # blkid(8): nothing was recognised
_AMBIVALENT = 8  # blkid(8): several signatures contradict each other
_SECONDS = 10.0  # for blkid, which waits in the kernel if the disk does not answer

SAMPLED_BLOCKS = 64
"""Number of blocks to read, evenly spread over the disk; a disk in use has data in one of them."""
_READ_BLOCK = 4096
_DEADLINE = 5.0  # seconds for each read, after which the answer is "unknown"
MAX_UTILISATION = 0.10  # busy above this fraction of time
LOAD_SAMPLES = 4
SAMPLE_INTERVAL_S = 0.1  # seconds between two samples


def find_write_refusal(subject: Subject, target_names: Collection[str]) -> Skipped | None:
    """Return why the subject must not be written to, or None if writes are allowed.

    ``target_names`` are the names that the user gave. Reads a few blocks of the device.
    """
    endpoint, target = subject.endpoint, subject.target
    stable = ids.extract_stable_part(endpoint.id)
    # Only a name of this disk counts: an adapter or a pattern that includes it is not enough.
    if not {target, f"/dev/{target}", endpoint.id, stable} & set(target_names):
        return Skipped(target, Skip.NOT_NAMED)
    if endpoint.kind is not model.Kind.DISK or endpoint.map or subject.paths:
        return Skipped(target, Skip.MULTIPATH, detail=endpoint.map or target)
    if devices.SWAP in endpoint.mounts:
        return Skipped(target, Skip.SWAP)
    if endpoint.mounts:
        return Skipped(target, Skip.MOUNTED, detail=", ".join(endpoint.mounts))
    if endpoint.holders:
        return Skipped(target, Skip.HELD, detail=", ".join(endpoint.holders))
    try:
        # The kernel's directories of partitions (block/partitions/core.c: part_attrs).
        for entry in os.scandir(endpoint.sysfs):
            if os.path.exists(f"{entry.path}/partition"):
                return Skipped(target, Skip.PARTITIONED)
    except OSError:  # missing or unreadable: not to be written to either
        return Skipped(target, Skip.PARTITIONED)
    if endpoint.device_node is None:
        return Skipped(target, Skip.NO_NODE)
    content = read_signature(endpoint.device_node)
    if isinstance(content, OSError):
        return Skipped(target, Skip.UNKNOWN_CONTENT, detail=content.strerror)
    return None if content is None else Skipped(target, Skip.SIGNED, detail=content)


@contextmanager
def claim_device(subject: Subject) -> Iterator[Skipped | None]:
    """Claim the device during a run, or yield why that is impossible.

    The kernel then refuses to mount it, to swap on it or to stack a device on it (block/bdev.c:
    bd_prepare_to_claim). While any of these holds it, the claim fails (open(2): O_EXCL).
    """
    target, node = subject.target, subject.endpoint.device_node
    if node is None:
        yield Skipped(target, Skip.NO_NODE)
        return
    try:
        claim = os.open(node, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            yield Skipped(target, Skip.TAKEN)
        else:
            yield Skipped(target, Skip.UNKNOWN_CONTENT, detail=error.strerror)
        return
    with close_on_exit(claim):
        yield None


def read_signature(node: str) -> "str | OSError | None":
    """Return the filesystem, RAID or partition table that libblkid finds, None, or its error."""
    command = ["blkid", "--probe", "--output", "export", "--", node]
    try:
        completed = children.run(command, _SECONDS)
    except OSError as error:
        return error
    if completed.returncode == _AMBIVALENT:
        return fill_message("probe", "several-contents")
    # An unknown status must not pass for an empty disk.
    if completed.returncode not in (0, _NOTHING):
        return OSError(errno.EIO, f"blkid ended with status {completed.returncode}")
    output = completed.stdout.decode("utf-8", "replace")
    tags = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
    return tags.get("TYPE") or tags.get("PTTYPE")


class Clock(Struct, frozen=True):
    """The time for the sampling: seconds that never decrease, and a function to sleep."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def is_blank(node: str, size: int, *, deadline: float = _DEADLINE) -> bool | None:
    """Return whether all sampled blocks of ``size`` bytes are zeros, or None if a read fails.

    A disk of zeros is probed with a remark: thin and trimmed disks answer without reading their
    medium. Reads past the page cache, in a worker: a hung disk blocks only the worker.
    """
    blank: bool | None = None
    with Pool(_check_zeros, size=1, deadline=deadline) as pool:
        for event in pool.run([(node, size)]):
            if isinstance(event, Replied):
                blank = event.reply
    return blank


def find_busy_subjects(
    subjects: Sequence[Subject], clock: Clock | None = None
) -> dict[str, Skipped]:
    """Sample all subjects together for 0.3 s; return the reasons by target not to probe them.

    A map is busy if one of its paths is: older kernels count nothing on an NVMe head.
    """
    clock = clock or Clock()
    # With iostats off the counters do not change (6.1 and 6.12), which looks like an idle disk.
    counted: dict[str, list[str]] = {}
    iostats = SETTINGS["iostats"]
    for subject in subjects:
        members = [member for member in subject.members if iostats.read(member.attributes) != 0]
        counted[subject.target] = [member.sysfs for member in members]
    series: dict[str, list[sampler.DiskSample | None]] = {}
    for directory in chain.from_iterable(counted.values()):
        series[directory] = []
    started = clock.now()
    for number in range(LOAD_SAMPLES):
        if number:
            clock.sleep(SAMPLE_INTERVAL_S)
        for directory, samples in series.items():
            # Alternately, not disk by disk: the full set takes 0.3 s for any number of disks.
            samples.append(sampler.read_disk_sample(directory))
    seconds = clock.now() - started
    refusals: dict[str, Skipped] = {}
    for target, directories in counted.items():
        refusal = None if directories else Skipped(target, Skip.NOT_COUNTED)
        for directory in directories:
            refusal = refusal or _find_refusal(target, series[directory], seconds)
        if refusal is not None:
            refusals[target] = refusal
    return refusals


def _find_refusal(
    target: str, readings: Sequence[sampler.DiskSample | None], seconds: float
) -> Skipped | None:
    samples = [sample for sample in readings if sample is not None]
    if len(samples) < len(readings):
        return Skipped(target, Skip.UNREADABLE)
    # The kernel adds up the time of an I/O when it completes, so the ticks do not show hung I/O.
    waiting = sum(sample.in_flight > 0 for sample in samples)
    ticks = (samples[-1].busy_ms - samples[0].busy_ms) / 1000
    load = Load(
        utilisation=min(1.0, max(0.0, ticks / seconds)) if seconds > 0 else 0.0,
        in_flight=max(sample.in_flight for sample in samples),
    )
    if load.utilisation > MAX_UTILISATION or 2 * waiting >= len(samples):
        return Skipped(target, Skip.BUSY, load=load)
    return None


def _check_zeros(disk: tuple[str, int]) -> Iterator[bool | None]:  # pragma: no cover  (in a worker)
    """Yield after each sampled block of a node and size whether all are zero; None if too few."""
    node, size = disk
    nothing, count = bytes(_READ_BLOCK), max(1, min(SAMPLED_BLOCKS, size // _READ_BLOCK))
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        descriptor = os.open(node, flags | os.O_DIRECT)
    except OSError:
        # No reply means "unknown" to the caller, which is correct.
        return
    with mmap.mmap(-1, _READ_BLOCK) as block:  # O_DIRECT requires aligned memory
        for number in range(count):
            offset = number * (size // count)
            try:
                os.preadv(descriptor, [block], offset - offset % _READ_BLOCK)
            except OSError:
                return
            if block[:] != nothing:
                yield False
                return
            # A worker that stops early has read only zeros so far, which proves nothing.
            yield True if number == count - 1 else None


MAX_SCRATCH_SIZE = 1 << 30
"""Maximum size of the file in bytes: a probe of a few seconds does not read it twice."""
MIN_SCRATCH_SIZE = 64 << 20
FREE_SPACE_DIVISOR = 10
"""The file takes at most one part in this number of the free space. If a user has requested its
size, one part in this number of the filesystem stays free."""

_WRITE_BLOCK = 1 << 20


class ScratchFile(Struct, frozen=True):
    """The file: its size in bytes, and a path that child processes can open."""

    path: str
    size: int


@contextmanager
def make_scratch_file(
    folder: Path,
    requested: int | None = None,
    announce: Callable[[int, float], None] | None = None,
    *,
    largest: int = MAX_SCRATCH_SIZE,
    smallest: int = MIN_SCRATCH_SIZE,
) -> Iterator[ScratchFile]:
    """Make a file of random bytes in the directory, for a probe if no disk is free.

    It has no name in the filesystem, so even a crash leaves nothing behind. ``requested`` is its
    size in bytes. After the first ``smallest`` bytes, the size and the seconds to fill the
    remaining file are announced. Raises UsageError if the directory cannot hold one.
    """
    import tempfile  # not for a daemon that starts, whose memory counts

    try:
        free = os.statvfs(folder)
        limit = free.f_bavail * free.f_frsize // FREE_SPACE_DIVISOR
        hint = f"a tenth of it has to be {smallest >> 20} MiB at least"
        if requested is not None:
            reserve = free.f_blocks // FREE_SPACE_DIVISOR
            limit = max(0, free.f_bavail - reserve) * free.f_frsize
            hint = f"10 % of the filesystem must stay free: --size can be {limit >> 20}m at most"
        size = min(requested or largest, limit)
        size -= size % _WRITE_BLOCK
        if size < (requested or smallest):
            problem = "has too little free space for a file to probe"
            raise UsageError(f"{str(folder)!r} {problem}", hint=hint)
        # Without a name, or with one that is removed immediately if the filesystem needs it.
        file = tempfile.TemporaryFile(prefix=".hbatune-", dir=folder, buffering=0)  # noqa: SIM115
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{str(folder)!r} cannot hold a file to probe: {reason}") from error
    with file:
        descriptor = file.fileno()
        try:
            started = time.monotonic()
            # A filesystem may store zeros as a hole and read none from the disk.
            for number in range(size // _WRITE_BLOCK):
                os.write(descriptor, os.urandom(_WRITE_BLOCK))
                if announce is not None and (number + 1) * _WRITE_BLOCK == smallest:
                    os.fsync(descriptor)  # memory accepts the bytes faster than the disk
                    announce(size, (time.monotonic() - started) * (size - smallest) / smallest)
            # Otherwise the probe would compete with the writeback of its file.
            os.fsync(descriptor)
        except OSError as error:
            raise UsageError(f"{str(folder)!r} could not be filled: {error.strerror}") from error
        # With the pid: in fio, /proc/self would be fio's own.
        yield ScratchFile(f"/proc/{os.getpid()}/fd/{descriptor}", size)
