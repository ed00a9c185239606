"""Described machines of mixed adapters, each with the reason why it exists.

None of them is a capture. A figure is measured, or read from the kernel's source, where a comment
says so; names, addresses, versions, sizes and whatever else no comment speaks of are made up, and
nothing may rest on them. The machine of each family is in ``families``, that of each trap in
``traps``; a host that really was captured is unpacked by ``captured``.
"""

from tests.hosts.tree import (
    Controller,
    Described,
    Disk,
    Function,
    Host,
    Link,
    Lun,
    Mapped,
    Namespace,
    Odd,
    Subsystem,
    Value,
)

SSD_PAGE = b"\0\xb1\0\x3c\0\x01" + bytes(58)
HDD_PAGE = b"\0\xb1\0\x3c\x1c\x20" + bytes(58)  # 7200 rpm
# IDENTIFY DEVICE data from byte 60: word 75 says 31 deep, word 76 that it can queue.
ATA_PAGE = b"\0\x89\x02\x38" + bytes(206) + b"\x1e\0\0\1" + bytes(358)
# One target port designator (association 1, PIV) of protocol 6, SAS, with an NAA identifier.
SAS_PORTS = b"\0\x83\0\x0c" + b"\x61\x93\0\x08" + bytes.fromhex("5000c500a1b2c3d5")

SERIAL_PAGE = b"\0\x80\0\x08" + b"  SER123"


def _megaraid() -> Function:
    """A megaraid_sas with a volume, drives of three kinds on channel 0, no firmware attribute.

    can_queue 975 and one hardware queue were measured on QEMU's megasas-gen2; queue_depth 256,
    64 and 32 are MEGASAS_DEFAULT_CMD_PER_LUN, MEGASAS_NVME_QD and MEGASAS_SATA_QD
    (megaraid_sas.h).
    """
    luns = (
        Lun(
            "0:2:0:0",
            Disk("sda", partitions=("sda1", "sda2"), rotational=True),
            vendor="LSI",
            model="MR9361-8i",
            wwid="naa.600605b000000001",
            queue_depth="256",
            device={"vpd_pgb1": SSD_PAGE},
        ),
        Lun(
            "0:0:1:0",
            Disk("sdb"),
            vendor="ATA",
            model="MZ7LH960",
            wwid="naa.5002538e00000001",
            queue_depth="32",
            device={"vpd_pgb1": SSD_PAGE, "vpd_pg89": ATA_PAGE},
        ),
        Lun("0:0:2:0", Disk("sdc"), vendor="NVMe", model="KIOXIA CM6", wwid="eui.8ce38e1"),
        Lun(
            "0:1:3:0",
            Disk("sdd", rotational=True),
            wwid="naa.5000c50000000003",
            device={"vpd_pgb1": HDD_PAGE},
        ),
    )
    return Function(
        "0000:01:00.0",
        "megaraid_sas",
        link=Link(speed="8.0 GT/s PCIe", max_speed="8.0 GT/s PCIe", width="4"),
        numa_node="1",
        version="07.719.03.00-rc1",
        hosts=(Host(0, "megaraid_sas", luns=luns),),
        bridge="0000:00:01.0/",
    )


def _mptsas() -> Function:
    """A mptsas with the SAS transport class; version_fw is its host's own attribute."""
    port = "port-1:0/end_device-1:0"
    luns = (
        Lun(
            "1:0:0:0",
            Disk("sde", tags=127),
            wwid="naa.5000000000000001",
            port=port,
            protocols="ssp",
            device={"vpd_pgb1": HDD_PAGE},
        ),
        Lun(
            "1:0:1:0",
            Disk("sdf", tags=127),
            vendor="ATA",
            wwid="naa.5000000000000002",
            port="port-1:1/end_device-1:1",
            protocols="sata",
        ),
    )
    firmware: dict[str, Value] = {"version_fw": "00.01.46.00"}
    host = Host(1, "mptsas", can_queue=127, cmd_per_lun=7, luns=luns, attributes=firmware)
    return Function(
        "0000:02:00.0", "mptsas", ("0x1000", "0x0054", "0x1000", "0x8000"), hosts=(host,)
    )


