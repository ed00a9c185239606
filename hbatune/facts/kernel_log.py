"""Count failed I/O in the kernel's log, by disk and type.

The block layer logs a line for each I/O that finally failed, and none for pass-through such as
smartd's (block/blk-mq.c: blk_update_request, blk_print_req_error). The preceding lines of the SCSI
layer give the reason. All lines are limited in their rate, and the log is a ring, so the counts are
minimums. Members of adm and systemd-journal may read the log only in systemd's journal.
"""

import errno
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from hbatune import children
from hbatune.facts.health import ErrorKind
from hbatune.facts.model import Missing, Reason

_DEVICE = "/dev/kmsg"
_RECORD = 16384  # bytes; kernel/printk/internal.h: a record is shorter than PRINTK_MESSAGE_MAX
_FIRST_OTHER_PRIORITY = 8  # priorities from this value belong to facilities other than the kernel's
_MAX_LOG_BYTES = 64 << 20  # bytes of the log; kernels keep 128 KiB to 16 MiB by default
_LINES = 50_000  # of the journal: about as many as the largest ring holds
_JOURNAL = (
    *("journalctl", "--dmesg", "--boot", "--quiet", "--no-pager", f"--lines={_LINES}"),
    *("--output=json", "--output-fields=MESSAGE,SYSLOG_FACILITY"),
)
_JOURNAL_TIMEOUT_S = 20.0  # seconds for the journal

# block/blk-core.c: blk_errors. Missing values are not failures of a device: reservations, features
# that a device does not have, temporary lack of resources.
_WORDS = {
    "critical medium": ErrorKind.MEDIUM,
    "protection": ErrorKind.PROTECTION,
    "recoverable transport": ErrorKind.TRANSPORT,
    "device offline": ErrorKind.TRANSPORT,
    "timeout": ErrorKind.TIMEOUT,
    "critical space allocation": ErrorKind.SPACE,
    "critical target": ErrorKind.OTHER,
    "I/O": ErrorKind.OTHER,
}
# Operations that must not fail (block/blk-core.c: blk_op_name); the others are optional.
_DATA = frozenset({"READ", "WRITE", "FLUSH", "ZONE_APPEND"})

# drivers/scsi/constants.c: snstext and hostbyte_table.
_SENSE = {
    "Medium Error": ErrorKind.MEDIUM,
    "Hardware Error": ErrorKind.HARDWARE,
    "Aborted Command": ErrorKind.TRANSPORT,
}
_HOST = {
    "DID_NO_CONNECT": ErrorKind.TRANSPORT,
    "DID_BUS_BUSY": ErrorKind.TRANSPORT,
    "DID_PARITY": ErrorKind.TRANSPORT,
    "DID_SOFT_ERROR": ErrorKind.TRANSPORT,
    "DID_TRANSPORT_DISRUPTED": ErrorKind.TRANSPORT,
    "DID_TRANSPORT_FAILFAST": ErrorKind.TRANSPORT,
    "DID_TRANSPORT_MARGINAL": ErrorKind.TRANSPORT,
    "DID_TIME_OUT": ErrorKind.TIMEOUT,
}

_LINE = re.compile(r"(?P<priority>\d+),\d+,\d+,[^;]*;(?P<text>.*)")
_FAILED = re.compile(
    r"(?:\w+: )?(?P<words>[\w/ ]+) error, dev (?P<disk>\S+), sector \d+ op 0x\w+:\((?P<op>\w+)\)"
)
_LOG_PREFIXES = ("sd ", "nvme ", "virtio_blk ")
# drivers/scsi/scsi_logging.c: scsi_log_print_sense_hdr, scsi_print_result
_SENSED = re.compile(r"sd \S+: \[(?P<disk>\w+)\] .*Sense Key : (?P<key>[\w ]+?) \[")
_RESULT = re.compile(r"sd \S+: \[(?P<disk>\w+)\] .*Result: hostbyte=(?P<host>\w+)")
# drivers/scsi/scsi_error.c: scsi_report_sense
_RESET = re.compile(r"sd (?P<address>[\d:]+): Power-on or device reset occurred")
# drivers/nvme/host/pci.c: nvme_timeout; queue 0 is the admin queue, which health polls use.
_NVME_LATE = re.compile(r"nvme (?P<controller>nvme\d+): I/O .*QID [1-9]\d* timeout")
# A disk has just appeared: earlier messages belong to a previous disk of that name
# (drivers/scsi/sd.c: sd_print_capacity; drivers/block/virtio_blk.c: virtblk_update_capacity;
# drivers/nvme/host/pci.c: nvme_probe).
_NEW_DISK = re.compile(r"(?:sd|virtio_blk) \S+: \[(?P<disk>\w+)\] \d+ \d+-byte logical blocks")
_NEW_NVME = re.compile(r"nvme nvme(?P<number>\d+): pci function")


