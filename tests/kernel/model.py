"""The rules that the kernel applies to writes to a disk's sysfs files; in memory, without I/O.

``Kernel.write`` takes the arguments of a write(2) and returns None or the errno. The files' texts
are those of ``Disk.texts``. Damage that hbatune must never do is recorded as well: a tag set that
shrank (``Shrink``), a path that fell below its map (``Below``).

``tests/lab/guest/test_kernel_model.py`` measures every rule on 6.1 and 6.12. Those of async_depth
on 7.3 are from block/blk-sysfs.c and block/blk-mq.c.
"""

import errno
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

MOST_WITH_SCHEDULER = 2048
"""block/blk-mq.h: MAX_SCHED_RQ."""
FEWEST = 4
"""block/blk-sysfs.c: BLKDEV_MIN_RQ."""
DEEPEST = 4096
"""drivers/scsi/scsi.c: scsi_device_max_queue_depth."""
PAGE_KB = 4
JIFFY_MS = 4
"""Debian's kernels have HZ=250; mq-deadline keeps its times in jiffies."""
READ_AHEAD_KB = 128
"""linux/pagemap.h: VM_READAHEAD_PAGES."""
DEFAULT_SECTORS_KB = 1280
"""linux/blkdev.h: BLK_DEF_MAX_SECTORS_CAP, of 6.12; drivers of 6.1 may have another."""
_WBT = {False: 2000, True: 75000}
"""block/blk-wbt.c: wbt_default_latency_nsec, in µs, by rotational."""

DEADLINE = {
    "fifo_batch": 16,
    "front_merges": 1,
    "prio_aging_expire": 10000,
    "read_expire": 500,
    "write_expire": 5000,
    "writes_starved": 2,
}
TUNABLES: dict[str, dict[str, int]] = {
    "mq-deadline": {"async_depth": 256, **DEADLINE},
    "kyber": {"read_lat_nsec": 2000000, "write_lat_nsec": 10000000},
    "bfq": {"slice_idle": 8, "low_latency": 1, "back_seek_max": 16384},
}
"""Initial tunables of a scheduler (block/mq-deadline.c, kyber-iosched.c; some of bfq's)."""

HANGS = -1
"""In place of an errno: the write does not return."""


class By(StrEnum):
    """The author of a change."""

    HBATUNE = "hbatune"
    ADMINISTRATOR = "administrator"
    KERNEL = "kernel"


@dataclass(frozen=True)
class Shrink:
    """A loss of tags, for all disks of one tag set."""

    by: By
    disk: str
    before: int
    after: int


@dataclass(frozen=True)
class Below:
    """A path whose limit is below the requests of its live map: large I/O fails from now on."""

    by: By
    map: str
    path: str
    path_kb: int
    map_kb: int


@dataclass(frozen=True)
class Change:
    """A change of a file's text; None where the file does not exist."""

    by: By
    disk: "Disk"
    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Write:
    """A write(2) to a file of a disk, and its errno."""

    by: By
    disk: "Disk"
    name: str
    text: str
    errno: int | None


@dataclass
class TagSet:
    """The tags that all disks of one adapter share: how many there are, and how many are in use.

    ``depth`` is what ``mq/0/nr_tags`` reads and never changes. ``bitmap`` is what debugfs shows
    as ``hctx0/tags`` depth: a write of nr_requests under ``none`` resizes it for all disks.
    """

    depth: int
    bitmap: int = 0
    queues: int = 1

    def __post_init__(self) -> None:
        self.bitmap = self.bitmap or self.depth