def _sym53c8xx() -> Function:
    """A conventional PCI function: no link files at all. can_queue 446 was measured on QEMU."""
    lun = Lun(
        "2:0:0:0",
        Disk("sdg", tags=446, rotational=True),
        wwid="",
        queue_depth="16",
        depth_writable=False,
        parallel=True,
        device={"vpd_pg80": SERIAL_PAGE},
    )
    host = Host(2, "sym53c8xx", can_queue=446, cmd_per_lun=16, luns=(lun,))
    ids = ("0x1000", "0x0012", "0x1af4", "0x1000")
    return Function("0000:03:01.0", "sym53c8xx", ids, "0x010000", hosts=(host,))


def _virtual_hosts() -> tuple[Function, ...]:
    """virtio_scsi clamps depths at cmd_per_lun (128 of 256, measured); pvscsi and virtio_blk."""
    virtio = Host(
        3,
        "virtio_scsi",
        can_queue=256,
        cmd_per_lun=128,
        hw_queues=2,
        luns=(Lun("3:0:0:0", Disk("sdh", tags=256, hw_queues=2), vendor="QEMU"),),
    )
    pvscsi = Host(
        4,
        "vmw_pvscsi",
        can_queue=254,
        cmd_per_lun=254,
        luns=(Lun("4:0:0:0", Disk("sdi", tags=254), vendor="VMware"),),
    )
    none = ("0x1af4", "0x1048", "0x1af4", "0x1100")
    return (
        Function("0000:00:04.0", "virtio-pci", none, "0x010000", virtio=2, hosts=(virtio,)),
        Function(
            "0000:00:05.0", "vmw_pvscsi", ("0x15ad", "0x07c0", "0x15ad", "0x07c0"), hosts=(pvscsi,)
        ),
    )


def _virtio_blk() -> Function:
    disk = Disk("vda", tags=128, block={"serial": "root disk"})
    return Function(
        "0000:00:06.0",
        "virtio-pci",
        ("0x1af4", "0x1042", "0x1af4", "0x1100"),
        "0x010000",
        virtio=3,
        virtio_driver="virtio_blk",
        disk=disk,
    )


def _ahci() -> Function:
    """One function, a host for each port; cmd_per_lun reads 0 (measured)."""
    disk = Lun(
        "5:0:0:0",
        Disk("sdj", tags=32),
        vendor="ATA",
        model="QEMU HARDDISK",
        queue_depth="31",
        device={"vpd_pg89": ATA_PAGE},
    )
    optical = Lun("6:0:0:0", Disk("sr0", tags=1), vendor="QEMU", device={"type": "5"})
    hosts = (
        Host(5, "ahci", can_queue=32, cmd_per_lun=0, under="ata1", luns=(disk,)),
        Host(6, "ahci", can_queue=32, cmd_per_lun=0, under="ata2", luns=(optical,)),
        Host(7, "ahci", can_queue=32, cmd_per_lun=0, under="ata3"),
    )
    ids = ("0x8086", "0x2922", "0x1af4", "0x1100")
    unknown = Link("Unknown", "0", "Unknown", "0")
    return Function(
        "0000:00:1f.2", "ahci", ids, "0x010601", version="3.0", link=unknown, hosts=hosts
    )


def _nvme() -> Function:
    """One namespace over one controller; queue_count counts the admin queue too."""
    disk = Disk(
        "nvme0n1", scheduler="[none] mq-deadline ", tags=1023, hw_queues=2, nr_requests=1023
    )
    controller = Controller("nvme0", (Namespace(disk),), queue_count=3)
    ids = ("0x1b36", "0x0010", "0x1af4", "0x1100")
    return Function(
        "0000:04:00.0", "nvme", ids, "0x010802", link=Link(), version="1.0", controller=controller
    )


