"""Read the sysfs attributes of one device as typed values, or as ``Missing`` with the reason.

Reads of ``queue/*`` and ``mq/*`` wait uninterruptibly behind a frozen queue (block/blk-sysfs.c:
queue_attr_show takes q->sysfs_lock), but ``device/*`` still answers. The device's state is
therefore read first. No read here has a deadline: ``survey`` reads many devices, with deadlines.
"""

import array
import errno
import fcntl
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import compress, count
from typing import TypeVar

from hbatune import nvme
from hbatune.facts import names
from hbatune.facts.model import Attribute, Missing, MissingText, Reason
from hbatune.loader import close_on_exit

Attributes = dict[str, Attribute | Missing]
AnyAttributes = Mapping[str, Attribute | Missing]
Survey = Mapping[str, Attributes]  # attributes by directory

ABSENT = Missing(Reason.ABSENT, errno.ENOENT)
# A feature of an NVMe controller is read like a file. ``feature/08`` has the number that Get
# Features returns for 08h. It is writable if the controller reports the feature as changeable.
FEATURE_PREFIX = "feature/"
# The table of a device-mapper device is read like a file, too.
MAP_TABLE = "dm/table"
# Exists for each interrupt vector; the text lists the vectors that are exempt from coalescing.
EXEMPT_FEATURE = 0x09
# A page of an opened adapter's firmware, read like a file of its SCSI host (``act.firmware``).
FIRMWARE_FILE = "firmware/firmware_coalescing"

# Counts commands that ended without good status, including full queues (drivers/scsi/scsi_lib.c:
# scsi_complete).
ERROR_COUNTER = "device/ioerr_cnt"
# The bytes of a logical block: the kernel refuses direct I/O of no multiple (block/fops.c).
BLOCK_SIZE_FILE = "queue/logical_block_size"
# The unit of sizes and counters, also for devices with larger sectors (linux/blk_types.h).
SECTOR_BYTES = 512
# The configuration space of a PCI function: bytes, like VPD pages.
PCI_CONFIG = "config"

# drivers/scsi/scsi_sysfs.c: sdev_states; drivers/nvme/host/core.c: nvme_sysfs_show_state
_HEALTHY = {"running", "live", "0"}
_SUSPENDED = "dm/suspended"  # of a map, whose I/O waits until it is resumed: 0 or 1
# A disk's device has a state, or a host or a controller itself.
_STATES = ("device/state", "state", _SUSPENDED)
# The pattern of a file of each partition: the numbered directories of a disk.
PARTITIONS = "*/"
# holders/ and slaves/ lead to the queue/ of other devices; a feature is a command to the drive.
_MAY_HANG = ("queue/", "mq/", "holders/", "slaves/", PARTITIONS, FEATURE_PREFIX, FIRMWARE_FILE)
# Read for every LUN and never writable, so their modes need not be read (drivers/scsi/scsi_sysfs.c:
# sdev_rd_attr; block/genhd.c: DEVICE_ATTR; block/blk-mq-sysfs.c).
_READ_ONLY = frozenset(
    (
        *("size", "removable", "diskseq", "queue/zoned", "mq/0/nr_tags", "mq/0/cpu_list"),
        *("device/type", "device/ioerr_cnt", "device/preferred_path", "device/serial"),
        *("device/vendor", "device/model", "device/rev", "device/wwid", "device/access_state"),
        *("device/vpd_pg80", "device/vpd_pg83", "device/vpd_pg89", "device/vpd_pgb1"),
    )
)
# Exists for every queue. The read is refused if no policy throttles writeback, as on kernels that
# throttle only on request (block/blk-sysfs.c: queue_wb_lat_show).
_WRITEBACK = "queue/wbt_lat_usec"
_VANISHED_ERRNOS = {errno.ENOENT, errno.ENODEV, errno.ENXIO}
_ABSENT_ERRNOS = {errno.ENOENT, errno.ENOTDIR}
# Bytes per read. Few files have more, and Python preallocates buffers of this size.
_READ_BYTES = 448
_READ = os.O_RDONLY | os.O_CLOEXEC
_OPEN = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

