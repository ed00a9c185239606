"""The machines of native NVMe and of what a hypervisor or the kernel makes up.

Figures with a source are read there; all others are made up (``families`` says more).
"""

from tests.hosts.machines import lab
from tests.hosts.parts import GEN4, parameters, vectors
from tests.hosts.tree import Controller, Described, Disk, Function, Host, Lun, Namespace


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
        parameters=parameters("nvme"),
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
                parameters=parameters("virtio_scsi"),
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
                parameters=parameters("virtio_blk"),
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
                parameters=parameters("vmw_pvscsi"),
            ),
        )
    )


def scsi_debug() -> Described:
    """The kernel's simulation: 192 is its SDEBUG_CANQUEUE."""
    host = lab().bare[0][1]
    modules = {"scsi_debug": parameters("scsi_debug")}
    return Described(bare=(("pseudo_0/adapter0", host),), modules=modules)


def hv_storvsc() -> Described:
    """A disk of Hyper-V, on the VMBus: 2048 is STORVSC_MAX_CMDS_PER_LUN of newer kernels."""
    disk = Disk("sda", tags=1024, hw_queues=2)
    lun = Lun("0:0:0:0", disk, "Msft", "Virtual Disk", queue_depth="1024")
    host = Host(0, "storvsc_host", 1024, 2048, hw_queues=2, luns=(lun,), driver="hv_storvsc")
    path = "LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/f8b3781a-1e82-4818-a1c3-63d806ec15bb"
    return Described(bare=((path, host),), modules={"hv_storvsc": parameters("hv_storvsc")})


def xen_blkfront() -> Described:
    """A disk of Xen: its tag set is the ring of one page, 32 requests (xen-blkfront.c)."""
    disk = Disk("xvda", scheduler="[none] mq-deadline", tags=32, hw_queues=2)
    return Described(
        elsewhere=(("vbd-51712", disk),),
        bound={"vbd-51712": "vbd"},
        modules={"xen_blkfront": parameters("xen_blkfront")},
    )


def ibmvscsi() -> Described:
    """A disk that a VIOS serves: 16 is IBMVSCSI_CMDS_PER_LUN_DEFAULT, 100 are taken in all."""
    lun = Lun("0:0:1:0", Disk("sda", tags=100), "AIX", "VDASD", queue_depth="16")
    host = Host(0, "ibmvscsi", 100, 16, luns=(lun,), driver="ibmvscsi")
    return Described(bare=(("vio/30000002", host),))
