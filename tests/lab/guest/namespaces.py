"""A second namespace for an NVMe controller, attached while a test needs it (topology.py)."""

import array
import fcntl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest.kit import settle, wait_a_moment
from tests.lab.guest.values import BLOCK, nvme_queues

_CONTROLLERS = Path("/sys/class/nvme")
_SUBSYSTEM = "pair"
_NAMESPACE = 2
_ADMIN_COMMAND = 0xC0484E41  # include/uapi/linux/nvme_ioctl.h: NVME_IOCTL_ADMIN_CMD
_COMMAND = struct.Struct("=BBHIIIQQIIIIIIIIII")
_NAMESPACE_ATTACHMENT, _ATTACH, _DETACH = 0x15, 0, 1


@contextmanager
def second_namespace() -> Iterator[tuple[str, str]]:
    """Attach a second namespace to a controller, and yield the disks of the first and of this."""
    [controller] = [path.name for path in _CONTROLLERS.iterdir() if _is_first(path)]
    before = set(nvme_queues())
    _send(controller, _ATTACH)
    try:
        while not (new := set(nvme_queues()) - before):
            wait_a_moment()
        settle()
        [first], [second] = [disk for disk in before if _is_on(disk, controller)], new
        yield first, second
    finally:
        _send(controller, _DETACH)
        while set(nvme_queues()) != before:
            wait_a_moment()
        settle()


def _is_first(controller: Path) -> bool:
    is_pair = (controller / "subsysnqn").read_text().strip().endswith(f":{_SUBSYSTEM}")
    return is_pair and (controller / "cntlid").read_text().strip() == "0"


def _is_on(disk: str, controller: str) -> bool:
    return (BLOCK / disk / "device").resolve().name == controller


def _send(controller: str, selection: int) -> None:
    """Attach the namespace to the controller with id 0, or detach it."""
    controllers = array.array("H", [1, *[0] * 2047])
    address, length = controllers.buffer_info()[0], len(controllers) * controllers.itemsize
    words = (_NAMESPACE, 0, 0, 0, address, 0, length, selection, *[0] * 7)
    command = bytearray(_COMMAND.pack(_NAMESPACE_ATTACHMENT, 0, 0, *words))
    with open(f"/dev/{controller}", "r+b", buffering=0) as node:
        status = fcntl.ioctl(node, _ADMIN_COMMAND, command, True)
    assert status == 0, f"the controller answers {status:#x}"