def _shared_nvme() -> tuple[tuple[Function, ...], Subsystem]:
    """One namespace over two controllers: nvme1n1 is named after the subsystem, not nvme1."""
    functions = []
    for number in (1, 2):
        disk = Disk(f"nvme1c{number}n1", scheduler="[none] mq-deadline ", tags=1023, hw_queues=2)
        path = Namespace(disk, "uuid.6c5f", hidden=True)
        functions.append(
            Function(
                f"0000:0{4 + number}:00.0",
                "nvme",
                ("0x1b36", "0x0010", "0x1af4", "0x1100"),
                "0x010802",
                controller=Controller(f"nvme{number}", (path,), serial="hbat-nvme-2"),
            )
        )
    head = Namespace(Disk("nvme1n1", scheduler="none", tags=None), "uuid.6c5f")
    return tuple(functions), Subsystem("nvme-subsys1", (head,))


def lab() -> Described:
    """Every family that an emulator can show, and all that is no endpoint beside it.

    /dev/sda2 carries LVM that is mounted and swapped on.
    """
    shared, subsystem = _shared_nvme()
    functions = (
        _megaraid(),
        _mptsas(),
        _sym53c8xx(),
        *_virtual_hosts(),
        _virtio_blk(),
        _ahci(),
        _nvme(),
        *shared,
    )
    debug = Host(
        8,
        "scsi_debug",
        can_queue=192,
        luns=(Lun("8:0:0:0", Disk("sdk", tags=192), vendor="Linux", model="scsi_debug"),),
        driver="scsi_debug",
    )
    return Described(
        functions=functions,
        bare=(("pseudo_0/adapter0", debug),),
        subsystems=(subsystem,),
        mapped=(
            Mapped(Disk("dm-0", tags=None), "LVM-abc", ("sda2",)),
            Mapped(Disk("dm-1", tags=None), "LVM-def", ("dm-0",)),
        ),
        virtual=(Disk("loop0"), Disk("ram0"), Disk("zram0"), Disk("md0"), Disk("nbd0")),
        elsewhere=(("platform/floppy.0", Disk("fd0")), ("platform/mmc0", Disk("mmcblk0"))),
        mounts=(("sda1", "/boot"), ("dm-1", "/srv/with\\040blank"), ("nvme1n1", "/data")),
        swaps=("dm-0",),
    )


def multipath() -> Described:
    """Two LUNs over two FC-less hosts, joined by device-mapper, with LVM on the first map.

    Both paths of a LUN share their WWN: only the path behind it tells them apart.
    """
    functions = []
    for number, names in ((0, ("sda", "sdb")), (1, ("sdc", "sdd"))):
        luns = tuple(
            Lun(
                f"{number}:0:0:{lun}",
                Disk(name),
                "SEAGATE",
                wwid=f"naa.6000{lun}",
                port=f"port-{number}:{lun}/end_device-{number}:{lun}",
                protocols="ssp",
                device={"vpd_pgb1": SSD_PAGE},
            )
            for lun, name in enumerate(names)
        )
        host = Host(number, "mpt3sas", luns=luns, attributes={"version_fw": "16.00.12.00"})
        functions.append(Function(f"0000:0{number + 1}:00.0", "mpt3sas", hosts=(host,)))
    return Described(
        functions=tuple(functions),
        mapped=(
            Mapped(Disk("dm-0", tags=2048), "mpath-36000", ("sda", "sdc")),
            Mapped(Disk("dm-1", tags=2048), "mpath-36001", ("sdb", "sdd")),
            Mapped(Disk("dm-2", tags=None), "LVM-xyz", ("dm-0",)),
        ),
        mounts=(("dm-2", "/srv"),),
    )


def hostile() -> Described:
    """Drives that put escape sequences, markup, shell and non-text into their names."""
    names = (
        ("EVIL\x1b[2J", "\x1b]0;owned\x07model", "\x00\x01"),
        ('"><b>', "$(reboot);`id`", "a\nb"),
        ("\\x1b", "back\\slash", "\u202egnp"),
    )
    luns = tuple(
        Lun(f"0:0:{number}:0", Disk(f"sd{chr(97 + number)}"), vendor, model, revision, wwid="")
        for number, (vendor, model, revision) in enumerate(names)
    )
    raw: dict[str, Value] = {"model": b"\xff\xfe bytes\n", "vendor": b"\xc3\x28\n"}
    broken = Lun("0:0:9:0", Disk("sdz"), wwid="t10.ATA     X\x1b   Y", device=raw)
    board: dict[str, Value] = {"board_name": "HBA\x1b[2J\u202e"}
    host = Host(0, "mpt3sas", luns=(*luns, broken), attributes=board)
    return Described(functions=(Function("0000:01:00.0", "mpt3sas", hosts=(host,)),))


