"""Access to an NVMe controller's admin queue: Get Features, Set Features and Identify.

Only this module accesses it. ``include/uapi/linux/nvme_ioctl.h`` has the structure. The ioctl needs
CAP_SYS_ADMIN. It raises an errno if the kernel refuses, and returns the controller's status if the
controller refuses. The Save bit, which would keep a feature in the drive across resets, is never
set.
"""

import array
import fcntl
import os
import stat
import struct
from enum import StrEnum

from msgspec import Struct

GET_FEATURES = 0x0A
SET_FEATURES = 0x09
IDENTIFY = 0x06

_ADMIN_COMMAND = 0xC0484E41  # _IOWR('N', 0x41, struct nvme_admin_cmd)
_COMMAND = struct.Struct("=BBHIIIQQIIIIIIIIII")
_TIMEOUT_MS = 5000
"""Milliseconds after which the kernel aborts the command: below a worker's default deadline."""
_STATUS = 0x7FF
"""Mask of status code and type; higher bits request a retry (NVMe base specification)."""

INVALID_FIELD = 0x002


class StatusText(StrEnum):
    """The text of a status (NVMe base specification), which snapshots and journals store."""

    INVALID_FIELD = "the controller does not know this feature or value"
    NOT_SAVEABLE = "the controller cannot save this feature"
    NOT_CHANGEABLE = "the controller does not let this feature be changed"
    OTHER = "the controller refused"


_TEXTS = {
    INVALID_FIELD: StatusText.INVALID_FIELD,
    0x10D: StatusText.NOT_SAVEABLE,
    0x10E: StatusText.NOT_CHANGEABLE,
}


class Answer(Struct, frozen=True):
    """The answer of a controller: its status, 0 for success, and the result."""

    status: int
    result: int = 0

    @property
    def code(self) -> int:
        """The status without the retry bits."""
        return self.status & _STATUS

    @property
    def said(self) -> str:
        """The text of the status."""
        return f"{_TEXTS.get(self.code, StatusText.OTHER)} (status {self.code:#05x})"


def find_node(name: str, number: str) -> str:
    """Return the device node of the controller; OSError if it is missing or another device's."""
    path = f"/dev/{name}"
    status = os.stat(path)
    # A name in /dev may be stale or created manually. The number determines which controller
    # receives commands.
    device = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if device != number or not stat.S_ISCHR(status.st_mode):
        raise FileNotFoundError(2, "the node is not this controller's", path)
    return path


def submit(
    path: str, opcode: int, *, cdw10: int, cdw11: int = 0, data: "array.array[int] | None" = None
) -> Answer:
    """Send an admin command, which may fill ``data``; return the answer. Raises OSError."""
    address, length = (0, 0) if data is None else (data.buffer_info()[0], len(data) * data.itemsize)
    words = (0, 0, 0, 0, 0, 0, address, 0, length, cdw10, cdw11, 0, 0, 0, 0, _TIMEOUT_MS, 0)
    command = bytearray(_COMMAND.pack(opcode, *words))
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # Positive: the controller's status, not an errno. True copies the result back into
        # ``command``.
        status = fcntl.ioctl(descriptor, _ADMIN_COMMAND, command, True)
    finally:
        os.close(descriptor)
    return Answer(status, _COMMAND.unpack(command)[-1])
