"""A described machine whose disks are below md, LVM, LUKS, bcache, a map, btrfs and ZFS."""

from tests.hosts.machines import SSD_PAGE
from tests.hosts.tree import Described, Disk, Function, Host, Lun, Mapped

_PARTITIONS = {"c": ("sdc1", "sdc2"), "h": ("sdh1",), "i": ("sdi1", "sdi9")}
ZFS_MEMBERS = {"sdi1": "tank", "sdj": "tank", "sdk": None}
"""The members of a pool, with the name that udev's database has: a cache has no name."""


def _stacked(name: str) -> Disk:
    """Return a device that passes I/O on, so it has no scheduler (block/elevator.c)."""
    return Disk(name, tags=None, scheduler="none")


def stacks() -> Described:
    """Eleven disks, each of which has several names.

    ``sda`` and ``sdb`` are a mirror with LVM, ``sdc`` has partitions and LUKS, ``sdd`` a bcache,
    ``sde`` and ``sdf`` are paths of a map with LVM. ``sdg`` and a partition of ``sdh`` are a btrfs,
    and ``ZFS_MEMBERS`` a pool of ZFS.
    """
    luns = []
    for number, letter in enumerate("abcdefghijk"):
        disk = Disk(f"sd{letter}", partitions=_PARTITIONS.get(letter, ()))
        luns.append(
            Lun(
                f"0:0:{number}:0",
                disk,
                wwid="naa.6000f" if letter in "ef" else f"naa.6000{letter}",
                port=f"port-0:{number}/end_device-0:{number}",
                protocols="ssp",
                device={"vpd_pgb1": SSD_PAGE},
            )
        )
    host = Host(0, "mpt3sas", luns=tuple(luns), attributes={"version_fw": "16.00.12.00"})
    return Described(
        functions=(Function("0000:01:00.0", "mpt3sas", hosts=(host,)),),
        mapped=(
            Mapped(_stacked("md127"), "", ("sda", "sdb")),
            Mapped(_stacked("dm-0"), "LVM-aa", ("md127",), name="vg--0-pg--data"),
            Mapped(_stacked("dm-1"), "LVM-ab", ("md127",), name="vg--0-home"),
            Mapped(_stacked("dm-2"), "CRYPT-LUKS2-a-secret", ("sdc2",), name="secret"),
            Mapped(_stacked("bcache0"), "", ("sdd",)),
            Mapped(Disk("dm-3", tags=2048), "mpath-36000f", ("sde", "sdf"), name="mpatha"),
            Mapped(_stacked("dm-4"), "LVM-ba", ("dm-3",), name="vg1-data"),
        ),
        virtual=(Disk("loop0"), Disk("zd0")),
        mounts=(
            *(("dm-0", "/srv"), ("dm-1", "/home"), ("sdc1", "/boot"), ("dm-2", "/opt")),
            *(("dm-4", "/mnt"), ("sdg", "/media"), ("loop0", "/usr/local")),
            *(("tank/data", "/tmp"), ("tank/home", "/var/tmp")),
        ),
        pools=(("sdg", "sdh1"),),
        modules={"zfs": {}},
    )