Counts = Mapping[str, Mapping[ErrorKind, int]]
"""The faults in the log: counts by the kernel's name of a disk, controller or LUN."""


def add_counts(log: Counts, *names: str | None) -> dict[str, int]:
    """Return the sum of the counts under these names."""
    totals = Counter[str]()
    for name in names:
        totals.update(log.get(name or "", {}))
    return dict(totals)


class _Entry(Struct):
    """An entry of the journal; a message that is not text is an array of numbers."""

    message: str | list[int] | None = msgspec.field(name="MESSAGE", default=None)
    facility: str = msgspec.field(name="SYSLOG_FACILITY", default="")


_ENTRIES = msgspec.json.Decoder(_Entry)


def read_kernel_log() -> Counts | Missing:
    """Read the kernel's log; Missing if this user may not read it, or if it does not exist."""
    try:
        device = os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM) and (log := _read_journal()) is not None:
            return log
        absent = error.errno in (errno.ENOENT, errno.ENODEV)
        return Missing(Reason.ABSENT if absent else Reason.UNREADABLE, error.errno)
    try:
        # Skip messages that an administrator has cleared with `dmesg --clear`, and so has seen.
        os.lseek(device, 0, os.SEEK_DATA)
        text = b"".join(_read_records(device)).decode("utf-8", "backslashreplace")
        return count_faults(text)
    except OSError as error:
        return Missing(Reason.UNREADABLE, error.errno)
    finally:
        os.close(device)


def _read_records(device: int) -> Iterator[bytes]:
    """Yield the records, oldest first: each read returns one, and never waits."""
    size = 0
    while size < _MAX_LOG_BYTES:
        try:
            record = os.read(device, _RECORD)
        except BlockingIOError:
            return
        except BrokenPipeError:  # overwritten: the next read continues after the gap
            continue
        if not record:
            return
        size += len(record)
        yield record


def count_faults(log: str) -> Counts:
    """Return the failed I/O in a log with the format of /dev/kmsg (ABI/testing/dev-kmsg)."""
    texts = []
    for record in filter(None, map(_LINE.match, log.split("\n"))):
        # Only the kernel's own lines count: messages from processes have another facility.
        if int(record["priority"]) < _FIRST_OTHER_PRIORITY:
            texts.append(record["text"])
    return _count_faults(texts)


def _read_journal() -> Counts | None:
    """Read the kernel's log of this boot from the journal, or None if this user may not read it."""
    try:
        entries = _ENTRIES.decode_lines(children.run(_JOURNAL, _JOURNAL_TIMEOUT_S).stdout)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    texts = []
    for entry in entries:
        if entry.facility == "0" and isinstance(entry.message, str):
            texts.append(entry.message)
    # A user without access to the system's journal gets no entries, and no error if the user has a
    # journal. The kernel itself always logs something.
    return _count_faults(texts) if texts else None


def _count_faults(messages: Iterable[str]) -> Counts:
    counts: dict[str, Counter[ErrorKind]] = defaultdict(Counter)
    reasons: dict[str, ErrorKind] = {}  # the causes of the disks' I/O that fails next
    for text in messages:
        # Most of a log needs no patterns.
        if " error, dev " not in text and not text.startswith(_LOG_PREFIXES):
            continue
        if failed := _FAILED.match(text):
            disk, fault = failed["disk"], _WORDS.get(failed["words"])
            reason = reasons.pop(disk, ErrorKind.OTHER)
            if fault is ErrorKind.OTHER:
                # The kernel switches a refused optional operation off: this is not a failure.
                fault = reason if failed["op"] in _DATA else None
            if fault is not None:
                counts[disk][fault] += 1
        elif result := _RESULT.match(text):
            reasons[result["disk"]] = _HOST.get(result["host"], ErrorKind.OTHER)
        elif sensed := _SENSED.match(text):
            reasons[sensed["disk"]] = _SENSE.get(sensed["key"], ErrorKind.OTHER)
        elif reset := _RESET.match(text):
            counts[reset["address"]][ErrorKind.RESET] += 1
        elif late := _NVME_LATE.match(text):
            counts[late["controller"]][ErrorKind.TIMEOUT] += 1
        elif new := _NEW_DISK.match(text):
            counts.pop(new["disk"], None)
        elif started := _NEW_NVME.match(text):
            number = started["number"]
            pattern = re.compile(rf"nvme{number}(n\d+)?|nvme\d+c{number}n\d+")
            for name in list(filter(pattern.fullmatch, counts)):
                del counts[name]
    return counts