# A disk's link to the device that it is on.
_DEVICE = "device/"
_Value = TypeVar("_Value")
_FLAGS = {"0": False, "1": True}
_absent_names: set[str] = set()

_WHY_UNREADABLE = dict.fromkeys((errno.EACCES, errno.EPERM), MissingText.NOT_ROOT)
_CAPABILITIES = 3 << 8  # Get Features: what may be done with the feature, instead of its value
_CHANGEABLE = 1 << 2
_EXEMPT_BIT = 1 << 16
_MAP_CONTROL, _DEVICE_NUMBER = "/dev/mapper/control", re.compile(r"\b\d+:\d+\b")
# linux/dm-ioctl.h: struct dm_ioctl, DM_TABLE_STATUS, DM_STATUS_TABLE_FLAG and DM_NOFLUSH_FLAG
_MAP_REQUEST, _TABLE_STATUS = struct.Struct("=3I3Ii3IQ128s129s7x"), 0xC138FD0C
_TABLE_FLAGS, _TABLE_BYTES = 1 << 4 | 1 << 11, 1 << 16
_ONCS, _SELECTS = 520, 1 << 4  # Identify Controller: byte, and bit for the Select field


def read_attributes(
    sysfs_dir: str, attributes: Sequence[str], *, instead: Missing | None = None
) -> Attributes:
    """Read the attributes below one device's directory, without a deadline.

    ``queue/iosched/*`` matches every file of that directory, ``mq/`` returns the names in it,
    blank-separated, and ``mq/*/cpu_list`` matches that file in each of them. ``*/`` at the
    beginning stands for each partition. ``feature/08`` is a feature of an NVMe controller. If the
    device's state shows that its queue would not answer, ``queue/``, ``mq/`` and ``feature/`` are
    ``Missing(UNREADABLE)`` with the state as text. They are not read either if the caller gives a
    value ``instead``. A pattern whose directory was not read keeps its own name.
    """
    # One descriptor for all files: otherwise, a device replaced during the read under the same name
    # would give a mixture of two devices.
    try:
        directory = os.open(sysfs_dir, _OPEN)
    except OSError as error:
        # The device may be removed.
        reason = Reason.VANISHED if error.errno in _VANISHED_ERRNOS else Reason.UNREADABLE
        return dict.fromkeys(attributes, Missing(reason, error.errno))
    try:
        behind, safe, queue = _split(tuple(attributes))
        values: Attributes = {}
        if behind:
            _add_files_behind(values, directory, behind)
        for name in safe:
            _add_values(values, directory, name)
        if queue:
            instead = instead or _check_health(directory, values)
            for name in queue:
                if instead:
                    values[name] = instead
                else:
                    _add_values(values, directory, name)
    finally:
        os.close(directory)
    # ENOENT for a file means "not offered" or "device gone". A second check of the directory
    # decides.
    if os.access(sysfs_dir, os.F_OK):
        return values
    for name, value in values.items():
        # Only errors of a removed device: a deadline or a refusal is not changed.
        if isinstance(value, Missing) and value.errno in _VANISHED_ERRNOS:
            values[name] = Missing(Reason.VANISHED, value.errno)
    return values


def reread_attribute(sysfs_dir: str, name: str) -> str | Missing:
    """Read the text of one attribute of a device that has just answered, without its state.

    An ``ABSENT`` attribute may have vanished with the device.
    """
    if name.startswith(FEATURE_PREFIX):
        value = read_attributes(sysfs_dir, (name,))[name]
    elif name == FIRMWARE_FILE:
        value = _read_page(sysfs_dir, header=False)
    else:
        value = _read_file(None, name, f"{sysfs_dir}/{name}")
    return value if isinstance(value, Missing) else value.text


@lru_cache(maxsize=64)
def _split(attributes: tuple[str, ...]) -> tuple[list[str], list[str], list[str]]:
    """Return the files behind a disk's link, the other safe reads, and the reads that may hang."""
    behind: list[str] = []
    safe: list[str] = []
    queue: list[str] = []
    for name in attributes:
        if name.startswith(_MAY_HANG):
            queue.append(name)
        elif name.startswith(_DEVICE) and _is_file(name):
            behind.append(name)
        else:
            safe.append(name)
    return behind, safe, queue


