"""One described machine for every adapter family: what its driver shows when all is well.

Figures that a comment names with their source are read from the kernel's source, or measured
where it says so. Everything else (addresses, serial and version numbers, sizes of hosts, values
of module parameters, names of drives) is made up, and nothing rests on it.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.hosts.machines import ATA_PAGE, HDD_PAGE, SAS_PORTS, SSD_PAGE, lab
from tests.hosts.tree import (
    Controller,
    Described,
    Disk,
    Function,
    Host,
    Link,
    Lun,
    Namespace,
    Value,
    Vector,
)

GEN1 = Link("2.5 GT/s PCIe", "8", "8.0 GT/s PCIe", "8")
GEN3 = Link("8.0 GT/s PCIe", "8", "8.0 GT/s PCIe", "8")
GEN4 = Link("16.0 GT/s PCIe", "16", "16.0 GT/s PCIe", "16")


def parameters(*names: str) -> dict[str, Value]:
    """Return these module parameters; their values are made up."""
    return dict.fromkeys(names, "0")


def vectors(free: tuple[str, ...] = (), locked: tuple[str, ...] = ()) -> tuple[Vector, ...]:
    """Return vectors with these names, from number 40 on."""
    names = [(name, False) for name in free] + [(name, True) for name in locked]
    return tuple(Vector(40 + n, name, lock) for n, (name, lock) in enumerate(names))


def sas(host: int, target: int, disk: Disk, *, solid: bool = True, depth: str = "254") -> Lun:
    """Return a SAS drive below an end device."""
    return Lun(
        f"{host}:0:{target}:0",
        disk,
        queue_depth=depth,
        port=f"port-{host}:{target}/end_device-{host}:{target}",
        protocols="ssp",
        device={"vpd_pgb1": SSD_PAGE if solid else HDD_PAGE},
    )


def sata(host: int, target: int, disk: Disk, *, depth: str = "32") -> Lun:
    """Return a SATA SSD below an end device, behind a SCSI to ATA translation."""
    return Lun(
        f"{host}:0:{target}:0",
        disk,
        vendor="ATA",
        model="MZ7LH960",
        queue_depth=depth,
        port=f"port-{host}:{target}/end_device-{host}:{target}",
        protocols="sata",
        device={"vpd_pgb1": SSD_PAGE, "vpd_pg89": ATA_PAGE},
    )


def flat(address: str, disk: Disk, vendor: str, depth: str, **device: Value) -> Lun:
    """Return a LUN directly below its host: a drive without a transport class, or a volume."""
    return Lun(address, disk, vendor=vendor, model="MODEL", queue_depth=depth, device=device)


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
    attributes: dict[str, Value] = {"version_fw": "8.5.1.0.0-00000-00001"}
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
        parameters=parameters("prot_mask", "prot_guard_mask", "logging_level", "poll_queues"),
    )
    return Described((function,))


def mpt3sas() -> Described:
    """A 9400 with four kinds of endpoint: NVMe on channel 2, a volume on channel 1.

    Depths 254, 32 and 128 are MPT3SAS_*_QUEUE_DEPTH (mpt3sas_base.h).
    """
    luns = (
        sas(0, 1, Disk("sda", tags=9000)),
        sata(0, 2, Disk("sdb", tags=9000)),
        flat("0:2:0:0", Disk("sdc", tags=9000), "NVMe", "128"),
        flat("0:1:0:0", Disk("sdd", tags=9000), "LSI", "128", vpd_pgb1=HDD_PAGE),
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
        parameters=parameters(
            "max_queue_depth",
            "max_msix_vectors",
            "msix_disable",
            "smp_affinity_enable",
            "host_tagset_enable",
            "poll_queues",
            "perf_mode",
        ),
    )
    return Described((function,))


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
        parameters=parameters(
            "msix_vectors",
            "msix_disable",
            "smp_affinity_enable",
            "host_tagset_enable",
            "poll_queues",
            "perf_mode",
            "throttlequeuedepth",
        ),
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
        parameters=parameters("disable_managed_interrupts", "lockup_action"),
    )
    return Described((function,))


def read_only(lun: Lun) -> Lun:
    """Return the LUN of a driver without change_queue_depth (scsi_sysfs.c: the mode is 0444)."""
    return replace(lun, depth_writable=False)


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
        parameters=parameters("hpsa_simple_mode"),
    )
    return Described((function,))


def aacraid() -> Described:
    """A container on channel 0 and drives above it, whose raid_level says JBOD (linit.c)."""
    luns = (
        flat("0:0:0:0", Disk("sda", tags=504), "ASR8805", "252", raid_level="RAID 5"),
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
        parameters=parameters("numacb", "msi", "cache", "commit"),
    )
    return Described((function,))


def ipr(link: Link = GEN3, card: tuple[str, str] = ("0x034a", "0x035e")) -> Described:
    """A 57CE in a Gen3 slot: depth 6 for all (IPR_MAX_CMD_PER_LUN); 1000 in all (SIS-64).

    Volumes are on channel 2, IPR_VSET_VIRTUAL_BUS (ipr.h).
    """
    luns = (
        flat("0:2:0:0", Disk("sda", tags=1000, rotational=True), "IBM", "6"),
        flat("0:0:1:0", Disk("sdb", tags=1000), "IBM", "6", vpd_pg83=SAS_PORTS, vpd_pgb1=SSD_PAGE),
        flat("0:0:2:0", Disk("sdc", tags=1000), "ATA", "1", vpd_pg89=ATA_PAGE),
    )
    attributes: dict[str, Value] = {"fw_version": "13512900", "iopoll_weight": "64"}
    host = Host(0, "ipr", 1000, 6, luns=luns, attributes=attributes)
    function = Function(
        "0001:01:00.0",
        "ipr",
        ("0x1014", card[0], "0x1014", card[1]),
        link=link,
        version="2.6.4",
        hosts=(host,),
        vectors=vectors(("host0-0", "host0-1")),
        parameters=parameters("number_of_msix", "max_devs", "dual_ioa_raid"),
    )
    return Described((function,))


def qla2xxx() -> Described:
    """Two LUNs of an array: depth 64 is ql2xmaxqdepth; the queue pairs' vectors are managed."""
    luns = tuple(
        Lun(
            f"0:0:0:{number}",
            Disk(f"sd{'ab'[number]}", scheduler="[none] mq-deadline", tags=2038),
            vendor="DGC",
            model="VRAID",
            port="rport-0:0-0",
        )
        for number in range(2)
    )
    attributes: dict[str, Value] = {
        "model_name": "QLE2742",
        "fw_version": "9.08.02 (d0d5)",
        "driver_version": "10.02.07.900-k",
        "zio": "Disabled",
        "zio_timer": "200 us",
    }
    host = Host(0, "qla2xxx", 2038, 3, hw_queues=8, luns=luns, attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "qla2xxx",
        ("0x1077", "0x2261", "0x1077", "0x02ac"),
        "0x0c0400",
        link=GEN3,
        hosts=(host,),
        vectors=vectors(("qla2xxx0_default", "qla2xxx0_rsp_q"), ("qla2xxx0_qpair_multiq_0",)),
        parameters=parameters(
            "ql2xmaxqdepth", "ql2xiniexchg", "ql2xenablemsix", "ql2xmqsupport", "ql2xuctrlirq"
        ),
    )
    return Described((function,))


