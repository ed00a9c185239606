"""Features of NVMe controllers, read as if they were files of the controller's directory.

``feature/08`` has the number that Get Features answers for the feature 08h, and is writable if
the controller reports the feature as changeable. ``feature/09``, which each interrupt vector has
for itself, has the vectors that coalescing passes over.
"""

import array
import errno
import os

from hbatune import nvme
from hbatune.facts import cpulist
from hbatune.facts.model import Attribute, Missing, Reason

FEATURE = "feature/"

_GONE = frozenset({errno.ENOENT, errno.ENXIO, errno.ENODEV})
_WHY = dict.fromkeys((errno.EACCES, errno.EPERM), "only root may ask the controller")
_CURRENT, _CAPABILITIES = 0, 3
_CHANGEABLE = 1 << 2
EXEMPT = 0x09
_EXEMPT_BIT = 1 << 16
_ONCS, _SELECTS = 520, 1 << 4  # Identify Controller: byte, and bit for the Select field


def feature(directory: int, name: str) -> Attribute | Missing:
    """Return the feature of the controller whose sysfs directory is open."""
    number = int(name.removeprefix(FEATURE), 16)
    try:
        path = node_of(directory)
        if number == EXEMPT:
            return _exempt(path)
        answer = nvme.submit(path, nvme.GET_FEATURES, cdw10=_select(number, _CURRENT))
        if answer.status:
            return _refused(answer)
        return Attribute(str(answer.result), _changeable(path, number))
    except OSError as error:
        reason = Reason.ABSENT if error.errno in _GONE else Reason.UNREADABLE
        return Missing(reason, error.errno, _WHY.get(error.errno or 0))


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
        if len(found) == cpulist.MOST:  # it answers for any number, so its answers mean nothing
            return nvme.Answer(nvme.INVALID_FIELD)
        found.append(bool(answer.result & _EXEMPT_BIT))


def _exempt(path: str) -> Attribute | Missing:
    found = exemptions(path)
    if isinstance(found, nvme.Answer):
        return _refused(found)
    vectors = (number for number, exempt in enumerate(found) if exempt)
    return Attribute(cpulist.join(vectors) or "none", _changeable(path, EXEMPT))


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
    answer = nvme.submit(path, nvme.GET_FEATURES, cdw10=_select(number, _CAPABILITIES))
    return bool(answer.status) or bool(answer.result & _CHANGEABLE)


def _select(number: int, select: int) -> int:
    return number | select << 8


def _refused(answer: nvme.Answer) -> Missing:
    absent = answer.code == nvme.INVALID_FIELD
    return Missing(Reason.ABSENT if absent else Reason.UNREADABLE, text=answer.said)
