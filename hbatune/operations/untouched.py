"""Whether hbatune can have changed a setting of this system, where /sys does not show them.

In a chroot or an image under construction nothing runs, /sys may be missing, and hbatune must be
removable all the same. What it changed in this boot has left evidence elsewhere.
"""

from pathlib import Path

from hbatune.act import journal
from hbatune.act.paths import Paths
from hbatune.facts.devices import has_sysfs
from hbatune.facts.machine import boot_id

_UDEV_RUNS = Path("/run/udev/control")


def is_untouched(paths: Paths) -> bool:
    """Whether /sys is missing and nothing shows that hbatune has changed a setting in this boot.

    A journal of this boot does, and so does one whose boot is unknown, since /proc is missing too.
    Every process that writes leaves its folder of claims in /run, and udev may have written what
    the installed rules require.
    """
    if has_sysfs() or paths.claims.exists():
        return False
    if paths.udev_rules.exists() and _UDEV_RUNS.exists():
        return False
    if not paths.journal.exists():
        return True
    try:
        recorded, _ = journal.load(paths.journal, boot_id())
    except (OSError, journal.JournalError):
        return False
    return not (recorded.entries or recorded.losses or recorded.run)
