"""Events that came faster than they were read, on a real netlink socket in a network of its own."""

import subprocess
import sys

KOBJECT_UEVENT, UDEV = 15, 2  # netlink(7); the group that udev itself speaks to

OVERRUN = f"""
import socket
from hbatune.agent.events import UdevMonitor

monitor = UdevMonitor(1024)
udev = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, {KOBJECT_UEVENT})
for _ in range(1000):
    udev.sendto(bytes(800), (0, {UDEV}))
print([monitor.take()[1] for _ in range(2)])
"""


# libudev receives nothing if neither this file nor a devtmpfs says that udev runs
# (src/libsystemd/sd-device/device-monitor.c: device_monitor_new_full).
AS_WITH_UDEV = """
mount -t tmpfs tmpfs /run
mkdir /run/udev
: >/run/udev/control
exec "$@"
"""


def test_dropped_events_are_reported_once() -> None:
    enter = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-euc", AS_WITH_UDEV, "sh"]
    words = [*enter, sys.executable, "-c", OVERRUN]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[True, False]", done.stderr
