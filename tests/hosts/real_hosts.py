"""Described machines with the facts of real ones, so that what is said of those can be tested.

The facts were read from captures in other projects' public test data, which is not copied: ids of
PCI, routes, models, sizes, tags, schedulers offered and in use, depths, counters. Each machine says
where its capture lies. What a capture leaves out, such as most files of hosts, is as the driver has
it, or made up. ``captured`` reads the captures themselves where they are there.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.hosts.machines import ATA_PAGE, HDD_PAGE, SSD_PAGE
from tests.hosts.parts import GEN3, parameters
from tests.hosts.tree import (
    Controller,
    Cpus,
    Described,
    Disk,
    Function,
    Host,
    Link,
    Lun,
    Mapped,
    Namespace,
    Odd,
    Values,
)

_NVME_ALL = "[none] mq-deadline kyber bfq "
_LUNS = ((1074413572, 2147483648), (1075134468, 209715200))
"""The LUNs of the mainframe: number, and size in sectors."""


def _port(number: int, driver: str, lun: Lun, *, most: int = 32) -> Host:
    """Return the host of one port of libata, with its disk; ``cmd_per_lun`` reads 0 there."""
    return Host(number, driver, most, 0, under=f"ata{number + 1}", luns=(lun,))


def _ata(address: str, disk: Disk, model: str, revision: str, **more: object) -> Lun:
    return Lun(address, disk, vendor="ATA", model=model, revision=revision, **more)  # type: ignore[arg-type]


def fedora_41() -> Described:
    """A desktop of 2025, 6.17: bfq in use, 9078 errors of smartd's polls, scsi_debug, NVMe.

    util-linux, tests/ts/lsblk/dumps (multi-devs-bcachefs).
    """
    polled: Values = {"iodone_cnt": "0x383f8c", "ioerr_cnt": "0x2376", "iotmo_cnt": "0x0"}
    queue: Values = {"wbt_lat_usec": "0", "max_sectors_kb": "4096"}
    bfq = Disk("", 468862128, scheduler="none mq-deadline kyber [bfq]", nr_requests=64, tags=32)
    ssd = _ata(
        "0:0:0:0",
        replace(bfq, name="sda", queue=queue),
        "KINGSTON SH103S3",
        "BBF0",
        wwid="naa.50026b724b09a1ff",
        queue_depth="32",
        device={"vpd_pg89": ATA_PAGE, "vpd_pgb1": SSD_PAGE, **polled},
    )
    hdd = _ata(
        "1:0:0:0",
        replace(
            bfq,
            name="sdb",
            sectors=156301488,
            rotational=True,
            queue={**queue, "add_random": "1", "read_ahead_kb": "8192"},
        ),
        "WDC WD800JD-00MS",
        "1E01",
        wwid="t10.ATA     WDC WD800JD-00MSA1                      WD-WMAM9XE78956",
        queue_depth="32",
        device={"vpd_pg89": ATA_PAGE, "vpd_pgb1": HDD_PAGE, **polled},
    )
    debug = Lun(
        "6:0:0:0",
        replace(bfq, name="sdc", sectors=1024000, nr_requests=256, tags=192, queue=queue),
        vendor="Linux",
        model="scsi_debug",
        revision="0191",
        wwid="naa.33333330000036b0",
        queue_depth="192",
        device={"ioerr_cnt": "0x1"},
    )
    drive = Controller(
        "nvme0",
        (
            Namespace(
                _flash(2000409264, _NVME_ALL, 8),
                "eui.00000000000000000026b7283b12b315",
            ),
        ),
        "KINGSTON SFYR2S1T0",
        "50026B7283B12B31",
        "SGW00110",
        queue_count=9,
    )
    return Described(
        (
            Function(
                "0000:00:1f.2",
                "ahci",
                ("0x8086", "0x2922", "0x1849", "0x2922"),
                "0x010601",
                hosts=(_port(0, "ahci", ssd), _port(1, "ahci", hdd)),
                parameters=parameters("ahci"),
            ),
            _nvme("0000:05:00.0", ("0x2646", "0x5013", "0x2646", "0x5013"), drive),
        ),
        bare=(("pseudo_0/adapter0", Host(6, "scsi_debug", 192, 192, luns=(debug,))),),
        modules={"scsi_debug": parameters("scsi_debug")},
        cpus=Cpus(online=8, cores=8),
    )


def _flash(sectors: int, offered: str, queues: int) -> Disk:
    cache: Values = {"write_cache": "write back"}
    return Disk("nvme0n1", sectors, False, offered, 1023, 1023, queues, queue=cache)


def _nvme(address: str, ids: tuple[str, str, str, str], drive: Controller) -> Function:
    return Function(
        address,
        "nvme",
        ids,
        "0x010802",
        link=Link("8.0 GT/s PCIe", "4", "8.0 GT/s PCIe", "4"),
        version="1.0",
        controller=drive,
        parameters=parameters("nvme"),
    )


def fedora_27() -> Described:
    """The same desktop in 2018, 4.16: single-queue schedulers, no mq folder, no write-back limit.

    AHCI took 31 commands then, as the ThinkPad's capture shows.
    util-linux, tests/ts/lsblk/dumps (simple-lvm).
    """
    queue: Values = {"wbt_lat_usec": Odd.EINVAL}
    old = Disk("", scheduler="noop deadline [cfq]", nr_requests=128, tags=None, queue=queue)
    counted: Values = {"iodone_cnt": "0x123e2", "ioerr_cnt": "0xc8", "iotmo_cnt": Odd.NONE}
    without_alua: Values = {"access_state": Odd.NONE, "preferred_path": Odd.NONE, **counted}
    ssd = _ata(
        "0:0:0:0",
        replace(old, name="sda", sectors=468862128),
        "KINGSTON SH103S3",
        "BBF0",
        wwid="t10.ATA     KINGSTON SH103S3240G                    50026B724B09A1FF",
        queue_depth="31",
        device=without_alua,
    )
    hdd = _ata(
        "1:0:0:0",
        replace(old, name="sdb", sectors=156301488, rotational=True),
        "WDC WD800JD-00MS",
        "1E01",
        wwid="t10.ATA     WDC WD800JD-00MSA1                      WD-WMAM9XE78956",
        queue_depth="31",
        device=without_alua,
    )
    drive = Controller(
        "nvme0",
        (
            Namespace(
                _flash(468862128, "[none] mq-deadline ", 7),
                "nvme.1987-35303032364237323832303336303144-4b494e4753544f4e20534b43313030303234"
                "3047-00000001",
            ),
        ),
        "KINGSTON SKC1000240G",
        "50026B728203601D",
        "E7FT04.6",
        queue_count=8,
    )
    return Described(
        (
            Function(
                "0000:00:1f.2",
                "ahci",
                ("0x8086", "0x2922", "0x1849", "0x2922"),
                "0x010601",
                hosts=(_port(0, "ahci", ssd, most=31), _port(1, "ahci", hdd, most=31)),
                parameters=parameters("ahci"),
            ),
            _nvme("0000:01:00.0", ("0x1987", "0x5007", "0x1987", "0x5007"), drive),
        ),
        mapped=(
            Mapped(
                Disk("dm-0", 204800, scheduler="none", tags=None),
                "LVM-8Bwyu3HKrv5sSNTifv6uCZ5XTkJoMXeDqnM2y0UBlhvqnWI9c7wnycMqKT4EPnd4",
                ("sda",),
            ),
        ),
        cpus=Cpus(online=8, cores=8),
    )


def thinkpad() -> Described:
    """A notebook of 2008: AHCI whose drive queues nothing, a stick behind USB, a RAID of md.

    Its attributes begin before ``rotational``. eudev, test/sys.tar.xz.
    """
    later = ("rotational", "rq_affinity", "add_random", "iostats", "wbt_lat_usec", "zoned")
    queue: Values = dict.fromkeys(later, Odd.NONE)
    old = Disk(
        "",
        scheduler="noop anticipatory deadline [cfq]",
        nr_requests=128,
        tags=None,
        queue={**queue, "max_sectors_kb": "512"},
    )
    bare: Values = {"access_state": Odd.NONE, "preferred_path": Odd.NONE}
    drive = _ata(
        "0:0:0:0",
        replace(old, name="sda", sectors=195371568, partitions=("sda1", "sda5")),
        "ST910021AS",
        "4.06",
        wwid="",
        queue_depth="1",
        device={"iodone_cnt": "0x6877", "ioerr_cnt": "0x6", **bare},
    )
    stick = Lun(
        "7:0:0:0",
        replace(
            old,
            name="sdb",
            sectors=257024,
            block={"removable": "1"},
            queue={**queue, "max_sectors_kb": "120", "max_hw_sectors_kb": "120"},
        ),
        vendor="Generic",
        model="USB Flash Drive",
        revision="1.00",
        wwid="",
        queue_depth="1",
        device={"ioerr_cnt": "0x2", **bare},
    )
    reader = Host(7, "usb-storage", 1, 1, under="usb5/5-1/5-1:1.0", luns=(stick,))
    return Described(
        (
            Function(
                "0000:00:1f.2",
                "ahci",
                ("0x8086", "0x27c5", "0x17aa", "0x200d"),
                "0x010601",
                hosts=(
                    Host(0, "ahci", 31, 1, luns=(drive,)),
                    *(Host(number, "ahci", 31, 1) for number in (1, 2, 3)),
                ),
                irq=506,
            ),
            Function(
                "0000:00:1f.1",
                "ata_piix",
                ("0x8086", "0x27df", "0x17aa", "0x200c"),
                "0x01018a",
                hosts=(Host(4, "ata_piix", 1, 1), Host(5, "ata_piix", 1, 1)),
            ),
        ),
        bare=(("pci0000:00/0000:00:1d.7", reader),),
        virtual=(
            Disk("md0", 0, tags=None, has_queue=False),
            Disk("fake!blockdev0", tags=None, has_queue=False),
        ),
        cpus=Cpus(online=2, cores=2),
    )


def multipath_of_scsi_debug() -> Described:
    """A notebook on which a map joins four simulated paths, beside NVMe and an empty card reader.

    Performance Co-Pilot, qa/linux (scsi-map-root-001).
    """
    bfq = Disk("", 204800, scheduler="mq-deadline kyber [bfq] none", tags=192)
    names = ("sdb", "sdc", "sdd", "sde")
    hosts = tuple(
        Host(
            number,
            "scsi_debug",
            192,
            192,
            luns=(
                Lun(
                    f"{number}:0:0:1",
                    replace(bfq, name=name),
                    vendor="Linux",
                    model="scsi_debug",
                    revision="0188",
                    wwid="naa.33333330000007d1",
                    queue_depth="192",
                    device={"ioerr_cnt": "0x1"},
                ),
            ),
        )
        for number, name in enumerate(names, start=1)
    )
    empty = Lun(
        "0:0:0:0",
        Disk("sda", 0, tags=1, block={"removable": "1"}, has_queue=True),
        vendor="Generic-",
        model="SD/MMC CRW",
        wwid="",
        queue_depth="1",
    )
    reader = Host(0, "usb-storage", 1, 0, under="usb2/2-3/2-3:1.0", luns=(empty,))
    drive = Controller(
        "nvme0",
        (
            Namespace(
                _flash(500118192, _NVME_ALL, 8),
                "eui.002538878103cb18",
            ),
        ),
        "SAMSUNG MZVLB256HAHQ-000L7",
        "S41GNE0K767799",
        "0L2QEXD7",
        queue_count=9,
    )
    return Described(
        (_nvme("0000:04:00.0", ("0x144d", "0xa808", "0x144d", "0xa801"), drive),),
        bare=(
            ("pci0000:00/0000:00:14.0", reader),
            *((f"pseudo_0/adapter{place}", host) for place, host in enumerate(hosts)),
        ),
        modules={"scsi_debug": parameters("scsi_debug")},
        mapped=(
            Mapped(
                Disk("dm-3", 204800, scheduler="[mq-deadline] kyber bfq none", tags=2048),
                "mpath-333333330000007d1",
                names,
            ),
        ),
        cpus=Cpus(online=8, cores=8),
    )


def perc_6i() -> Described:
    """A PERC 6/i, whose chip is older than fusion: one volume of hard disks, one interrupt line.

    jaypipes/ghw, testdata/snapshots (8581c...).
    """
    volume = Lun(
        "2:2:0:0",
        Disk("sda", 975699968, rotational=True, tags=1008, partitions=("sda1", "sda2", "sda3")),
        vendor="DELL",
        model="PERC 6/i",
        revision="1.22",
        wwid="naa.6002219",
        queue_depth="256",
    )
    return Described(
        (
            Function(
                "0000:03:00.0",
                "megaraid_sas",
                ("0x1000", "0x0060", "0x1028", "0x1f0c"),
                hosts=(Host(2, "megaraid_sas", 1008, 256, luns=(volume,)),),
                irq=16,
                handler="megasas",
                local_cpus="0-23",
                parameters=parameters("megaraid_sas"),
            ),
        ),
        cpus=Cpus(online=24, cores=12),
    )


def zfcp() -> Described:
    """A mainframe: two LUNs over two adapters and four ports each, on channels instead of PCI.

    jaypipes/ghw, testdata/snapshots (s390x). The make of the array is not in it, nor what the maps
    are; 32 is zfcp's own depth (drivers/s390/scsi/zfcp_scsi.c).
    """
    # By host: the letters of the disks behind its four ports, of the one LUN and of the other.
    ways = (("beim", "cgko"), ("dfnj", "ahpl"))
    hosts = tuple(
        Host(
            number,
            "zfcp",
            256,
            0,
            luns=tuple(
                Lun(
                    f"{number}:0:{port}:{lun}",
                    Disk(f"sd{letter}", sectors, tags=256),
                    vendor="IBM",
                    model="2107900",
                    wwid=f"naa.6005076309ffd43500000000{lun:08x}",
                    queue_depth="32",
                    port=f"rport-{number}:0-{port}",
                )
                for letters, (lun, sectors) in zip(ports, _LUNS, strict=True)
                for port, letter in enumerate(letters)
            ),
            driver="zfcp",
        )
        for number, ports in enumerate(ways)
    )
    maps = tuple(
        Mapped(
            Disk(f"dm-{number}", sectors, scheduler="none", tags=None),
            f"mpath-36005076309ffd43500000000{lun:08x}",
            tuple(f"sd{letter}" for ports in ways for letter in ports[number]),
        )
        for number, (lun, sectors) in enumerate(_LUNS)
    )
    return Described(
        bare=tuple((f"css0/0.0.010{6 + host.number}/0.0.8{host.number}00", host) for host in hosts),
        mapped=maps,
        cpus=Cpus(online=9, cores=9),
    )


def guest() -> Described:
    """A virtual machine: a disk of virtio on PCI Express, which says that it rotates.

    jaypipes/ghw, testdata/snapshots (accel).
    """
    return Described(
        (
            Function(
                "0000:04:00.0",
                "virtio-pci",
                ("0x1af4", "0x1042", "0x1af4", "0x1100"),
                "0x010000",
                virtio=3,
                virtio_driver="virtio_blk",
                disk=Disk("vda", 41943040, True, "[none] mq-deadline kyber bfq", tags=256),
                irq=22,
                parameters=parameters("virtio_blk"),
            ),
        ),
        cpus=Cpus(online=2, cores=2),
    )


def ryzen() -> Described:
    """A workstation with the AHCI of AMD's chipset: two SSDs and a hard disk on six ports.

    jaypipes/ghw, testdata/snapshots (61797...).
    """
    drives = ((0, "sda", 500118192, False), (4, "sdb", 1953525168, True), (5, "sdc", 976773168, 0))
    hosts = tuple(
        _port(
            number,
            "ahci",
            _ata(
                f"{number}:0:0:0",
                Disk(name, sectors, bool(rotates), tags=32, nr_requests=64),
                "MODEL",
                "1.0",
                wwid=f"naa.5002538e0000000{number}",
                queue_depth="32",
                device={"vpd_pg89": ATA_PAGE, "vpd_pgb1": HDD_PAGE if rotates else SSD_PAGE},
            ),
        )
        for number, name, sectors, rotates in drives
    )
    return Described(
        (
            Function(
                "0000:01:00.1",
                "ahci",
                ("0x1022", "0x43b7", "0x1b21", "0x1062"),
                "0x010601",
                link=replace(GEN3, width="4", max_width="4"),
                hosts=hosts,
                irq=54,
                local_cpus="0-11",
                parameters=parameters("ahci"),
            ),
        ),
        cpus=Cpus(online=12, cores=6),
    )


MACHINES: dict[str, Callable[[], Described]] = {
    build.__name__: build
    for build in (
        fedora_27,
        fedora_41,
        guest,
        multipath_of_scsi_debug,
        perc_6i,
        ryzen,
        thinkpad,
        zfcp,
    )
}
"""The machine of each capture, by its name."""
