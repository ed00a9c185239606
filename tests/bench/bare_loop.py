"""The least that looking at a machine can cost: a bare pyudev loop over the same attribute files.

``python bare_loop.py JSON`` enumerates the subsystems that are the keys of the object and reads
of each device the attributes that are listed there, once. It prints how many it found.
"""

import json
import sys

import pyudev


def read_all(wanted: dict[str, list[str]]) -> int:
    """Read all attributes of all devices and return how many of them there are."""
    count = 0
    context = pyudev.Context()
    for subsystem, names in wanted.items():
        devices = context.list_devices(subsystem=subsystem)
        if subsystem == "block":
            devices.match(DEVTYPE="disk")
        for device in devices:
            for name in names:
                count += device.attributes.get(name) is not None
    return count


if __name__ == "__main__":
    print(read_all(json.loads(sys.argv[1])))