@dataclass(eq=False)
class Disk:
    """A request-based block device: a SCSI disk, an NVMe namespace, or a map over ``paths``.

    ``optimal_kb`` is the best size of I/O; ``modules`` are schedulers that a write loads. A disk is
    ``served`` if a command is going to end while its depth is lowered next.
    ``can_queue`` is None without a SCSI device: then there is no queue_depth. ``refusals`` are the
    results of the next writes to a file, errnos or ``HANGS``.
    """

    name: str
    tags: TagSet
    scheduler: str = "mq-deadline"
    offered: tuple[str, ...] = ("mq-deadline",)
    modules: tuple[str, ...] = ("kyber", "bfq")
    requests: int = 0
    can_queue: int | None = None
    depth: int = 32
    ceiling: int = 0
    rotational: bool = False
    max_hw_kb: int = 16384
    sectors_kb: int = DEFAULT_SECTORS_KB
    default_kb: int = 0
    read_ahead_kb: int = READ_AHEAD_KB
    optimal_kb: int = 0
    rq_affinity: int = 1
    nomerges: int = 0
    add_random: int = 0
    iostats: int = 1
    wbt: bool = True
    paths: "tuple[Disk, ...]" = ()
    tunables: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, deque[int]] = field(default_factory=dict)
    pending: list[tuple[str, str, By]] = field(default_factory=list)
    gone: bool = False
    served: bool = False

    def __post_init__(self) -> None:
        self.default_kb = self.default_kb or self.sectors_kb
        self.ceiling = self.ceiling or self.depth
        self.wbt_usec = _WBT[self.rotational]
        self.wbt_on = True
        self.wbt_manual = False
        if not self.requests:
            self.requests = self.fresh_requests(self.scheduler)
            self.tunables = dict(TUNABLES.get(self.scheduler, {}))
        self.async_depth = self.fresh_async_depth()

    def fresh_async_depth(self) -> int:
        """Return async_depth after a switch, on 7.3 (block/elevator.c: elevator_switch)."""
        is_part = self.scheduler in ("kyber", "bfq")
        return self.requests * 3 // 4 if is_part else self.requests

    def fresh_requests(self, scheduler: str) -> int:
        """Return nr_requests after a switch (block/blk-mq-sched.c: blk_mq_init_sched)."""
        return self.tags.depth if scheduler == "none" else 2 * min(self.tags.depth, 128)

    @property
    def own_read_ahead(self) -> int:
        """The read-ahead that the kernel sets with the limits (blk_apply_bdi_limits)."""
        return max(2 * self.optimal_kb, READ_AHEAD_KB)

    def texts(self, series: str) -> dict[str, str]:
        """Return the texts of the files that a write may change, by path below the disk's."""
        file_texts = {
            "queue/scheduler": self._schedulers(series),
            "queue/nr_requests": str(self.requests),
            "queue/rq_affinity": str(self.rq_affinity),
            "queue/nomerges": str(self.nomerges),
            "queue/rotational": str(int(self.rotational)),
            "queue/add_random": str(self.add_random),
            "queue/iostats": str(self.iostats),
            "queue/max_sectors_kb": str(self.sectors_kb),
            "queue/read_ahead_kb": str(self.read_ahead_kb),
        }
        if self.wbt:
            # block/blk-sysfs.c: queue_wb_lat_show shows 0 while it is off, since 6.2.
            is_shown = self.wbt_on or series == "6.1"
            file_texts["queue/wbt_lat_usec"] = str(self.wbt_usec if is_shown else 0)
        if self.can_queue is not None:
            file_texts["device/queue_depth"] = str(self.depth)
        for name, value in self.tunables.items():
            if name != "async_depth" or series != "7.3":
                file_texts[f"queue/iosched/{name}"] = str(value)
        if series == "7.3":
            file_texts["queue/async_depth"] = str(self.async_depth)
        return file_texts

    def _schedulers(self, series: str) -> str:
        marked = [f"[{name}]" if name == self.scheduler else name for name in self.offered]
        none = "[none]" if self.scheduler == "none" else "none"
        if series != "6.1":
            return " ".join([none, *marked])
        return " ".join([none, *marked] if self.scheduler == "none" else [*marked, none])


