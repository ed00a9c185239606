"""Real md, LVM and LUKS on disks of the guest."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.guest.kit import settle

MOUNT = Path("/srv")


def run(*words: str, text: str = "") -> None:
    """Run a program that has to succeed, with a text on its standard input."""
    done = subprocess.run(words, capture_output=True, text=True, input=text, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


@contextmanager
def mirrored(disks: list[str]) -> Iterator[None]:
    """Build md127 on two disks, the volume vg-0/pg on it, and mount that."""
    nodes = [f"/dev/{disk}" for disk in disks]
    options = ("--level=1", "--raid-devices=2", "--assume-clean", "--bitmap=none", "--run")
    run("mdadm", "--create", "/dev/md127", *options, *nodes)
    try:
        with volume("vg-0", "pg", "/dev/md127"), mounted("/dev/vg-0/pg"):
            yield
    finally:
        settle()
        run("mdadm", "--stop", "/dev/md127")


@contextmanager
def mounted(node: str) -> Iterator[None]:
    """Make a file system on a device, and mount it."""
    run("mke2fs", "-q", "-t", "ext4", node)
    run("mount", node, str(MOUNT))
    try:
        yield
    finally:
        run("umount", str(MOUNT))


@contextmanager
def volume(group: str, name: str, node: str) -> Iterator[None]:
    """Make a group on one device, and a volume in it."""
    run("vgcreate", group, node)
    run("lvcreate", "--yes", "--wipesignatures=n", "--extents=1", "--name", name, group)
    settle()
    try:
        yield
    finally:
        settle()
        run("vgremove", "--force", group)


@contextmanager
def encrypted(disk: str) -> Iterator[None]:
    """Encrypt a partition of a disk, and open it as ``secret``."""
    run("sgdisk", "--new=1", f"/dev/{disk}")
    settle()
    format = ("--batch-mode", "--type", "luks2", "--pbkdf", "pbkdf2")
    iterations = ("--pbkdf-force-iterations", "1000")
    run("cryptsetup", "luksFormat", *format, *iterations, f"/dev/{disk}1", "-", text="key")
    run("cryptsetup", "open", "--key-file", "-", f"/dev/{disk}1", "secret", text="key")
    try:
        yield
    finally:
        settle()
        run("cryptsetup", "close", "secret")
