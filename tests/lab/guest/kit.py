"""What guest tests look at the machine with: plain files, no hbatune."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path

SYS = Path("/sys")
KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))
SCSI_DEBUG_MODEL = "scsi_debug"
SCSI_DEBUG = SYS / "bus/pseudo/drivers/scsi_debug"


def cat(path: Path | str) -> str:
    """Return what a file in sysfs says, without the newline; relative paths begin at /sys."""
    return (SYS / path).read_text().rstrip("\n")


def wait_a_moment() -> None:
    """Wait between two looks at something: a loop without a pause takes a CPU from all guests.

    The harness ends a test that waits too long.
    """
    time.sleep(0.02)


def settle() -> None:
    """Wait until udev has dealt with everything that the kernel announced."""
    subprocess.run(["udevadm", "settle"], check=True)


def disks() -> list[str]:
    """Return the kernel names of all whole disks, hidden NVMe paths included."""
    return sorted(path.name for path in (SYS / "block").iterdir())


def reload_rules() -> None:
    """Have udev read its rules again."""
    subprocess.run(["udevadm", "control", "--reload"], check=True)


def coldplug() -> None:
    """Have udev announce every adapter and disk, as an administrator may at any time.

    The coldplug of a boot has all other devices, too (test_initramfs.py).
    """
    subsystems = [f"--subsystem-match={name}" for name in ("pci", "scsi*", "nvme*", "block")]
    subprocess.run(["udevadm", "trigger", "--action=add", *subsystems], check=True)
    settle()


@contextmanager
def udev_paused() -> Iterator[None]:
    """Have udev keep all events for later."""
    subprocess.run(["udevadm", "control", "--stop-exec-queue"], check=True)
    try:
        yield
    finally:
        subprocess.run(["udevadm", "control", "--start-exec-queue"], check=True)
        settle()


def scsi_disks(proc_name: str) -> list[str]:
    """Return the disks, by kernel name, whose SCSI host says it is ``proc_name``."""
    return [
        name
        for name in disks()
        if name.startswith("sd") and cat(_host(name) / "proc_name") == proc_name
    ]


def _host(disk: str) -> Path:
    device = (SYS / "block" / disk / "device").resolve()
    host = next(folder for folder in device.parents if folder.name.startswith("host"))
    return host / "scsi_host" / host.name


@contextmanager
def loaded_scsi_debug(**options: object) -> Iterator[list[str]]:
    """Load scsi_debug and yield the disks it makes; the module goes with the body.

    ``options`` are the module's parameters, such as ``max_luns=8, delay=1, max_queue=64``.
    """
    words = [f"{name}={value}" for name, value in options.items()]
    subprocess.run(["modprobe", "scsi_debug", *words], check=True)
    settle()
    try:
        yield scsi_disks(SCSI_DEBUG_MODEL)
    finally:
        settle()
        done = subprocess.run(["modprobe", "--remove", "scsi_debug"], check=False)
        assert done.returncode == 0, find_openers(scsi_disks(SCSI_DEBUG_MODEL))


def find_openers(names: Sequence[str]) -> list[str]:
    """Return the open descriptors of these disks, each with the command of its process."""
    openers = []
    for descriptor in map(Path, glob("/proc/[0-9]*/fd/*")):
        with suppress(OSError):  # the process has ended
            target = os.readlink(descriptor)
            if target.removeprefix("/dev/") in names:
                command = (descriptor.parents[1] / "cmdline").read_text().replace("\0", " ")
                openers.append(f"{descriptor} -> {target}: {command}")
    return openers


def add_host() -> str:
    """Give scsi_debug one more host, and return its disk once udev has dealt with it.

    A disk is in sysfs before the kernel announces it (block/genhd.c: device_add_disk), so udev may
    have nothing to do yet.
    """
    earlier = {*scsi_disks(SCSI_DEBUG_MODEL)}
    (SCSI_DEBUG / "add_host").write_text("1")
    while not (later := {*scsi_disks(SCSI_DEBUG_MODEL)} - earlier):
        wait_a_moment()
    [disk] = later
    while not Path(f"/run/udev/data/b{cat(f'block/{disk}/dev')}").exists():
        wait_a_moment()
    settle()
    return disk


def set_service_time(parameter: str, value: int) -> None:
    """Set ``delay`` (jiffies) or ``ndelay`` (ns) of scsi_debug, once no command is in flight.

    The driver refuses it before with EBUSY, and udev or multipathd may read a disk at any time.
    """
    while True:
        try:
            (SCSI_DEBUG / parameter).write_text(str(value))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            wait_a_moment()
        else:
            return


@contextmanager
def reading(disks: Sequence[str]) -> Iterator[None]:
    """Have these disks read in small pieces all the time."""
    readers = [
        subprocess.Popen(
            ["sh", "-c", f"while dd if=/dev/{disk} of=/dev/null bs=4k iflag=direct; do :; done"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for disk in disks
    ]
    try:
        yield
    finally:
        for reader in readers:
            os.killpg(reader.pid, signal.SIGKILL)
            reader.wait()
