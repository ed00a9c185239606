"""A dm-multipath map over scsi_debug: one LUN over two hosts."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import settle
from tests.lab.guest.values import BLOCK

MULTIPATH = """
defaults {
    find_multipaths no
    user_friendly_names no
}
blacklist {
    device {
        vendor ".*"
        product ".*"
    }
}
blacklist_exceptions {
    device {
        vendor "Linux"
        product "scsi_debug"
    }
}
"""


def maps() -> list[str]:
    """Return the dm-multipath maps there are."""
    uuids = {path.parent.parent.name: path.read_text() for path in BLOCK.glob("dm-*/dm/uuid")}
    return sorted(name for name, uuid in uuids.items() if uuid.startswith("mpath-"))


@contextmanager
def joined() -> Iterator[str]:
    """Have multipathd join what scsi_debug made, and yield the map."""
    Path("/etc/multipath.conf").write_text(MULTIPATH)
    subprocess.run(["modprobe", "dm_multipath"], check=True)
    subprocess.run(["systemctl", "start", "multipathd"], check=True)
    subprocess.run(["multipath"], check=False, capture_output=True)
    settle()
    [name] = maps()
    try:
        yield name
    finally:
        hbatune("rollback")
        subprocess.run(["systemctl", "stop", "multipathd.socket", "multipathd"], check=False)
        subprocess.run(["multipath", "-F"], check=True, capture_output=True)
        settle()
