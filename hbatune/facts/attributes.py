"""Reads the sysfs attributes of one device as typed values, or as ``Missing`` with the reason.

Reads of ``queue/*`` and ``mq/*`` wait, uninterruptibly, behind a frozen queue (block/blk-sysfs.c:
queue_attr_show takes q->sysfs_lock); ``device/*`` still answers. So the device's state is read
first. Nothing here has a deadline: ``survey`` reads many devices, with deadlines.

Features of NVMe controllers are read as if they were files of the controller's directory.
``feature/08`` has the number that Get Features answers for the feature 08h, and is writable if
the controller reports the feature as changeable. ``feature/09``, which each interrupt vector has
for itself, has the vectors that coalescing passes over.
"""

import array
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

from hbatune import nvme
from hbatune.facts import names
from hbatune.facts.model import Attribute, Missing, Reason

Attributes = dict[str, Attribute | Missing]

ABSENT = Missing(Reason.ABSENT, errno.ENOENT)
FEATURE = "feature/"
EXEMPT = 0x09

ERRORS = "device/ioerr_cnt"
"""Counts commands that ended without good status, full queues among them
(drivers/scsi/scsi_lib.c: scsi_complete)."""

CONFIG = "config"
"""The configuration space of a PCI function: bytes, as VPD pages are."""

# drivers/scsi/scsi_sysfs.c: sdev_states; drivers/nvme/host/core.c: nvme_sysfs_show_state
_HEALTHY = {"running", "live"}
_STATES = ("device/state", "state")  # a disk's device has it, a host or a controller is one
# holders/ and slaves/ lead on to the queue/ of other devices; a feature is a command to the drive.
_MAY_HANG = ("queue/", "mq/", "holders/", "slaves/", FEATURE)
_SUSPENDED = "dm/suspended"
# Read of every LUN, and nobody's to write, so that their modes need not be asked for
# (drivers/scsi/scsi_sysfs.c: sdev_rd_attr; block/genhd.c: DEVICE_ATTR; block/blk-mq-sysfs.c).
_READ_ONLY = frozenset(
    (
        *("size", "removable", "diskseq", "queue/zoned", "mq/0/nr_tags", "device/type"),
        *("device/vendor", "device/model", "device/rev", "device/wwid", "device/access_state"),
        *(f"device/vpd_pg{page}" for page in ("80", "83", "89", "b1")),
    )
)
# There with every queue, and refused where nothing holds writeback back, as with kernels that do so
# only where somebody asks for it (block/blk-sysfs.c: queue_wb_lat_show).
_WRITEBACK = "queue/wbt_lat_usec"
_GONE = {errno.ENOENT, errno.ENODEV, errno.ENXIO}
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR}
_PART = 448
"""Bytes that are read at once. Few files have more, and Python keeps room for so few ready."""
_READ = os.O_RDONLY | os.O_CLOEXEC
_OPEN = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

_DEVICE = "device/"
"""A disk's link to the device that it is on."""

_Adder = Callable[[Attributes, int, str], None]
_Item = tuple[str, _Adder]
_lacked: set[str] = set()

_WHY_UNREADABLE = dict.fromkeys((errno.EACCES, errno.EPERM), "only root may ask the controller")
_CURRENT, _CAPABILITIES = 0, 3
_CHANGEABLE = 1 << 2
_EXEMPT_BIT = 1 << 16
_ONCS, _SELECTS = 520, 1 << 4  # Identify Controller: byte, and bit for the Select field