@lru_cache(maxsize=256)  # thousands of LUNs have the same names
def _is_file(name: str) -> bool:
    """Return whether the name is of one file, not of several, of a directory or of an answer."""
    is_answer = name.startswith(FEATURE_PREFIX) or name in (FIRMWARE_FILE, MAP_TABLE)
    return not is_answer and "*" not in name and not name.endswith("/")


def _check_health(directory: int, values: Attributes) -> Missing | None:
    for name in _STATES:
        state = values.get(name) or _read_file(directory, name)
        if isinstance(state, Attribute):
            if state.text in _HEALTHY:
                return None
            text = "suspended" if name == _SUSPENDED else state.text
            return Missing(Reason.UNREADABLE, text=MissingText.DEVICE_STATE.format(text))
    return None


def _add_values(values: Attributes, directory: int, name: str) -> None:
    """Read a file or a feature, the names in a directory, or all files that a pattern matches."""
    if _is_file(name):
        values[name] = _read_file(directory, name)
    elif name.startswith(PARTITIONS):
        names = _list_names(directory, ".")
        for entry in names if isinstance(names, list) else ():
            if entry[-1:].isdecimal():
                _add_values(values, directory, entry + name[1:])
    elif "*" in name:
        start, _, leaf = name.partition("*")
        folder, _, prefix = start.rpartition("/")
        names = _list_names(directory, folder)
        if isinstance(names, list):
            # Numbered directories are in the order of their numbers.
            for entry in sorted(names, key=lambda entry: (len(entry), entry)) if leaf else names:
                if entry.startswith(prefix):
                    path = f"{folder}/{entry}{leaf}"
                    values[path] = _read_file(directory, path)
    elif name.endswith("/"):
        names = _list_names(directory, name)
        values[name] = Attribute(" ".join(names), False) if isinstance(names, list) else names
    elif name.startswith(FEATURE_PREFIX):
        values[name] = _read_feature(directory, name)
    elif name == FIRMWARE_FILE:
        values[name] = _read_page(os.readlink(f"/proc/self/fd/{directory}"))
    else:
        values[name] = _read_map_table(directory)


def _add_files_behind(values: Attributes, directory: int, names: list[str]) -> None:
    """Read the files behind a disk's long link by resolving it once, not for each file."""
    try:
        with close_on_exit(os.open(_DEVICE, _OPEN, dir_fd=directory)) as device:
            for name in names:
                values[name] = _read_file(device, name, name[len(_DEVICE) :])
    except OSError as error:
        values.update(dict.fromkeys(names, _convert_error(error)))


def _list_names(directory: int, folder: str) -> list[str] | Missing:
    try:
        with close_on_exit(os.open(folder, _READ | os.O_DIRECTORY, dir_fd=directory)) as descriptor:
            return sorted(os.listdir(descriptor))
    except OSError as error:
        return _convert_error(error)


def _read_file(directory: int | None, name: str, path: str = "") -> Attribute | Missing:
    """Return a file of the directory, by its ``path`` if ``name`` is below another directory."""
    path = path or name
    # An exception costs more than a check, so files that the last device lacked are checked first.
    if name in _absent_names:
        if not os.access(path, os.F_OK, dir_fd=directory):
            return ABSENT
        _absent_names.remove(name)
    try:
        file = os.open(path, _READ, dir_fd=directory)
    except OSError as error:
        missing = _convert_error(error)
        if missing is ABSENT:
            _absent_names.add(name)
        return missing
    try:
        writable = name not in _READ_ONLY and bool(os.fstat(file).st_mode & 0o222)
        data = chunk = os.read(file, _READ_BYTES)
        while len(chunk) == _READ_BYTES:  # the size from stat is useless: for a VPD page it is 0
            chunk = os.read(file, _READ_BYTES)
            data += chunk
    except OSError as error:
        is_unused = name == _WRITEBACK and error.errno == errno.EINVAL
        return ABSENT if is_unused else _convert_error(error)
    finally:
        os.close(file)
    if "/vpd_pg" in name or name == PCI_CONFIG:
        return Attribute(data.hex(), writable)
    return Attribute(_decode_text(data), writable)


