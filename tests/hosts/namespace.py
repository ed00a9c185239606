"""A described machine in the place of this one, in a private mount namespace."""

import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hbatune.facts.model import Machine
from tests.lab.wheel import CHECKOUT

# The tree stands in for /sys; mountinfo is the shell's own, which it keeps through exec. Empty
# folders hide what is installed on the machine that the tests run on: udev rules, hbatune's own
# among them, module options, TuneD's profiles, a configuration. A described machine has no such
# files. Where this machine has no such folder, none is made: a test that would write there fails.
_ENTER = """
mount --bind "$1/sys" /sys || exit 77
mount -t tmpfs tmpfs /run || exit 77
mount -t tmpfs -o mode=755 tmpfs /var/lib || exit 77
mount --bind /etc /etc || exit 77
mount -o remount,bind,ro /etc || exit 77
for folder in /etc/hbatune /etc/modprobe.d /etc/tuned /etc/udev /usr/lib/modprobe.d \
    /usr/lib/tuned /usr/lib/udev/rules.d /usr/local/lib/udev; do
    test -d $folder || continue
    mount -t tmpfs -o mode=755 tmpfs $folder || exit 77
done
mount --bind "$1/proc/irq" /proc/irq || exit 77
for file in mountinfo swaps diskstats stat cmdline; do
    test -e "$1/proc/$file" || continue
    case $file in
        mountinfo) mount --bind "$1/proc/$file" "/proc/$$/$file" || exit 77 ;;
        *) mount --bind "$1/proc/$file" "/proc/$file" || exit 77 ;;
    esac
done
if test -e /dev/kmsg; then
    log="$1/dev/kmsg"
    test -e "$log" || log=/dev/null
    mount --bind "$log" /dev/kmsg || exit 77
fi
# Some tests run hbatune as a user, who cannot reach a checkout below /root.
if test "$CLOSED"; then
    mkdir /run/checkout || exit 77
    mount --bind "$CHECKOUT" /run/checkout || exit 77
    mount -t tmpfs -o mode=755 tmpfs "$CLOSED" || exit 77
    mkdir -p "$CHECKOUT" || exit 77
    mount --move /run/checkout "$CHECKOUT" || exit 77
    rmdir /run/checkout || exit 77
    cd "$PWD" || exit 77
fi
shift
exec "$@"
"""

# Whole commands read and write the configuration as well: in a folder of the namespace's own.
OWN_CONFIGURATION = (
    "sh",
    "-c",
    """
cp /etc/ld.so.cache /run/ || exit 77
mount -t tmpfs -o mode=755 tmpfs /etc || exit 77
cp /run/ld.so.cache /etc/ || exit 77
exec "$@"
""",
    "sh",
)
"""Words to put before a command that ``run`` runs."""

_GATHER = """
import sys
import msgspec
from hbatune.facts.machine import gather_machine
from hbatune.facts.model import TargetKind
deadline, of_controllers, *of_disks = sys.argv[1:]
of = {TargetKind.CONTROLLER: of_controllers.split()}
sys.stdout.buffer.write(
    msgspec.json.encode(gather_machine(of_disks, of=of, deadline=float(deadline)))
)
"""


def _closed() -> str:
    """Return the outermost folder above the checkout that other users cannot enter, or nothing.

    Nothing, too, where this Python is below it: it would be out of sight.
    """
    ways = [
        parent for parent in reversed(CHECKOUT.parents) if not parent.stat().st_mode & stat.S_IXOTH
    ]
    return str(ways[0]) if ways and not Path(sys.base_prefix).is_relative_to(ways[0]) else ""


def can_enter() -> bool:
    """Whether this process may make a mount namespace."""
    return os.geteuid() == 0 and not subprocess.run(["unshare", "-m", "true"]).returncode


def enter(root: Path, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the words and the environment that run a command on the machine below ``root``.

    They start no further process, so the command has the number of the process.
    """
    words = ["unshare", "-m", "--propagation", "private", "sh", "-c", _ENTER, "sh", str(root)]
    environment = {
        **os.environ,
        "SYSTEMD_DEVICE_VERIFY_SYSFS": "0",
        "CHECKOUT": str(CHECKOUT),
        "CLOSED": _closed(),
    }
    return [*words, *command], environment


def run(root: Path, command: Sequence[str], *, timeout: float = 120) -> bytes:
    """Run a command on the machine below ``root`` and return its standard output."""
    words, environment = enter(root, command)
    done = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, timeout=timeout, check=True
    )
    return done.stdout


def gather_in(
    root: Path,
    attributes: Sequence[str] = (),
    *,
    controllers: Sequence[str] = (),
    deadline: float = 10.0,
) -> Machine:
    """Return the facts of the machine below ``root``, with files of disks and of controllers."""
    words = (str(deadline), " ".join(controllers), *attributes)
    command = [sys.executable, "-c", _GATHER, *words]
    return msgspec.json.decode(run(root, command), type=Machine)