def read(
    sysfs_dir: str, attributes: Sequence[str], *, instead: Missing | None = None
) -> Attributes:
    """Read the attributes below one device's directory, without a deadline.

    ``queue/iosched/*`` stands for every file of that directory, ``mq/`` for the names in it,
    blank-separated, and ``mq/*/cpu_list`` for that file in each of them. ``feature/08`` is a
    feature of an NVMe controller. If the device's state says that its queue would not answer,
    ``queue/``, ``mq/`` and ``feature/`` are not read and are ``Missing(UNREADABLE)`` with the
    state as text; nor are they read if the caller gives a value ``instead``. A pattern whose
    folder was not read keeps its own name.
    """
    # One descriptor for all files: a device that is replaced meanwhile under the same name would
    # otherwise give a mixture of two devices.
    try:
        directory = os.open(sysfs_dir, _OPEN)
    except OSError as error:
        return dict.fromkeys(attributes, _opened_not(error))
    try:
        safe, queue = _split(tuple(attributes))
        found: Attributes = {}
        for name, add in safe:
            add(found, directory, name)
        if queue:
            instead = instead or _unhealthy(directory, found)
            for name, add in queue:
                if instead:
                    found[name] = instead
                else:
                    add(found, directory, name)
    finally:
        os.close(directory)
    # ENOENT of a file may mean "not offered" or "device gone": only a second look tells them apart.
    return found if os.access(sysfs_dir, os.F_OK) else {name: _gone(found[name]) for name in found}