class Kernel:
    """One kernel of a ``series`` with its disks, and a record of all writes and changes."""

    def __init__(self, series: str = "6.1") -> None:
        self.series = series
        self.disks: list[Disk] = []
        self.writes: list[Write] = []
        self.changes: list[Change] = []
        self.shrinks: list[Shrink] = []
        self.belows: list[Below] = []

    def add(self, disk: Disk) -> Disk:
        """Add a disk."""
        self.disks.append(disk)
        return disk

    def remove(self, disk: Disk) -> None:
        """Remove a disk; writes to it are ENODEV from now on."""
        disk.gone = True
        self.disks.remove(disk)

    # -- writes ------------------------------------------------------------------------------

    def write(self, disk: Disk, name: str, text: str, by: By = By.HBATUNE) -> int | None:
        """Take a write(2) to a file below the disk's directory; return None or the errno.

        ``HANGS`` if the write does not return; it lands when ``release`` is called.
        """
        if disk.gone:
            return errno.ENODEV
        if not text:
            return None  # an empty write never reaches the file's store (fs/kernfs/file.c)
        waiting = disk.refusals.get(name)
        if waiting:
            refused = waiting.popleft()
            if refused == HANGS:
                disk.pending.append((name, text, by))
            self.writes.append(Write(by, disk, name, text, refused))
            return refused
        return self._take(disk, name, text, by)

    def release(self, disk: Disk) -> None:
        """Let hanging writes land: the I/O that they waited for has ended."""
        landing, disk.pending = disk.pending, []
        for name, text, by in landing:
            self._take(disk, name, text, by)

    def _take(self, disk: Disk, name: str, text: str, by: By) -> int | None:
        watch = _Watch(self, disk, by, everywhere=name == "queue/scheduler")
        refused = self._store(disk, name, text.strip())
        watch.close()
        self.writes.append(Write(by, disk, name, text, refused))
        return refused

    def _store(self, disk: Disk, name: str, text: str) -> int | None:
        if name.startswith("queue/iosched/"):
            return self._tunable(disk, name.rpartition("/")[2], text)
        store = {
            "queue/scheduler": self._scheduler,
            "queue/nr_requests": self._requests,
            "queue/async_depth": self._async_depth,
            "queue/rq_affinity": self._rq_affinity,
            "queue/nomerges": self._nomerges,
            "queue/rotational": self._flag("rotational"),
            "queue/add_random": self._flag("add_random"),
            "queue/iostats": self._flag("iostats"),
            "queue/max_sectors_kb": self._max_sectors,
            "queue/read_ahead_kb": self._read_ahead,
            "queue/wbt_lat_usec": self._wbt,
            "device/queue_depth": self._depth,
        }.get(name)
        if store is None or name not in disk.texts(self.series):
            return errno.ENOENT
        return store(disk, text)

    def _scheduler(self, disk: Disk, text: str) -> int | None:
        """block/elevator.c: elv_iosched_store; any word that begins with ``none`` is none."""
        wanted = "none" if text.startswith("none") else text
        if wanted == disk.scheduler:
            if wanted == "none" and self.series == "7.3":
                disk.requests = disk.async_depth = disk.tags.depth
            return None
        if wanted != "none" and wanted not in disk.offered:
            if wanted not in disk.modules:
                return errno.EINVAL
            for offering in self.disks:  # a loaded module serves every disk
                if wanted not in offering.offered:
                    offering.offered = (*offering.offered, wanted)
        before, disk.scheduler = disk.scheduler, wanted
        disk.requests = disk.fresh_requests(wanted)
        disk.tunables = dict(TUNABLES.get(wanted, {}))
        if "async_depth" in disk.tunables:
            disk.tunables["async_depth"] = disk.requests
        disk.async_depth = disk.fresh_async_depth()
        if not disk.wbt_manual:  # block/bfq-iosched.c: bfq_init_queue and bfq_exit_queue
            if wanted == "bfq":
                disk.wbt_on = False
            elif before == "bfq":
                disk.wbt_on = True
        return None

    def _requests(self, disk: Disk, text: str) -> int | None:
        """block/blk-sysfs.c: queue_requests_store; block/blk-mq.c: blk_mq_update_nr_requests."""
        wanted = _unsigned(text)
        if wanted is None:
            return errno.EINVAL
        wanted = max(wanted, FEWEST)
        if wanted == disk.requests:
            return None  # even where the bitmap is smaller than the number says
        if disk.scheduler == "none":
            if wanted > disk.tags.depth:
                return errno.EINVAL
            # Shared by all disks of the adapter, whose nr_requests still show the old number.
            disk.tags.bitmap = wanted
        elif wanted > MOST_WITH_SCHEDULER:
            return errno.EINVAL
        elif disk.scheduler == "mq-deadline":
            # block/mq-deadline.c: dd_depth_updated is called before the number is stored.
            disk.tunables["async_depth"] = disk.requests
        disk.async_depth = max(disk.async_depth * wanted // disk.requests, 1)
        disk.requests = wanted
        return None

    def _async_depth(self, disk: Disk, text: str) -> int | None:
        """block/blk-sysfs.c: queue_async_depth_store."""
        wanted = _unsigned(text)
        if not wanted or disk.scheduler == "none":
            return errno.EINVAL
        disk.async_depth = min(wanted, disk.requests)
        return None

    def _depth(self, disk: Disk, text: str) -> int | None:
        """drivers/scsi/scsi_sysfs.c: sdev_store_queue_depth; the base is that of C."""
        assert disk.can_queue is not None
        wanted = _base_zero(text)
        if not 1 <= wanted <= disk.can_queue:
            return errno.EINVAL
        wanted = min(wanted, DEEPEST)
        if disk.served and wanted < disk.ceiling:
            # Below the old ceiling still, it is raised (scsi_handle_queue_ramp_up).
            wanted, disk.served = wanted + 1, False
        disk.depth = disk.ceiling = wanted
        return None

    def _max_sectors(self, disk: Disk, text: str) -> int | None:
        """block/blk-sysfs.c: queue_max_sectors_store; 6.12 clamps (blk_validate_limits)."""
        wanted = _unsigned(text)
        if wanted is None:
            return errno.EINVAL
        if self.series != "6.1":
            wanted &= 2**31 - 1  # kept in sectors, in 32 bits
            if wanted == 0:
                disk.sectors_kb = disk.default_kb
            elif wanted < PAGE_KB:
                return errno.EINVAL
            else:
                disk.sectors_kb = min(wanted, disk.max_hw_kb)
        elif PAGE_KB <= wanted <= disk.max_hw_kb:
            disk.sectors_kb = wanted
        else:
            return errno.EINVAL
        self._limits_changed(disk)
        return None

    def _limits_changed(self, disk: Disk) -> None:
        """block/blk-settings.c: blk_apply_bdi_limits, since 6.11."""
        if self.series != "6.1":
            disk.read_ahead_kb = max(disk.read_ahead_kb, disk.own_read_ahead)

    def _read_ahead(self, disk: Disk, text: str) -> int | None:
        wanted = _unsigned(text)
        if wanted is None:
            return errno.EINVAL
        disk.read_ahead_kb = wanted - wanted % PAGE_KB
        return None

    def _wbt(self, disk: Disk, text: str) -> int | None:
        """block/blk-sysfs.c: queue_wb_lat_store; block/blk-wbt.c: wbt_set_min_lat."""
        if not re.fullmatch(r"-?\d+", text) or int(text) < -1:
            return errno.EINVAL
        wanted = _WBT[disk.rotational] if int(text) == -1 else int(text)
        if wanted == disk.wbt_usec:
            return None  # even where bfq has it off, and 0 is read
        disk.wbt_usec, disk.wbt_on, disk.wbt_manual = wanted, wanted > 0, True
        return None

    def _rq_affinity(self, disk: Disk, text: str) -> int | None:
        wanted = _unsigned(text)
        if wanted is None:
            return errno.EINVAL
        disk.rq_affinity = wanted if wanted <= 2 else disk.rq_affinity
        return None

    def _nomerges(self, disk: Disk, text: str) -> int | None:
        wanted = _unsigned(text)
        if wanted is None:
            return errno.EINVAL
        disk.nomerges = wanted if wanted in (0, 2) else 1
        return None

    def _flag(self, name: str) -> Callable[[Disk, str], int | None]:
        def store(disk: Disk, text: str) -> int | None:
            wanted = _unsigned(text)
            if wanted is None:
                return errno.EINVAL
            setattr(disk, name, type(getattr(disk, name))(bool(wanted)))
            self._limits_changed(disk)
            return None

        return store

    def _tunable(self, disk: Disk, name: str, text: str) -> int | None:
        if name not in disk.tunables:
            return errno.ENOENT
        if not re.fullmatch(r"[+-]?\d+", text) or (disk.scheduler == "kyber" and text[0] == "-"):
            return errno.EINVAL
        wanted, most = int(text), 2**31 - 1
        if disk.scheduler == "kyber":  # kstrtoull
            disk.tunables[name] = wanted
            return None
        if abs(wanted) > most:
            return errno.ERANGE  # lib/kstrtox.c: kstrtoint
        if name.endswith("_expire"):
            wanted = -(-wanted // JIFFY_MS) * JIFFY_MS
        most = 1 if name in ("front_merges", "low_latency") else most
        disk.tunables[name] = max(int(name == "async_depth"), min(wanted, most))
        return None

    # -- what the kernel does by itself --------------------------------------------------------

    def reset(self, disk: Disk) -> None:
        """Reset an NVMe controller: 6.1 then sets its limits again (nvme/host/core.c)."""
        watch = _Watch(self, disk, By.KERNEL)
        if self.series == "6.1":
            disk.sectors_kb, disk.read_ahead_kb = disk.default_kb, disk.own_read_ahead
        self._limits_changed(disk)
        watch.close()

    def reload(self, map: Disk) -> None:
        """Reload a map's table: its limits are then those of its paths.

        drivers/md/dm-table.c: dm_table_set_restrictions.
        """
        watch = _Watch(self, map, By.ADMINISTRATOR)
        map.sectors_kb = min(path.sectors_kb for path in map.paths)
        map.rotational = any(path.rotational for path in map.paths)
        if self.series == "6.1":
            map.add_random = min(map.add_random, *(path.add_random for path in map.paths))
            map.read_ahead_kb = map.own_read_ahead
        else:  # block/blk-settings.c: blk_set_stacking_limits
            map.add_random, map.iostats = 0, 1
        self._limits_changed(map)
        watch.close()

    def queue_full(self, disk: Disk, depth: int) -> None:
        """Lower a depth after a full queue (drivers/scsi/scsi_error.c: scsi_handle_queue_full)."""
        watch = _Watch(self, disk, By.KERNEL)
        if disk.can_queue is not None:
            disk.depth = max(1, min(disk.depth, depth))
        watch.close()

    def ramp_up(self, disk: Disk) -> None:
        """Raise a lowered depth by one, up to the last one written (scsi_handle_queue_ramp_up)."""
        watch = _Watch(self, disk, By.KERNEL)
        if disk.can_queue is not None:
            disk.depth = min(disk.depth + 1, disk.ceiling)
        watch.close()

    def changed(self, disk: Disk, changes: list[Change]) -> None:
        """Handle changes; a tree mirrors them into files."""


class _Watch:
    """The changes of one action, found by comparing before and after."""

    def __init__(self, kernel: Kernel, disk: Disk, by: By, *, everywhere: bool = False) -> None:
        self._kernel, self._disk, self._by = kernel, disk, by
        # A scheduler whose module was loaded is offered by every disk.
        watched_disks = kernel.disks if everywhere else [disk]
        self._before = {
            watched_disk: watched_disk.texts(kernel.series) for watched_disk in watched_disks
        }
        self._bitmap = disk.tags.bitmap
        self._below = self._narrow()

    def _narrow(self) -> set[tuple[Disk, Disk]]:
        maps = [disk for disk in self._kernel.disks if disk.paths]
        return {(m, p) for m in maps for p in m.paths if p.sectors_kb < m.sectors_kb}

    def close(self) -> None:
        kernel, disk, by = self._kernel, self._disk, self._by
        for watched_disk, before in self._before.items():
            after = watched_disk.texts(kernel.series)
            if after != before:
                names = dict.fromkeys((*before, *after))
                changes = [
                    Change(by, watched_disk, name, before.get(name), after.get(name))
                    for name in names
                    if before.get(name) != after.get(name)
                ]
                kernel.changes += changes
                kernel.changed(watched_disk, changes)
        if disk.tags.bitmap < self._bitmap:
            kernel.shrinks.append(Shrink(by, disk.name, self._bitmap, disk.tags.bitmap))
        for map, path in self._narrow() - self._below:
            kernel.belows.append(Below(by, map.name, path.name, path.sectors_kb, map.sectors_kb))


def _unsigned(text: str) -> int | None:
    """block/blk-sysfs.c: queue_var_store: base 10, at most 2^32-1."""
    if not re.fullmatch(r"\+?\d+", text) or int(text) > 2**32 - 1:
        return None
    return int(text)


def _base_zero(text: str) -> int:
    """lib/vsprintf.c: simple_strtoul with base 0: digits as far as they go, 0 where none do."""
    match = re.match(r"0[xX]([0-9a-fA-F]+)|0([0-7]*)|(\d+)", text)
    if match is None:
        return 0
    if match[1]:
        return int(match[1], 16)
    return int(match[3] or match[2] or "0", 8 if match[3] is None else 10)