def lpfc() -> Described:
    """A card of today, SLI-4: depth 64 is lpfc_lun_queue_depth; its vectors refuse to be moved."""
    lun = Lun(
        "0:0:0:0",
        Disk("sda", scheduler="[none] mq-deadline", tags=8000),
        vendor="IBM",
        model="2145",
        port="rport-0:0-0",
    )
    attributes: dict[str, Value] = {
        "modelname": "LPe32002-M2",
        "fwrev": "14.2.455.11, sli-4:2:c",
        "lpfc_drvr_version": "Emulex LightPulse Fibre Channel SCSI driver 14.2.0.6",
        "lpfc_fcp_imax": "0",
        "lpfc_cr_delay": "0",
        "lpfc_cr_count": "1",
    }
    host = Host(0, "lpfc", 8000, 64, hw_queues=4, luns=(lun,), attributes=attributes)
    function = Function(
        "0000:01:00.0",
        "lpfc",
        ("0x10df", "0xe300", "0x10df", "0xe300"),
        "0x0c0400",
        link=GEN3,
        hosts=(host,),
        vectors=vectors((), ("lpfc:0", "lpfc:1")),
        parameters=parameters(
            "lpfc_lun_queue_depth",
            "lpfc_hba_queue_depth",
            "lpfc_irq_chann",
            "lpfc_hdw_queue",
            "lpfc_use_msi",
            "lpfc_fcp_imax",
        ),
    )
    return Described((function,))


def _parallel(
    driver: str, ids: tuple[str, str], can_queue: int, depth: str, *names: str
) -> Described:
    """Return a conventional PCI card on a parallel bus: no link, one line, a read-only depth."""
    lun = Lun(
        "0:0:0:0",
        Disk("sda", tags=can_queue, rotational=True),
        queue_depth=depth,
        depth_writable=False,
        parallel=True,
    )
    function = Function(
        "0000:03:01.0",
        driver,
        (*ids, "0x0000", "0x0000"),
        "0x010000",
        hosts=(Host(0, driver, can_queue, 1, luns=(lun,)),),
        irq=17,
        parameters=parameters(*names),
    )
    return Described((function,))


def qla1280() -> Described:
    """D1's QLA1040: 31 is its NVRAM's 32 less one, 512 is fixed (qla1280.c)."""
    return _parallel("qla1280", ("0x1077", "0x1020"), 512, "31", "qla1280")


