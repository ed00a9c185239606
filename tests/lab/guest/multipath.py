"""dm-multipath maps: of scsi_debug, one LUN over two hosts, or of an array."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest.command import hbatune
from tests.lab.guest.kit import reload_rules, settle
from tests.lab.guest.values import BLOCK

# Not what multipath knows of the make: its own commands are none that the lab's arrays answer.
_CONFIGURATION = """
defaults {
    find_multipaths no
    user_friendly_names yes
    %(defaults)s
}
blacklist {
    device {
        vendor ".*"
        product ".*"
    }
}
blacklist_exceptions {
    device {
        vendor "%(vendor)s"
        product "%(model)s"
    }
}
devices {
    device {
        vendor "%(vendor)s"
        product "%(model)s"
        path_checker tur
        prio const
        hardware_handler "0"
    }
}
"""
_HIDDEN_RULES = Path("/etc/udev/rules.d/60-multipath.rules")
"""The image hides the rules of multipath-tools behind this link (rootfs/customize.sh)."""


def maps() -> list[str]:
    """Return the dm-multipath maps there are."""
    uuids = {path.parent.parent.name: path.read_text() for path in BLOCK.glob("dm-*/dm/uuid")}
    return sorted(name for name, uuid in uuids.items() if uuid.startswith("mpath-"))


@contextmanager
def joined(defaults: str = "") -> Iterator[str]:
    """Have multipathd join what scsi_debug made, with these defaults, and yield the map."""
    with joined_disks("Linux", "scsi_debug", defaults) as [name]:
        yield name


@contextmanager
def joined_disks(vendor: str, model: str, defaults: str = "") -> Iterator[list[str]]:
    """Have multipathd join the disks of a vendor and model, and yield the maps."""
    values = {"vendor": vendor, "model": model, "defaults": defaults}
    Path("/etc/multipath.conf").write_text(_CONFIGURATION % values)
    _HIDDEN_RULES.unlink(missing_ok=True)
    reload_rules()
    subprocess.run(["modprobe", "dm_multipath"], check=True)
    subprocess.run(["systemctl", "start", "multipathd"], check=True)
    subprocess.run(["multipath"], check=False, capture_output=True)
    settle()
    try:
        yield maps()
    finally:
        hbatune("rollback")
        subprocess.run(["systemctl", "stop", "multipathd.socket", "multipathd"], check=False)
        settle()
        # A map that udev or the lab's own programs still read is tried again each second.
        subprocess.run(["multipath", "-F", "-R", "30"], check=True, capture_output=True)
        settle()
        _HIDDEN_RULES.symlink_to("/dev/null")
        reload_rules()