def troubled() -> Described:
    """What cannot be had: absent, unreadable and unparsable values, and devices in a bad state."""

    def lun(number: int, disk: Disk, state: str = "running", **device: Value) -> Lun:
        return Lun(f"0:2:{number}:0", disk, state=state, wwid=f"naa.{number}", device=device)

    luns = (
        lun(0, Disk("sda", has_queue=False, tags=None)),
        lun(1, Disk("sdb", queue={"nr_requests": Odd.EIO, "rotational": "maybe"})),
        lun(2, Disk("sdc", queue={"scheduler": Odd.HANGS}), state="blocked"),
        lun(3, Disk("sdd", queue={"nr_requests": "many", "zoned": "host-managed"})),
        lun(4, Disk("sde", sectors=0, block={"removable": "1"})),
        lun(5, Disk("sdf", sectors=0)),
        lun(6, Disk("sdg"), wwid=Odd.EIO, vpd_pg80=b"\0\x80\0\x08  SER123"),
    )
    attributes: dict[str, Value] = {"nr_hw_queues": Odd.NONE, "cmd_per_lun": "few"}
    host = Host(0, "megaraid_sas", luns=luns, attributes=attributes)
    unbound: dict[str, Value] = {"proc_name": "(null)", "can_queue": Odd.EIO}
    stranger = Host(1, "", luns=(Lun("1:0:0:0", Disk("sdh")),), attributes=unbound)
    link = Link(speed="Unknown", width="63?", max_speed="16.0 GT/s PCIe")
    return Described(
        functions=(Function("0000:01:00.0", "megaraid_sas", link=link, hosts=(host,)),),
        bare=(("platform/somewhere", stranger),),
    )


def stuck(hung: int = 1, healthy: int = 3) -> Described:
    """Disks whose queue attributes never answer, on a host of their own, beside disks that do."""
    bad = tuple(
        Lun(
            f"0:2:{n}:0",
            Disk(f"sdb{chr(97 + n)}", queue={"nr_requests": Odd.HANGS}),
            wwid=f"naa.b{n}",
        )
        for n in range(hung)
    )
    good = tuple(
        Lun(f"{1 + n // 2}:2:{n}:0", Disk(f"sdg{chr(97 + n)}"), wwid=f"naa.c{n}")
        for n in range(healthy)
    )
    hosts = (bad, *(good[n : n + 2] for n in range(0, healthy, 2)))
    return Described(
        functions=tuple(
            Function(
                f"0000:{n + 1:02x}:00.0",
                "megaraid_sas",
                hosts=(Host(n, "megaraid_sas", luns=luns),),
            )
            for n, luns in enumerate(hosts)
        )
    )


def build_many_luns(luns: int, adapters: int = 16) -> Described:
    """Build a machine with many volumes for the benchmarks."""
    per = -(-luns // adapters)
    numbers = range(luns)
    return Described(
        functions=tuple(
            Function(
                f"0000:{adapter + 1:02x}:00.0",
                "megaraid_sas",
                link=Link(),
                version="07.719.03.00-rc1",
                hosts=(
                    Host(
                        adapter,
                        "megaraid_sas",
                        luns=tuple(_volume(n, adapter) for n in numbers[adapter * per :][:per]),
                    ),
                ),
            )
            for adapter in range(adapters)
        )
    )


def _volume(number: int, host: int) -> Lun:
    return Lun(
        f"{host}:2:{number % 256}:{number // 256}",
        Disk(_name(number), rotational=bool(number % 2)),
        vendor="LSI",
        model="MR9361-8i",
        wwid=f"naa.600605b0{number:024x}",
        queue_depth="256",
    )


def _name(number: int) -> str:
    """Return sda, ..., sdz, sdaa, ... (drivers/scsi/sd.c: sd_format_disk_name)."""
    letters = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(97 + letter) + letters
    return f"sd{letters}"
