"""Minimal roots of Debian releases, to build the package in, and to install it into.

A root is made once and kept in the lab's cache; what is done in it lands in a folder of its own
(overlayfs). Nothing in it can reach this machine's devices or /sys: it sees a described machine.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.lab.cache import cached, digest
from tests.lab.debian import archives, run
from tests.lab.progress import step
from tests.lab.wheel import CHECKOUT

PACKAGES = ("bash-completion", "man-db")
"""What shows completions and man pages: a minimal root has neither."""
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""This machine's. A root's own are made anew when their package is installed."""
_BUNDLE = "root/certificates.crt"
_ENTER = r"""
set -e
root=$1 upper=$2 work=$3 machine=$4
mount -t overlay overlay -o "lowerdir=$root,upperdir=$upper,workdir=$work" "$work/../merged"
cd "$work/../merged"
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
touch dev/kmsg  # the described machines mount their log over it
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount --bind "$machine/sys" sys
mount --bind "$machine/proc/irq" proc/irq
# The kernel makes no user namespace in a chroot (kernel/user_namespace.c: create_user_ns).
pivot_root . mnt
umount --lazy /mnt
exec bash -euc "$5"
"""


class Root:
    """A release's root with what was done in it so far; this machine's /sys is not in it."""

    def __init__(self, suite: str, folder: Path, machine: Path) -> None:
        self._lower = _made(suite) / "root"
        self._machine = machine
        self._folder = folder
        for name in ("upper", "work", "merged"):
            (folder / name).mkdir(parents=True)

    def put(self, source: Path, name: str) -> None:
        """Copy a file or a folder into it."""
        target = self._folder / "upper" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copyfile(source, target)

    def has(self, pattern: str) -> list[Path]:
        """Return what was put, made or installed there, by a pattern below the root."""
        return list((self._folder / "upper").glob(pattern))

    def bash(self, script: str, *, online: bool = False) -> str:
        """Run a script there as root and return what it prints; an AssertionError else."""
        alone = () if online else ("--net",)
        words = [str(self._lower), *(str(self._folder / name) for name in ("upper", "work"))]
        done = subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", *alone),
                *("sh", "-c", _ENTER, "sh", *words, str(self._machine), script),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=_environment(),
        )
        assert done.returncode == 0, f"{script}\nended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def let_out(self) -> None:
        """Give it what this machine reaches the network with: name servers and certificates."""
        self.put(Path("/etc/resolv.conf").resolve(), "etc/resolv.conf")
        if _CERTIFICATES.exists():
            self.put(_CERTIFICATES, _BUNDLE)


def _environment() -> dict[str, str]:
    ours = {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
    return {
        **ours,
        "PIP_CERT": f"/{_BUNDLE}" if _CERTIFICATES.exists() else "",
        "DEBIAN_FRONTEND": "noninteractive",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "SYSTEMD_DEVICE_VERIFY_SYSFS": "0",
    }


def _made(suite: str) -> Path:
    sources = archives(suite)

    def make(folder: Path) -> None:
        with step(f"soak: making a minimal root of {suite} (once; a minute or two)"):
            words = [
                *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"),
                *(f"--include={','.join(PACKAGES)}", suite, str(folder / "root"), *sources),
            ]
            run(words, folder / "log")

    parts = [part.encode() for part in (suite, *PACKAGES, *sources)]
    return cached(f"root-{suite}", digest(parts), make)


def clean_checkout(folder: Path) -> Path:
    """Clone what is committed, as a user does, and return where."""
    words = ["git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(folder / "hbatune")]
    subprocess.run(words, check=True)
    return folder / "hbatune"