def _decode_text(data: bytes) -> str:
    """Decode names from the kernel. They may hold any byte, but JSON allows no lone surrogates."""
    return data.decode("utf-8", "backslashreplace").strip()


def _convert_error(error: OSError) -> Missing:
    if error.errno in _ABSENT_ERRNOS:
        return ABSENT
    return Missing(Reason.UNREADABLE, error.errno)


def read_text(path: str) -> str:
    """Return the text of a file, or an empty text if it cannot be read."""
    return read_bytes(path).decode(errors="backslashreplace")


def read_bytes(path: str) -> bytes:
    """Return the content of a file, or no bytes if it cannot be read."""
    data = b""
    try:  # a file object takes a fifth longer, and thousands of files are read so
        file = os.open(path, _READ)
        try:
            data = chunk = os.read(file, 1 << 16)
            # A file below /proc may return a page at a time. Elsewhere, a short read is the last.
            while len(chunk) == 1 << 16 or (chunk and path.startswith("/proc/")):
                chunk = os.read(file, 1 << 16)
                data += chunk
        finally:
            os.close(file)
    except OSError:
        pass
    return data


def get_text(attributes: AnyAttributes, name: str) -> str | Missing:
    """Return the attribute's text; an empty text is a value too."""
    value = attributes.get(name, ABSENT)
    return value.text if isinstance(value, Attribute) else value


def get_word(attributes: Attributes, name: str) -> str:
    """Return the attribute's text, or an empty text if it is missing."""
    value = attributes.get(name)
    return value.text if isinstance(value, Attribute) else ""


def parse_text(
    values: AnyAttributes, name: str, convert: Callable[[str], _Value]
) -> _Value | Missing:
    """Return the converted text of an attribute, or why there is no value."""
    value = values.get(name, ABSENT)
    if isinstance(value, Missing):
        return value
    try:
        return convert(value.text)
    except (ValueError, LookupError):
        return make_unparsable(value.text)


def parse_integer(attributes: AnyAttributes, name: str, base: int = 10) -> int | Missing:
    """Return the attribute as a number in ``base`` (0: according to its prefix)."""
    return parse_text(attributes, name, int if base == 10 else partial(int, base=base))


def parse_flag(attributes: Attributes, name: str) -> bool | Missing:
    """Return the attribute as 0 or 1."""
    return parse_text(attributes, name, _FLAGS.__getitem__)


def parse_leading_number(attributes: Attributes, name: str) -> float | Missing:
    """Return the number before the unit, as in ``8.0 GT/s PCIe``."""
    return parse_text(attributes, name, lambda text: float(text.split()[0]))


def count_words(attributes: Attributes, name: str) -> int | Missing:
    """Return the number of words in the attribute, such as the names in a directory."""
    return parse_text(attributes, name, lambda text: len(text.split()))


def parse_error_count(attributes: AnyAttributes) -> int | None:
    """Return ``ERROR_COUNTER``, which is hexadecimal (scsi_sysfs.c: show_iostat), or None."""
    count = parse_integer(attributes, ERROR_COUNTER, 16)
    return None if isinstance(count, Missing) else count


def get_bytes(attributes: Attributes, name: str) -> bytes:
    """Return the bytes of a VPD page or of the configuration space, or none if it is missing."""
    value = attributes.get(name)
    return bytes.fromhex(value.text) if isinstance(value, Attribute) else b""


def make_unparsable(value: str) -> Missing:
    """Return the ``Missing`` for a text that was read but makes no sense."""
    return Missing(Reason.UNPARSABLE, text=value)


def _read_feature(directory: int, name: str) -> Attribute | Missing:
    number = int(name.removeprefix(FEATURE_PREFIX), 16)
    try:
        path = find_device_node(directory)
        if number == EXEMPT_FEATURE:
            exempt_flags = read_exemptions(path)
            if isinstance(exempt_flags, nvme.Answer):
                return _convert_answer(exempt_flags)
            text = names.join_cpus(compress(count(), exempt_flags)) or "none"
        else:
            answer = nvme.submit(path, nvme.GET_FEATURES, cdw10=number)
            if answer.status:
                return _convert_answer(answer)
            text = str(answer.result)
        return Attribute(text, _is_changeable(path, number))
    except OSError as error:
        reason = Reason.ABSENT if error.errno in _VANISHED_ERRNOS else Reason.UNREADABLE
        return Missing(reason, error.errno, _WHY_UNREADABLE.get(error.errno or 0))


