"""An initramfs that has udev and an adapter's driver, as those of distributions have.

The lab's own knows the root disk only. What it hands over to runs before systemd does: with the
file that tells udev's rules that this is an initramfs, udev finds the adapter's disks, and its
database is left in /run for the root's udev, as `switch_root` leaves it.

A worker of udev ends its event after `udevadm control --exit` has returned. Here it has the rules
of the root, which it would obey without the file. So all workers have to end first.
"""

from pathlib import Path

_INIT = Path("/usr/sbin/init")
_SYSTEMD = "/lib/systemd/systemd"
_FOUND = Path("/run/lab-initramfs")
_SCRIPT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /run
touch /etc/initrd-release
/lib/systemd/systemd-udevd --daemon
modprobe {module} {options}
udevadm trigger --action=add
udevadm settle
udevadm control --exit
while grep --quiet --no-messages udev /proc/[0-9]*/comm; do sleep 0.1; done
disk=$(basename "$(ls -d /sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/sd*)")
udevadm info --query=property --name="$disk" >{found}
head -n 1 "/sys/block/$disk/queue/nr_requests" >>{found}
rm /etc/initrd-release
umount /proc
umount /sys
exec {systemd}
"""


def install(module: str, *options: str) -> None:
    """Have the next boots load the module before there is a systemd."""
    _INIT.unlink()
    script = _SCRIPT.format(
        module=module, options=" ".join(options), found=_FOUND, systemd=_SYSTEMD
    )
    _INIT.write_text(script)
    _INIT.chmod(0o755)


def remove() -> None:
    """Have the next boots begin with systemd."""
    _INIT.unlink()
    _INIT.symlink_to(_SYSTEMD)


def read_disk_properties() -> list[str]:
    """Return udev's properties of the disk in the initramfs, then its nr_requests."""
    return _FOUND.read_text().splitlines()
