"""Name the processes that write to settings in sysfs, as fanotify(7) reports them.

One mark covers the file system of /sys and costs nothing per LUN. Marks on the six tuned files of
4,096 LUNs would keep 14 MiB of the kernel's memory, and each new disk would need its own. The
single mark also wakes the daemon when a process writes to another file of sysfs, which is rare on a
server at rest.

The kernel reports successful writes, but no ioctl(2) and no write to the sysfs of another network
namespace. A kprobe records the latter. Without it, no change counts as the kernel's while a process
may write to such a sysfs. A pid could be another process by now, so a pidfd or the process's age
proves that it is the writer.
"""

import ctypes
import errno
import os
import re
import signal
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache

from msgspec.structs import replace

from hbatune.act import lock
from hbatune.act.paths import Paths
from hbatune.act.tracefs import SettingWrite, WriteTrace
from hbatune.agent import orders
from hbatune.agent.child import ChildError, await_answer, start_server
from hbatune.agent.orders import ChangeOrigin, Handled, PassReport, SettingChange, Writer
from hbatune.facts.ids import escape_text
from hbatune.facts.queue_depths import SYSFS, find_inodes
from hbatune.processes import find_parent, read_age
from hbatune.settings import table

MAX_RECORDS = 4096
"""The number of files with a known writer. Most records are dropped after each full pass."""
_RULES_TIMEOUT_S, _MAX_RULES = 5.0, 4
_MAX_READS = 64  # before the daemon's other work continues
_BUFFER_BYTES = 2048  # for 64 events, each with two open descriptors

# include/uapi/linux/fanotify.h
_GROUP = 0x01 | 0x02 | 0x80  # FAN_CLOEXEC, FAN_NONBLOCK, FAN_REPORT_PIDFD
_MARK = 0x001 | 0x100  # FAN_MARK_ADD, FAN_MARK_FILESYSTEM
_MODIFY, _OVERFLOW = 0x0002, 0x4000
_EVENT = struct.Struct("=IBBHQiiBBHi")
"""struct fanotify_event_metadata, and the record with the pidfd, the only one requested."""
_LIBC = ctypes.CDLL(None, use_errno=True)

_UID = re.compile(r"^Uid:\t(\d+)", re.MULTILINE)
_CGROUP = re.compile(r"^\d+:(?:name=systemd)?:(.*)$", re.MULTILINE)
_UNIT = re.compile(r"/(?:[^/]+\.slice/)*([^/]+\.(?:service|scope|socket|mount|swap))(?:/|$)")
"""The unit of the system: the first one below slices. A container's or a user's units are in it."""
_PROCESSES = "/proc"
# proc_pid_mountinfo(5): the number of a file system, in the line of a writable mount.
_SYSFS_MOUNT = re.compile(r"^\d+ \d+ (\S+) \S+ \S+ rw\b.* - sysfs ", re.MULTILINE)
_BY_IOCTL = "read_ahead_kb"
"""BLKRASET (``blockdev --setra``) sets it without a write to its file."""
_NAMES = {os.path.basename(path) for setting in table.SETTINGS.values() for path in setting.paths}

_KERNEL, _UNKNOWN = Writer(orders.WriterKind.KERNEL), Writer(orders.WriterKind.UNKNOWN)

WriteRecord = tuple[float, Writer]
"""The time on the daemon's clock, and the writer. Many files share a record."""
_Identified = dict[tuple[int, str], WriteRecord | None]