def _read_page(sysfs_dir: str, *, header: bool = True) -> Attribute | Missing:
    from hbatune import mpi  # few sites open an adapter's firmware

    try:
        return Attribute(mpi.read_page(sysfs_dir, header=header), True)
    except OSError as error:  # EAGAIN and EBUSY too: during a reset or a request
        why = MissingText.DRIVER_REFUSED.format(error.strerror) if error.errno else str(error)
        return Missing(Reason.UNREADABLE, error.errno, why)


def _read_map_table(directory: int) -> Attribute | Missing:
    """Return the type and parameters of a map with its disks' names; only root can read them."""
    uuid = _read_file(directory, "dm/uuid")
    if isinstance(uuid, Missing):
        return uuid
    sizes, name = (_TABLE_BYTES, _MAP_REQUEST.size, 0, 0), (b"", uuid.text.encode())
    head = _MAP_REQUEST.pack(4, 0, 0, *sizes, _TABLE_FLAGS, 0, 0, 0, *name)
    request = bytearray(head.ljust(_TABLE_BYTES, b"\0"))
    try:
        with close_on_exit(os.open(_MAP_CONTROL, _READ)) as control:
            fcntl.ioctl(control, _TABLE_STATUS, request)
        # struct dm_target_spec: the type is at byte 24, the parameters follow at byte 40.
        target = bytes(request[struct.unpack_from("=I", request, 16)[0] :])
        text = _decode_text(target[24:40].rstrip(b"\0") + b" " + target[40:].split(b"\0", 1)[0])
        node = "/sys/dev/block"
        named = _DEVICE_NUMBER.sub(lambda n: os.path.basename(os.readlink(f"{node}/{n[0]}")), text)
        return Attribute(named, False)
    except OSError as error:
        reason = Reason.ABSENT if error.errno in _VANISHED_ERRNOS else Reason.UNREADABLE
        return Missing(reason, error.errno)


def read_exemptions(path: str) -> list[bool] | nvme.Answer:
    """Return whether each vector, starting at 0, is exempt from coalescing, or a refusal.

    A controller answers for its vectors and rejects the next one as an invalid field. OSError if
    the kernel refuses.
    """
    exempt: list[bool] = []
    while True:
        answer = nvme.submit(path, nvme.GET_FEATURES, cdw10=EXEMPT_FEATURE, cdw11=len(exempt))
        if answer.status:
            return exempt if exempt and answer.code == nvme.INVALID_FIELD else answer
        # A controller that answers for any number gives meaningless answers.
        if len(exempt) == names.MAX_CPUS:
            return nvme.Answer(nvme.INVALID_FIELD)
        exempt.append(bool(answer.result & _EXEMPT_BIT))


def find_device_node(directory: int) -> str:
    """Return the device node of the controller whose sysfs directory is open."""
    with close_on_exit(os.open("dev", _READ, dir_fd=directory)) as file:
        number = os.read(file, 32).decode("ascii").strip()
    return nvme.find_node(os.path.basename(os.readlink(f"/proc/self/fd/{directory}")), number)


def _is_changeable(path: str, number: int) -> bool:
    """Return whether the feature can be changed, or True if only a write can show it."""
    data = array.array("B", bytes(4096))
    if nvme.submit(path, nvme.IDENTIFY, cdw10=1, data=data).status:
        return True
    if not int.from_bytes(data[_ONCS : _ONCS + 2].tobytes(), "little") & _SELECTS:
        return True
    answer = nvme.submit(path, nvme.GET_FEATURES, cdw10=number | _CAPABILITIES)
    return bool(answer.status) or bool(answer.result & _CHANGEABLE)


def _convert_answer(answer: nvme.Answer) -> Missing:
    absent = answer.code == nvme.INVALID_FIELD
    return Missing(Reason.ABSENT if absent else Reason.UNREADABLE, text=answer.said)
