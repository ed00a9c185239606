"""The machines of the families of RAID controllers.

Figures with a source are read there; all others are made up (``families`` says more).
"""

from dataclasses import replace

from tests.hosts.machines import ATA_PAGE, HDD_PAGE, SAS_PORTS, SSD_PAGE
from tests.hosts.parts import GEN3, GEN4, flat, parameters, read_only, sas, sata, vectors
from tests.hosts.tree import (
    Described,
    Disk,
    Function,
    Host,
    Link,
    Value,
    Values,
)


def megaraid_sas() -> Described:
    """A MegaRAID with a volume and drives of three kinds, all flat below the host.

    256, 64 and 32 are MEGASAS_DEFAULT_CMD_PER_LUN, MEGASAS_NVME_QD and MEGASAS_SATA_QD; drives
    are on the first two channels (megaraid_sas.h).
    """
    luns = (
        flat("0:2:0:0", Disk("sda"), "DELL", "256", vpd_pgb1=SSD_PAGE),
        flat("0:0:1:0", Disk("sdb"), "ATA", "32", vpd_pg89=ATA_PAGE, vpd_pgb1=SSD_PAGE),
        flat("0:0:2:0", Disk("sdc"), "NVMe", "64"),
        flat("0:1:3:0", Disk("sdd", rotational=True), "SEAGATE", "256", vpd_pgb1=HDD_PAGE),
        flat("0:1:4:0", Disk("sde"), "SEAGATE", "256", vpd_pgb1=SSD_PAGE),
    )
    function = Function(
        "0000:01:00.0",
        "megaraid_sas",
        ("0x1000", "0x10e2", "0x1028", "0x1ae1"),
        link=GEN4,
        version="07.719.03.00-rc1",
        hosts=(Host(0, "megaraid_sas", luns=luns, hw_queues=8),),
        vectors=vectors(("megasas0-msix0",), ("megasas0-msix1", "megasas0-msix2")),
        parameters=parameters("megaraid_sas"),
    )
    return Described((function,))


def smartpqi() -> Described:
    """NVMe stands below an end device that speaks ssp; volumes are flat; no depth can be set.

    27 is the driver's fallback for drives (smartpqi_init.c).
    """
    luns = (
        sas(0, 1, Disk("sda", tags=1000), depth="27"),
        sata(0, 2, Disk("sdb", tags=1000), depth="27"),
        replace(sas(0, 3, Disk("sdc", tags=1000), depth="27"), vendor="NVMe"),
        flat("0:1:0:0", Disk("sdd", tags=1000), "HPE", "1000", raid_level="RAID-5"),
    )
    host = Host(
        0,
        "smartpqi",
        1000,
        1000,
        hw_queues=8,
        luns=tuple(read_only(lun) for lun in luns),
        attributes={
            "model": "SmartRAID 3154-8i",
            "firmware_version": "3.53-0",
            "driver_version": "2.1.18-045",
        },
    )
    function = Function(
        "0000:01:00.0",
        "smartpqi",
        ("0x9005", "0x028f", "0x9005", "0x0801"),
        link=GEN3,
        hosts=(host,),
        vectors=vectors((), ("smartpqi0", "smartpqi1")),
        parameters=parameters("smartpqi"),
    )
    return Described((function,))


def hpsa() -> Described:
    """A Smart Array with a volume and a drive: raid_level of a drive says N/A (hpsa.c)."""
    drive = sas(0, 1, Disk("sdb", tags=1020), solid=False, depth="7")
    luns = (
        flat("0:1:0:0", Disk("sda", tags=1020), "HP", "1020", raid_level="RAID 1(+0)"),
        drive,
    )
    attributes: dict[str, Value] = {"firmware_revision": "7.20"}
    host = Host(0, "hpsa", 1020, 1020, luns=luns, attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "hpsa",
        ("0x103c", "0x3239", "0x103c", "0x21c0"),
        link=GEN3,
        version="3.4.20-200",
        hosts=(host,),
        vectors=vectors((), ("hpsa0-msix0", "hpsa0-msix1")),
        parameters=parameters("hpsa"),
    )
    return Described((function,))


def aacraid() -> Described:
    """A container on channel 0 and drives above it, whose raid_level says JBOD (linit.c)."""
    luns = (
        flat("0:0:0:0", Disk("sda", tags=504), "ASR8805", "252", raid_level="RAID5"),
        flat("0:1:4:0", Disk("sdb", tags=504), "ATA", "32", raid_level="JBOD", vpd_pg89=ATA_PAGE),
        flat("0:1:5:0", Disk("sdc", tags=504), "HGST", "64", raid_level="", vpd_pg83=SAS_PORTS),
    )
    attributes: dict[str, Value] = {
        "model": "ASR8805",
        "hba_kernel_version": "7.18-0[33556]",
        "driver_version": "1.2.1[50983]-custom",
    }
    host = Host(0, "aacraid", 504, 504, luns=luns, attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "aacraid",
        ("0x9005", "0x028d", "0x9005", "0x0555"),
        link=GEN3,
        hosts=(host,),
        vectors=vectors(("aacraid0", "aacraid1")),
        parameters=parameters("aacraid"),
    )
    return Described((function,))


def ipr(link: Link = GEN3, card: tuple[str, str] = ("0x034a", "0x035e")) -> Described:
    """A 57CE in a Gen3 slot; but for the SATA drive as the driver shows its card in the lab.

    Depths, channels, sizes of requests, vectors and attributes are from there (tests/lab/ipr). SATA
    drives have a depth of 1, IPR_MAX_CMD_PER_ATA_LUN (ipr.h).
    """
    short: Values = {"max_hw_sectors_kb": "256", "max_sectors_kb": "256"}
    volume = flat("0:2:0:0", Disk("sda", tags=1000, rotational=True, queue=short), "IBM", "6")
    drive = Disk("sdb", tags=1000, queue={"max_hw_sectors_kb": "16383", "max_sectors_kb": "1280"})
    luns = (
        replace(volume, model="IPR-5   5EC99000"),
        flat("0:0:3:0", drive, "IBM", "6", vpd_pg83=SAS_PORTS, vpd_pgb1=SSD_PAGE),
        flat("0:0:4:0", Disk("sdc", tags=1000), "ATA", "1", vpd_pg89=ATA_PAGE),
    )
    attributes: dict[str, Value] = {
        "fw_version": "13512900",
        "iopoll_weight": "64",
        "log_level": "2",
        "online_state": "online",
    }
    host = Host(0, "ipr", 1000, 6, luns=luns, attributes=attributes)
    function = Function(
        "0001:01:00.0",
        "ipr",
        ("0x1014", card[0], "0x1014", card[1]),
        link=link,
        version="2.6.4",
        hosts=(host,),
        vectors=vectors(tuple(f"host0-{n}" for n in range(16))),
        parameters=parameters("ipr"),
    )
    return Described((function,))


def arcmsr() -> Described:
    """An Areca with a volume: 32 is its cmd_per_lun, 128 its host_can_queue."""
    luns = (flat("0:0:0:0", Disk("sda", tags=128), "Areca", "32"),)
    attributes: dict[str, Value] = {
        "host_fw_model": "ARC-1883",
        "host_fw_version": "V1.56 2019-08-22",
        "host_driver_version": "v1.51.00.14-20230915",
    }
    host = Host(0, "arcmsr", 128, 32, luns=luns, attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "arcmsr",
        ("0x17d3", "0x188a", "0x17d3", "0x1883"),
        link=GEN3,
        hosts=(host,),
        vectors=vectors(("arcmsr",)),
        parameters=parameters("arcmsr"),
    )
    return Described((function,))