def aic7xxx() -> Described:
    """D1's 2940UW: 8 is AIC7XXX_CMDS_PER_DEVICE of Debian's build, 253 is AHC_MAX_QUEUE."""
    return _parallel("aic7xxx", ("0x9004", "0x8178"), 253, "8", "aic7xxx")


def sym53c8xx() -> Described:
    """D1's SYM8751SP: 16 is cmd_per_lun's default; can_queue 446 was measured on QEMU."""
    return _parallel("sym53c8xx", ("0x1000", "0x000f"), 446, "16", "cmd_per_lun", "tag_ctrl")


def nvme() -> Described:
    """One namespace over one controller; the tag set is io_queue_depth (1024) less one."""
    disk = Disk("nvme0n1", scheduler="[none] mq-deadline ", tags=1023, nr_requests=1023)
    function = Function(
        "0000:04:00.0",
        "nvme",
        ("0x144d", "0xa80a", "0x144d", "0xa801"),
        "0x010802",
        link=GEN4,
        version="1.0",
        controller=Controller("nvme0", (Namespace(disk),), model="SAMSUNG MZWLJ3T8", queue_count=3),
        vectors=vectors(("nvme0q0",), ("nvme0q1", "nvme0q2")),
        parameters=parameters(
            "io_queue_depth", "write_queues", "poll_queues", "use_threaded_interrupts"
        ),
    )
    return Described((function,))


def virtio_scsi() -> Described:
    """cmd_per_lun 128 of can_queue 256, to which depths are clamped: measured on QEMU."""
    lun = Lun("0:0:0:0", Disk("sda", tags=256, hw_queues=2), "QEMU", queue_depth="128")
    return Described(
        (
            Function(
                "0000:00:04.0",
                "virtio-pci",
                ("0x1af4", "0x1048", "0x1af4", "0x1100"),
                "0x010000",
                virtio=0,
                hosts=(Host(0, "virtio_scsi", 256, 128, hw_queues=2, luns=(lun,)),),
                vectors=vectors(
                    ("virtio0-config", "virtio0-control", "virtio0-event"), ("virtio0-request",)
                ),
                parameters=parameters("virtscsi_poll_queues"),
            ),
        )
    )


def virtio_blk() -> Described:
    """A disk that is no SCSI device: it has no queue_depth."""
    return Described(
        (
            Function(
                "0000:00:06.0",
                "virtio-pci",
                ("0x1af4", "0x1042", "0x1af4", "0x1100"),
                "0x010000",
                virtio=0,
                virtio_driver="virtio_blk",
                disk=Disk("vda", tags=128),
                vectors=vectors(("virtio0-config",), ("virtio0-req.0",)),
                parameters=parameters("queue_depth", "num_request_queues", "poll_queues"),
            ),
        )
    )


def vmw_pvscsi() -> Described:
    """254 is PVSCSI_DEFAULT_QUEUE_DEPTH (vmw_pvscsi.h); one vector, free."""
    lun = Lun("0:0:0:0", Disk("sda", tags=254), "VMware", queue_depth="254")
    return Described(
        (
            Function(
                "0000:00:05.0",
                "vmw_pvscsi",
                ("0x15ad", "0x07c0", "0x15ad", "0x07c0"),
                version="1.0.7.0-k",
                hosts=(Host(0, "vmw_pvscsi", 254, 254, luns=(lun,)),),
                vectors=vectors(("vmw_pvscsi",)),
                parameters=parameters(
                    "ring_pages", "cmd_per_lun", "disable_msi", "disable_msix", "use_req_threshold"
                ),
            ),
        )
    )


def iscsi_tcp() -> Described:
    """A session host on no PCI function; 32 is open-iscsi's default of queue_depth."""
    lun = Lun("0:0:0:0", Disk("sda", tags=113), "LIO-ORG", queue_depth="32", port="session1")
    host = Host(0, "iscsi_tcp", 113, 32, luns=(lun,))
    return Described(bare=(("platform", host),), modules={"iscsi_tcp": parameters("max_lun")})


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
                parameters=parameters("marvell_enable", "mobile_lpm_policy"),
            ),
        )
    )


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


def scsi_debug() -> Described:
    """The kernel's simulation: 192 is its SDEBUG_CANQUEUE."""
    host = lab().bare[0][1]
    modules = {"scsi_debug": parameters("max_queue", "host_max_queue", "ndelay")}
    return Described(bare=(("pseudo_0/adapter0", host),), modules=modules)


MACHINES: dict[str, Callable[[], Described]] = {
    build.__name__: build
    for build in (
        aacraid,
        ahci,
        aic7xxx,
        hpsa,
        ipr,
        iscsi_tcp,
        lpfc,
        megaraid_sas,
        mpi3mr,
        mpt3sas,
        mptsas,
        nvme,
        qla1280,
        qla2xxx,
        scsi_debug,
        smartpqi,
        sym53c8xx,
        virtio_blk,
        virtio_scsi,
        vmw_pvscsi,
    )
}
"""The machine of every family, by its name."""
