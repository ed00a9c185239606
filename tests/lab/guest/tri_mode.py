"""The lab's emulated card: its disks by their kind, and a monitor to break, plug and change things.

Which card that is, an eHBA 9600, an HBA 9400 or a 57B4, the machine's topology says.
"""

import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.lab.guest.kit import scsi_disks, settle, wait_a_moment
from tests.lab.guest.values import cat

DRIVERS = ("mpi3mr", "mpt3sas", "ipr")
OWN = 32
"""The depth that mpi3mr takes where the firmware names none."""
KINDS = {
    "SEAGATE": ("sas", "ssd"),
    "ATA": ("sata", "hdd"),
    "NVMe": ("nvme", "nvme"),
    "BROADCOM": ("volume", "hdd"),
}
"""Protocol and medium of a tri-mode card's drives, by vendor."""
_PORT = Path("/dev/virtio-ports/monitor")
_CARD = "/machine/peripheral/hba"
_PROMPT = b"(qemu) "
_SILENCE_SECONDS = 60


class MonitorError(Exception):
    """QEMU did not do what it was told."""


class Card:
    """The card, as somebody with a screwdriver sees it: QEMU's monitor."""

    def __enter__(self) -> Self:
        self._port = os.open(_PORT, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._port)

    def say(self, command: str) -> str:
        """Have QEMU carry out a command; return its answer. MonitorError where it complains."""
        while select.select([self._port], [], [], 0)[0]:
            os.read(self._port, 1 << 16)  # a prompt that nobody waited for
        os.write(self._port, f"{command}\n".encode())
        heard = b""
        while not (b"\n" in heard and heard.endswith(_PROMPT)):
            if not select.select([self._port], [], [], _SILENCE_SECONDS)[0]:
                raise MonitorError(f"{command}: no answer, only {heard!r}")
            heard += os.read(self._port, 1 << 16)
        answer = heard.partition(b"\n")[2].removesuffix(_PROMPT).decode(errors="replace").strip()
        if "Error" in answer or "unknown command" in answer:
            raise MonitorError(f"{command}: {answer}")
        return answer

    def set(self, name: str, value: object) -> None:
        """Change one of the properties that the card's README lists."""
        self.say(f"qom-set {_CARD} {name} {value}")

    def fail(self) -> None:
        """Have the firmware stop: the driver's watchdog resets the controller."""
        self.set("fault", "0x1234")

    def inform(self) -> None:
        """Have the firmware say of every drive that something about it has changed."""
        self.set("inform", "on")

    def pull(self, id: int) -> None:
        """Take out the drive with this SCSI id."""
        self.say(f"device_del d{id}")

    def plug(self, id: int, words: str) -> None:
        """Put in an empty drive with this SCSI id; ``words`` are more properties of it."""
        self.say(f"drive_add 0 if=none,id=empty{id},driver=null-co,size=64M,read-zeroes=on")
        self.say(f"device_add scsi-hd,bus=hba.0,id=d{id},scsi-id={id},drive=empty{id},{words}")


def driver() -> str:
    """Return the driver that the card has."""
    [driver_name] = [name for name in DRIVERS if Path("/sys/module", name).is_dir()]
    return driver_name


def disks() -> list[str]:
    """Return the card's disks."""
    return [disk for name in DRIVERS for disk in scsi_disks(name)]


def of(vendor: str) -> list[str]:
    """Return the card's disks of one vendor, which says of what kind they are."""
    return [disk for disk in disks() if cat(disk, "device/vendor") == vendor]


def depths() -> Mapping[str, int]:
    """Return the depth of each of the card's disks."""
    return {disk: int(cat(disk, "device/queue_depth")) for disk in disks()}


@contextmanager
def loaded(**options: object) -> Iterator[None]:
    """Have the driver loaded anew with these options, and afterwards as it was."""
    count, name = len(disks()), driver()
    _reload(name, count, *(f"{key}={value}" for key, value in options.items()))
    try:
        yield
    finally:
        _reload(name, count)


def _reload(name: str, count: int, *options: str) -> None:
    settle()  # udev may still have a disk open
    subprocess.run(["modprobe", "--remove", name], check=True)
    subprocess.run(["modprobe", name, *options], check=True)
    while len(disks()) < count:
        wait_a_moment()  # its firmware announces one after the other
    settle()


PAUSES = "--thinktime=20ms --thinktime_blocks=4"
"""About 200 reads a second. A rate would be caught up with after a reset, as fast as can be."""


@contextmanager
def busy(*names: str, rate: str = PAUSES) -> Iterator[None]:
    """Have reads on these disks all the time, so many that the machine has time for more."""
    files = ":".join(f"/dev/{name}" for name in names)
    job = ["--ioengine=libaio", "--direct=1", "--rw=randread", "--iodepth=64", "--time_based"]
    more = ["--runtime=900", "--continue_on_error=all", *rate.split()]
    words = ["fio", "--name=busy", f"--filename={files}", *job, *more]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as fio:
        try:
            yield
        finally:
            fio.terminate()