def parse_events(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the mask, file, pid and pidfd of the events in a read. Missing ones are negative."""
    start = 0
    while start < len(data):
        length, _, _, _, mask, file, pid, _, _, _, pidfd = _EVENT.unpack_from(data, start)
        yield mask, file, pid, pidfd
        start += length


class WriterWatch:
    """The last writers of settings, and a group of fanotify(7) that reports further ones. Mutable.

    ``open`` are the settings that an earlier daemon has left open, with their writers. ``overruns``
    counts the times at which the kernel dropped events. ``root`` is where sysfs is mounted.
    """

    def __init__(self, open: Iterable[SettingChange] = (), *, root: str = SYSFS) -> None:
        self.overruns, self._root = 0, root
        self._open = {change.key: change for change in open}
        self._descriptor = -1
        self._has_failed = False
        self._last: dict[int, WriteRecord] = {}
        self._replaced: dict[int, WriteRecord] = {}  # by a write of the daemon's pass
        self._own: dict[int, WriteRecord | None] = {}  # hbatune's processes
        self._gap = self._scanned = 0.0
        self._trace = WriteTrace()
        # By inode, and whether these are all writes since the last full pass began.
        self._traced, self._is_traced = dict[int, SettingWrite](), False

    def fileno(self) -> int | None:
        """Return the descriptor to wait for, or None if writes are not watched."""
        return self._descriptor if self._descriptor >= 0 else None

    def start(self) -> str | None:
        """Watch writes from now on. Return the reason if that fails for the first time."""
        if self._descriptor >= 0 or self._has_failed:
            return None
        self._gap, self._scanned, root = time.monotonic(), 0.0, self._root.encode()
        try:
            # The mark would report all writes to a larger file system.
            if not os.path.ismount(root):
                raise OSError(errno.EINVAL, f"{self._root} is not mounted")
            self._descriptor = _check(_LIBC.fanotify_init(_GROUP, os.O_RDONLY | os.O_CLOEXEC))
            # The path is absolute, so the directory's descriptor is ignored.
            _check(_LIBC.fanotify_mark(self._descriptor, _MARK, ctypes.c_uint64(_MODIFY), -1, root))
        except OSError as error:
            self.stop()
            self._has_failed = True
            return error.strerror
        with suppress(OSError):  # without it, writers of other namespaces are unknown
            self._trace.start()
        return None

    def stop(self) -> None:
        """Stop watching, and forget all writers."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._trace.remove()
        for records in (self._last, self._replaced, self._open, self._own):
            records.clear()

    def take(self) -> None:
        """Record the writers of waiting events, if writes are watched."""
        records: _Identified = {}
        for _ in range(_MAX_READS):
            try:
                data = os.read(self._descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                # The kernel drops the event of a file that it cannot open. Settings can be opened.
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                    self._gap = time.monotonic()
                continue
            for mask, file, pid, pidfd in parse_events(data):
                if mask & _OVERFLOW:
                    self.overruns += 1
                    self._gap = time.monotonic()
                if file >= 0:
                    self._record(file, pid, pidfd, records)
                    os.close(file)
                if pidfd >= 0:
                    os.close(pidfd)

    def name_writers(self, report: PassReport, started: float) -> PassReport:
        """Return the report of a pass with the writers of its changes.

        ``started`` is the time of its order. A full pass has read everything since, so earlier
        writes explain no later change.
        """
        if self._descriptor < 0 or report.subjects is None:
            return report
        self.take()
        self._own.update(dict.fromkeys(report.workers))
        if report.changes:
            self._read_trace(started)
        # A worker of the pass may have ended before its event was read.
        self._last = {i: r for i, r in self._last.items() if r[1].comm or r[1].pid not in self._own}
        find_rules, has_other_sysfs = cache(_find_udev_rules), cache(_has_other_sysfs)
        changes = []
        for change in report.changes:
            writer = self._find_writer(change)
            if writer == _KERNEL and not self._is_traced:
                writer = _UNKNOWN if has_other_sysfs(os.stat(self._root).st_dev) else _KERNEL
            if writer is not None and writer.unit == "systemd-udevd.service" and not writer.rules:
                writer = replace(writer, rules=find_rules(writer.attribute))
            changes.append(change if writer is None else replace(change, writer=writer))
        self._own = {pid: record for pid, record in self._own.items() if record is None}
        self._traced = {}
        if report.whole:
            self._open.clear()
            self._replaced.clear()
            self._last = {i: record for i, record in self._last.items() if record[0] >= started}
            self._scanned, self._own = started, dict.fromkeys(report.workers)
        for change in changes:
            self._open.pop(change.key, None)
            if change.writer is not None and change.handled is not Handled.WRITTEN:
                self._open[change.key] = change
        return replace(report, changes=tuple(changes))

    def _read_trace(self, started: float) -> None:
        """Store the last write to each file, without this pass's own and later ones."""
        self._traced, self._is_traced = {}, False
        with suppress(OSError):  # the writes are unknown
            writes, self._is_traced = self._trace.read_writes(self._scanned)
            for write in reversed(writes):
                if write.time >= started and self._own.get(write.pid, write) is None:
                    self._traced.pop(write.inode, None)
                else:
                    self._traced.setdefault(write.inode, write)

    def _find_writer(self, change: SettingChange) -> Writer | None:
        """Return the writer of a wrong value, or None if its cause is not a write."""
        is_write = change.origin in (ChangeOrigin.DRIFT, ChangeOrigin.RESET)
        inodes = _list_inodes(change) if is_write and change.handled is not Handled.HELD else []
        was_written = change.handled is Handled.WRITTEN
        # The pass has written to the file, too, and that write has moved the record.
        records = self._replaced if was_written else self._last
        writes = (records[inode] for inode in inodes if inode in records)
        record = max(writes, key=lambda record: record[0], default=None)
        write = max((self._traced[i] for i in inodes if i in self._traced), default=None)
        if write and record and record[1].uid is not None and record[1].pid == write.pid:
            write = None  # already identified
        if write and (not record or record[1].uid is None or record[0] < write.time):
            record = self._identify(write)
            if record and len(records) < MAX_RECORDS:
                records[write.inode] = record
        if record:
            return record[1]
        previous = self._open.get(change.key)
        if not inodes or (previous and previous.before == change.before):
            return previous.writer if inodes and previous else None
        is_proven = change.setting != _BY_IOCTL or change.origin is ChangeOrigin.RESET
        is_complete = self._scanned > self._gap
        is_complete &= not was_written or self._last.keys().isdisjoint(inodes)
        return _KERNEL if (is_complete or self._is_traced) and is_proven else _UNKNOWN

    def _record(self, file: int, pid: int, pidfd: int, records: _Identified) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")
        name, inode = os.path.basename(path), os.fstat(file).st_ino
        if name not in _NAMES and table.SCHEDULER_TUNABLES not in path:
            return
        if (pid, name) not in records:
            write = SettingWrite(time.monotonic(), pid, inode, name)
            records[pid, name] = self._identify(write, pidfd)
        record = records[pid, name]
        previous = self._last.pop(inode, None)
        if record is not None:
            self._last[inode] = record
            if len(self._last) > MAX_RECORDS:
                del self._last[next(iter(self._last))]
                self._gap = time.monotonic()
        elif previous is not None:
            self._replaced[inode] = previous
        else:
            self._replaced.pop(inode, None)

    def _identify(self, write: SettingWrite, pidfd: int | None = None) -> WriteRecord | None:
        """Return the record of the process, or None for a process of this daemon."""
        pid, age = write.pid, time.monotonic() - write.time
        if pid in self._own:  # it may have ended, or released the lock
            return self._own[pid]
        # The pid is 0 if the process is outside of this PID namespace.
        kind = orders.WriterKind.ENDED if pid else orders.WriterKind.UNKNOWN
        writer = Writer(kind, time.time() - age, escape_text(write.attribute), pid)
        record = write.time, replace(writer, comm=escape_text(write.comm) or None)
        try:
            uid, cgroup = _UID.search(_read(pid, "status")), _CGROUP.search(_read(pid, "cgroup"))
            comm, parent = _read(pid, "comm").removesuffix("\n"), find_parent(pid)
            ancestors = {pid, parent, find_parent(parent)}  # a run writes through its workers
            if pidfd is not None:
                with suppress(PermissionError):  # it has another uid
                    signal.pidfd_send_signal(pidfd, 0)  # raises if it has lost its pid
            elif read_age(pid) < age:
                raise ProcessLookupError  # a later process has its pid
        except OSError:
            uid = cgroup = None
        if not (uid and cgroup):
            return record
        is_command = not ancestors.isdisjoint(map(lock.find_holder, (Paths.lock, Paths.lock_spare)))
        unit = _UNIT.match(cgroup[1])
        process = replace(
            record[1],
            kind=orders.WriterKind.HBATUNE if is_command else orders.WriterKind.PROCESS,
            uid=int(uid[1]),
            unit=escape_text(unit[1]) if unit else None,
            cgroup=escape_text(cgroup[1]),
            comm=record[1].comm or escape_text(comm),
        )
        identified = None if os.getpid() in ancestors else (record[0], process)
        if is_command or identified is None:
            self._own[pid] = identified
        return identified


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _read(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
        return file.read(4096).decode(errors="replace")


def _list_inodes(change: SettingChange) -> list[int]:
    """Return the files whose writes change a setting: its own, and settings that reset it."""
    name = change.setting
    resetting = [other for other in table.SETTINGS.values() if table.is_among(name, other.resets)]
    paths = [path for setting in (table.find_setting(name), *resetting) for path in setting.paths]
    # A disk has a second file for its read-ahead.
    return find_inodes(table.find_target_kind(name), change.target, [*paths, f"bdi/{name}"])


def _has_other_sysfs(device: int) -> bool:
    """Return whether a process may write to a sysfs with another number than ``device``."""
    own = f"{os.major(device)}:{os.minor(device)}"
    for pid in filter(str.isdecimal, os.listdir(_PROCESSES)):
        with suppress(OSError), open(f"{_PROCESSES}/{pid}/mountinfo", errors="replace") as file:
            if set(_SYSFS_MOUNT.findall(file.read())) - {own}:
                return True
    return False


def _find_udev_rules(attribute: str) -> tuple[str, ...]:
    """Return the files of udev rules that set the attribute, in a fork: it loads many modules."""

    def answer(_: bytes) -> bytes:
        from hbatune.facts.observe import read_udev_rules

        rules = (r.file for r in read_udev_rules() if os.path.basename(r.attribute) == attribute)
        return orders.encode(list(dict.fromkeys(rules))[:_MAX_RULES])

    with suppress(ChildError):
        sent = await_answer(start_server(answer), _RULES_TIMEOUT_S)
        return orders.decode_files(sent) if sent else ()
    return ()
