"""The machines of the families of plain SAS and SATA adapters, tri-mode among them.

Figures with a source are read there; all others are made up (``families`` says more).
"""

from tests.hosts.machines import ATA_PAGE, HDD_PAGE
from tests.hosts.parts import GEN1, GEN3, GEN4, flat, parameters, sas, sata, vectors
from tests.hosts.tree import Described, Disk, Function, Host, Value


def mpi3mr() -> Described:
    """D0's card with the SAS transport on: NVMe is flat on channel 1, SAS and SATA are not.

    Ids of the 9600-24i: the PCI id database. Depth 32 is the driver's own where the firmware
    says 0 (mpi3mr_os.c); host tags are shared, so mq-deadline is the default.
    """
    luns = (
        sas(0, 8, Disk("sda", tags=8000), depth="32"),
        sas(0, 9, Disk("sdb", tags=8000, rotational=True), solid=False, depth="32"),
        sata(0, 10, Disk("sdc", tags=8000), depth="32"),
        flat("0:1:3:0", Disk("sdd", tags=8000), "NVMe", "32"),
    )
    # The text of a version is as the stock driver printed it; 1 is an adapter at work
    # (mpi3mr_app.c: adp_state_show).
    attributes: dict[str, Value] = {
        "version_fw": "8.5.1.0.00000-00001",
        "fw_queue_depth": "8192",
        "adp_state": "1",
    }
    host = Host(0, "mpi3mr", 8000, 128, hw_queues=8, luns=luns, attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "mpi3mr",
        ("0x1000", "0x00a5", "0x1000", "0x4660"),
        "0x010700",
        link=GEN4,
        version="8.2.0.3.0",
        hosts=(host,),
        vectors=vectors(("mpi3mr0-msix0",), ("mpi3mr0-msix1", "mpi3mr0-msix2")),
        parameters=parameters("mpi3mr"),
    )
    return Described((function,))


def mpt3sas() -> Described:
    """A 9400 with four kinds of endpoint: NVMe on channel 2, a volume on channel 1.

    Depths 254, 32 and 128 are MPT3SAS_*_QUEUE_DEPTH (mpt3sas_base.h). The volume's level is in the
    RAID class (raid_class.c: raid_levels).
    """
    level: dict[str, Value] = {"raid_devices/0:1:0:0/level": "raid10"}
    luns = (
        sas(0, 1, Disk("sda", tags=9000)),
        sata(0, 2, Disk("sdb", tags=9000)),
        flat("0:2:0:0", Disk("sdc", tags=9000), "NVMe", "128"),
        flat("0:1:0:0", Disk("sdd", tags=9000), "LSI", "128", vpd_pgb1=HDD_PAGE, **level),
    )
    attributes: dict[str, Value] = {"version_fw": "24.00.00.00", "board_name": "HBA 9400-16i"}
    host = Host(0, "mpt3sas", 9000, 7, hw_queues=8, luns=luns, attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "mpt3sas",
        ("0x1000", "0x00ac", "0x1000", "0x3000"),
        "0x010700",
        link=GEN3,
        version="43.100.00.00",
        hosts=(host,),
        vectors=vectors((), ("mpt3sas0-msix0", "mpt3sas0-msix1")),
        parameters=parameters("mpt3sas"),
    )
    return Described((function,))


def mptsas() -> Described:
    """The oldest of LSI's SAS HBAs: one line, since MSI is off unless asked for (mptbase.c)."""
    attributes: dict[str, Value] = {"version_fw": "00.01.46.00", "board_name": "SAS3081E"}
    luns = (sas(0, 0, Disk("sda", tags=127), solid=False, depth="64"),)
    host = Host(0, "mptsas", 127, 7, luns=luns, attributes=attributes)
    ids = ("0x1000", "0x0058", "0x1000", "0x3140")
    function = Function(
        "0000:02:00.0", "mptsas", ids, link=GEN1, hosts=(host,), irq=16, version="3.04.20"
    )
    return Described((function,))


def ahci() -> Described:
    """A port of a mainboard: 32 is ATA_MAX_QUEUE, cmd_per_lun reads 0 (measured)."""
    lun = flat("0:0:0:0", Disk("sda", tags=32), "ATA", "31", vpd_pg89=ATA_PAGE)
    return Described(
        (
            Function(
                "0000:00:1f.2",
                "ahci",
                ("0x8086", "0x2922", "0x1af4", "0x1100"),
                "0x010601",
                version="3.0",
                hosts=(Host(0, "ahci", 32, 0, under="ata1", luns=(lun,)),),
                vectors=vectors(("ahci[0000:00:1f.2]",)),
                parameters=parameters("ahci"),
            ),
        )
    )


def libsas() -> Described:
    """A SAS adapter of a chipset (isci): SATA drives behind it are libata's, 32 deep at most.

    SAS drives start at SAS_DEF_QD (sas_scsi_host.c), 256, which can_queue limits.
    """
    luns = (
        sas(0, 0, Disk("sda", tags=250), depth="250"),
        sata(0, 1, Disk("sdb", tags=250), depth="31"),
    )
    host = Host(0, "isci", 250, 1, luns=luns)
    function = Function(
        "0000:05:00.0",
        "isci",
        ("0x8086", "0x1d6b", "0x8086", "0x35f0"),
        "0x010700",
        link=GEN3,
        version="1.2.0",
        hosts=(host,),
        vectors=vectors(("isci-msix",)),
    )
    return Described((function,))
