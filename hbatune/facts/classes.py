"""Lists the devices of a class by reading its folder in sysfs: one link for each device.

libudev finds the same ones (sd-device, device-enumerator.c: enumerator_scan_dir_and_add_devices),
and opens each folder on the way to each of them: a hundred and fifty system calls a LUN. It is the
referee of the tests (``tests/hosts/test_classes.py``).
"""

import os
from contextlib import suppress

_CLASS = "/sys/class"
_UP = "../../devices/"
"""The beginning of the kernel's own links (fs/sysfs/symlink.c: sysfs_create_link)."""


def directories(name: str) -> list[str]:
    """Return the sysfs directories of the devices of a class, none where there is no such class.

    Devices that vanish meanwhile are left out. Bytes of a name that are no UTF-8 are kept as
    surrogates (``os.fsdecode``), so that the directory can be opened.
    """
    folder = f"{_CLASS}/{name}"
    found = []
    with suppress(OSError):  # the class is there once a driver has registered it
        for entry in os.listdir(folder):
            try:
                found.append(_directory(folder, os.readlink(f"{folder}/{entry}")))
            except OSError:  # an attribute of the class, or a device that is gone
                continue
    # As libudev does: what has no such file is no device (sd-device.c: sd_device_set_syspath).
    return sorted(each for each in found if os.access(f"{each}/uevent", os.F_OK))


def directory_of(name: str, device: str) -> str:
    """Return the sysfs directory of one device of a class. OSError where there is none."""
    folder = f"{_CLASS}/{name}"
    found = _directory(folder, os.readlink(f"{folder}/{device}"))
    os.stat(found)
    return found


def _directory(folder: str, link: str) -> str:
    """Return the directory that a link of a class leads to, without any link on its way."""
    if link.startswith(_UP) and "/." not in link.removeprefix(_UP):
        return f"/sys/devices/{link.removeprefix(_UP)}"
    return os.path.realpath(os.path.join(folder, link))