def read_again(sysfs_dir: str, name: str) -> str | Missing:
    """Read the text of one attribute of a device that has just answered.

    Its state is not read again. An ``ABSENT`` attribute may have vanished with the device.
    """
    if name.startswith(FEATURE):
        found = read(sysfs_dir, (name,))[name]
        return found if isinstance(found, Missing) else found.text
    try:
        file = os.open(f"{sysfs_dir}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return _missing(error)
    try:
        return _text(_content(file))
    except OSError as error:
        return _unread(name, error)
    finally:
        os.close(file)


@lru_cache(maxsize=64)
def _split(attributes: tuple[str, ...]) -> tuple[list[_Item], list[_Item]]:
    """Split attributes into those that always answer and those whose read may hang."""
    items = [(name, _adder(name)) for name in attributes]
    queue = [item for item in items if item[0].startswith(_MAY_HANG)]
    behind = [name for name, add in items if name.startswith(_DEVICE) and add is _add_file]
    rest = [item for item in items if item not in queue and item[0] not in behind]
    first = [(_DEVICE, partial(_add_behind, tuple(behind)))] if behind else []
    return [*first, *rest], queue


def _adder(name: str) -> _Adder:
    """Return what reads this attribute, or all that this pattern stands for."""
    if name.startswith(FEATURE):
        return _add_feature
    if "/*/" in name:
        return _add_each
    if name.endswith("/*"):
        return _add_files
    return _add_names if name.endswith("/") else _add_file


def _unhealthy(directory: int, found: Attributes) -> Missing | None:
    for name in _STATES:
        state = found.get(name) or _file(directory, name)
        if isinstance(state, Attribute):
            return None if state.text in _HEALTHY else _refused(state.text)
    # Of a map: its I/O waits until it is resumed.
    suspended = found.get(_SUSPENDED) or _file(directory, _SUSPENDED)
    if isinstance(suspended, Attribute) and suspended.text == "1":
        return _refused("suspended")
    return None


def _refused(state: str) -> Missing:
    return Missing(Reason.UNREADABLE, text=f"device state is {state}")


def _add_feature(found: Attributes, directory: int, name: str) -> None:
    found[name] = nvme_feature(directory, name)


def _add_each(found: Attributes, directory: int, name: str) -> None:
    folder, _, leaf = name.partition("*/")
    names = _names(directory, folder)
    if isinstance(names, list):
        for entry in sorted(names, key=lambda entry: (len(entry), entry)):
            _add_file(found, directory, f"{folder}{entry}/{leaf}")


def _add_files(found: Attributes, directory: int, name: str) -> None:
    folder = name[:-1]
    names = _names(directory, folder)
    if isinstance(names, list):
        for entry in names:
            _add_file(found, directory, folder + entry)


def _add_names(found: Attributes, directory: int, name: str) -> None:
    names = _names(directory, name)
    found[name] = Attribute(" ".join(names), False) if isinstance(names, list) else names


def _add_file(found: Attributes, directory: int, name: str) -> None:
    found[name] = _file(directory, name)


def _add_behind(names: tuple[str, ...], found: Attributes, directory: int, link: str) -> None:
    """Read what is behind a link whose way is long: once, not for each of the files."""
    try:
        device = os.open(link, _OPEN, dir_fd=directory)
    except OSError as error:
        found.update(dict.fromkeys(names, _missing(error)))
        return
    try:
        for name in names:
            found[name] = _file(device, name, name[len(link) :])
    finally:
        os.close(device)


def _names(directory: int, folder: str) -> list[str] | Missing:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        return _missing(error)
    try:
        return sorted(os.listdir(descriptor))
    except OSError as error:
        return _missing(error)
    finally:
        os.close(descriptor)


def _file(directory: int, name: str, leaf: str = "") -> Attribute | Missing:
    """Return a file of the directory, by its ``leaf`` if ``name`` is below another directory."""
    path = leaf or name
    # An exception costs more than a question, so what the last device lacked is asked for first.
    if name in _lacked:
        if not os.access(path, os.F_OK, dir_fd=directory):
            return ABSENT
        _lacked.remove(name)
    try:
        file = os.open(path, _READ, dir_fd=directory)
    except OSError as error:
        missing = _missing(error)
        if missing is ABSENT:
            _lacked.add(name)
        return missing
    try:
        writable = name not in _READ_ONLY and bool(os.fstat(file).st_mode & 0o222)
        data = _content(file)
    except OSError as error:
        return _unread(name, error)
    finally:
        os.close(file)
    if "/vpd_pg" in name or name == CONFIG:
        return Attribute(data.hex(), writable)
    return Attribute(_text(data), writable)


def _content(file: int) -> bytes:
    """Read to the end; the size that stat reports is of no use: for a VPD page it is 0."""
    data = chunk = os.read(file, _PART)
    while len(chunk) == _PART:
        chunk = os.read(file, _PART)
        data += chunk
    return data


def _text(data: bytes) -> str:
    """Decode names that come from the kernel: they may hold any byte, JSON no lone surrogates."""
    return data.decode("utf-8", "backslashreplace").strip()


def _unread(name: str, error: OSError) -> Missing:
    """Return what it means that a file which is there could not be read."""
    return ABSENT if name == _WRITEBACK and error.errno == errno.EINVAL else _missing(error)


def _missing(error: OSError) -> Missing:
    if error.errno in _NOT_THERE:
        return ABSENT
    return Missing(Reason.UNREADABLE, error.errno)


def _opened_not(error: OSError) -> Missing:
    reason = Reason.VANISHED if error.errno in _GONE else Reason.UNREADABLE
    return Missing(reason, error.errno)


def _gone(value: Attribute | Missing) -> Attribute | Missing:
    # Only errors of a device that is gone: a deadline or a refusal stays what it was.
    if isinstance(value, Missing) and value.errno in _GONE:
        return Missing(Reason.VANISHED, value.errno)
    return value


def text(found: Mapping[str, Attribute | Missing], name: str) -> str | Missing:
    """Return the attribute's text; an empty one is a value too."""
    value = found.get(name, ABSENT)
    return value.text if isinstance(value, Attribute) else value


def word(found: Attributes, name: str) -> str:
    """Return the attribute's text, empty if there is none."""
    value = found.get(name)
    return value.text if isinstance(value, Attribute) else ""


def integer(found: Mapping[str, Attribute | Missing], name: str, base: int = 10) -> int | Missing:
    """Return the attribute as a number in ``base`` (0: as its prefix says)."""
    value = text(found, name)
    if isinstance(value, Missing):
        return value
    try:
        return int(value, base)
    except ValueError:
        return unparsable(value)


def errors(found: Mapping[str, Attribute | Missing]) -> int | None:
    """Return what ``ERRORS`` has counted, None where that is not known.

    The file has a hexadecimal number (drivers/scsi/scsi_sysfs.c: show_iostat).
    """
    count = integer(found, ERRORS, 16)
    return None if isinstance(count, Missing) else count


def flag(found: Attributes, name: str) -> bool | Missing:
    """Return the attribute as 0 or 1."""
    value = text(found, name)
    if isinstance(value, Missing):
        return value
    return value == "1" if value in ("0", "1") else unparsable(value)


def leading_number(found: Attributes, name: str) -> float | Missing:
    """Return the number before the unit, as in ``8.0 GT/s PCIe``."""
    value = text(found, name)
    if isinstance(value, Missing):
        return value
    try:
        return float(value.split()[0])
    except (ValueError, IndexError):
        return unparsable(value)


def binary(found: Attributes, name: str) -> bytes:
    """Return the bytes of a VPD page or of the configuration space, none if there are none."""
    value = found.get(name)
    return bytes.fromhex(value.text) if isinstance(value, Attribute) else b""


def unparsable(value: str) -> Missing:
    """Return the ``Missing`` for a text that was read and makes no sense."""
    return Missing(Reason.UNPARSABLE, text=value)


def nvme_feature(directory: int, name: str) -> Attribute | Missing:
    """Return the feature of the controller whose sysfs directory is open."""
    number = int(name.removeprefix(FEATURE), 16)
    try:
        path = node_of(directory)
        if number == EXEMPT:
            return _exempt(path)
        answer = nvme.submit(path, nvme.GET_FEATURES, cdw10=_select_field(number, _CURRENT))
        if answer.status:
            return _refused_by_controller(answer)
        return Attribute(str(answer.result), _changeable(path, number))
    except OSError as error:
        reason = Reason.ABSENT if error.errno in _GONE else Reason.UNREADABLE
        return Missing(reason, error.errno, _WHY_UNREADABLE.get(error.errno or 0))


def exemptions(path: str) -> list[bool] | nvme.Answer:
    """Return of each vector, from 0 on, whether coalescing passes over it, or a refusal.

    A controller answers for its vectors and calls the next one an invalid field. OSError if
    the kernel refuses.
    """
    found: list[bool] = []
    while True:
        answer = nvme.submit(path, nvme.GET_FEATURES, cdw10=EXEMPT, cdw11=len(found))
        if answer.status:
            return found if found and answer.code == nvme.INVALID_FIELD else answer
        if len(found) == names.MAX_CPUS:  # it answers for any number, so its answers mean nothing
            return nvme.Answer(nvme.INVALID_FIELD)
        found.append(bool(answer.result & _EXEMPT_BIT))


def _exempt(path: str) -> Attribute | Missing:
    found = exemptions(path)
    if isinstance(found, nvme.Answer):
        return _refused_by_controller(found)
    vectors = (number for number, exempt in enumerate(found) if exempt)
    return Attribute(names.join_cpus(vectors) or "none", _changeable(path, EXEMPT))


def node_of(directory: int) -> str:
    """Return the device node of the controller whose sysfs directory is open."""
    file = os.open("dev", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        number = os.read(file, 32).decode("ascii").strip()
    finally:
        os.close(file)
    return nvme.node(os.path.basename(os.readlink(f"/proc/self/fd/{directory}")), number)


def _changeable(path: str, number: int) -> bool:
    """Whether the feature can be changed; True if the controller does not report it.

    Then only a write can show it.
    """
    data = array.array("B", bytes(4096))
    if nvme.submit(path, nvme.IDENTIFY, cdw10=1, data=data).status:
        return True
    if not int.from_bytes(data[_ONCS : _ONCS + 2].tobytes(), "little") & _SELECTS:
        return True
    answer = nvme.submit(path, nvme.GET_FEATURES, cdw10=_select_field(number, _CAPABILITIES))
    return bool(answer.status) or bool(answer.result & _CHANGEABLE)


def _select_field(number: int, select: int) -> int:
    return number | select << 8


def _refused_by_controller(answer: nvme.Answer) -> Missing:
    absent = answer.code == nvme.INVALID_FIELD
    return Missing(Reason.ABSENT if absent else Reason.UNREADABLE, text=answer.said)
