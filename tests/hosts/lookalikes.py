"""Described machines of disks that look like something else, or like nothing that is known.

As in ``families``: figures with a source are read there, all others are made up.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.hosts import fabrics, hbas, raid, virtual
from tests.hosts.machines import ATA_PAGE, SAS_PORTS, SSD_PAGE
from tests.hosts.parts import flat, sas
from tests.hosts.tree import (
    Controller,
    Described,
    Disk,
    Function,
    Host,
    Lun,
    Namespace,
    Subsystem,
    Values,
)


def vmware_lsi() -> Described:
    """VMware's LSI Logic SAS: an mptsas with the transport class, and a disk that is a file."""
    function = hbas.mptsas().functions[0]
    lun = replace(
        sas(0, 0, Disk("sda", tags=127), depth="64"), vendor="VMware,", model="VMware Virtual S"
    )
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=(lun,)),)),))


def vmware_sata() -> Described:
    """VMware's SATA controller: libata says ATA, and the model says whose disk it is."""
    function = hbas.ahci().functions[0]
    lun = replace(function.hosts[0].luns[0], model="VMware Virtual S")
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=(lun,)),)),))


def msa_sas() -> Described:
    """Two arrays that are attached by SAS: one that is known by name, one by ALUA alone."""
    function = hbas.mpt3sas().functions[0]
    listed_array = replace(sas(0, 1, Disk("sda", tags=9000)), vendor="HPE", model="MSA 2050 SAS")
    unlisted_array = replace(sas(0, 2, Disk("sdb", tags=9000)), vendor="ACME", model="ARRAY")
    alua = {**unlisted_array.device, "access_state": "active/optimized", "preferred_path": "1"}
    luns = (listed_array, replace(unlisted_array, device=alua))
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=luns),)),))


def perc_h755n() -> Described:
    """A PERC H755N: its drives without RAID are on channel 2, where volumes are expected."""
    function = raid.megaraid_sas().functions[0]
    luns = (
        flat("0:2:8:0", Disk("sda"), "NVMe", "64"),
        flat("0:2:9:0", Disk("sdb"), "SEAGATE", "256", vpd_pg83=SAS_PORTS, vpd_pgb1=SSD_PAGE),
        flat("0:3:111:0", Disk("sdc"), "DELL", "256", vpd_pgb1=SSD_PAGE),
    )
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=luns),)),))


def bridges() -> Described:
    """Drives of ATA behind bridges: SRP of an InfiniBand card, and FireWire."""
    srp = Lun("0:0:0:0", Disk("sda"), "ATA", device={"vpd_pg89": ATA_PAGE})
    card = Function(
        "0000:81:00.0",
        "mlx5_core",
        ("0x15b3", "0x1017", "0x15b3", "0x0020"),
        "0x020700",
        hosts=(Host(0, "ib_srp", 62, 62, under="infiniband_srp/srp-mlx5_0-1", luns=(srp,)),),
    )
    fire = Lun("1:0:0:0", Disk("sdb"), "ATA", device={"vpd_pg89": ATA_PAGE})
    port = Function(
        "0000:05:01.0",
        "firewire_ohci",
        ("0x104c", "0x8024", "0x104c", "0x8024"),
        "0x0c0010",
        hosts=(Host(1, "sbp2", 1, 1, under="fw1/fw1.0", luns=(fire,)),),
    )
    return Described((card, port))


def nvme_fabric() -> Described:
    """An array over NVMe/TCP, with its path hidden below a head."""
    disk = Disk("nvme0c0n1", scheduler="[none] mq-deadline ", tags=127, hw_queues=2)
    path = Namespace(disk, "uuid.77a1", hidden=True)
    controller = Controller(
        "nvme0",
        (path,),
        model="NetApp ONTAP Controller",
        serial="81FpE",
        transport="tcp",
        attributes={"ctrl_loss_tmo": "600", "reconnect_delay": "10"},
    )
    head = Namespace(Disk("nvme0n1", scheduler="none", tags=None), "uuid.77a1")
    return Described(
        fabrics=(controller,), subsystems=(Subsystem("nvme-subsys0", (head,), serial="81FpE"),)
    )


def nvme_cloud() -> Described:
    """An EBS volume, and beside it a local SSD of the same cloud, which is a drive."""
    volume = virtual.nvme().functions[0]
    assert volume.controller is not None
    sleep: Values = {"power/pm_qos_latency_tolerance_us": "100000"}
    ebs = replace(volume.controller, model="Amazon Elastic Block Store", attributes=sleep)
    disk = Disk("nvme1n1", scheduler="[none] mq-deadline ", tags=1023, nr_requests=1023)
    local = Controller(
        "nvme1",
        (Namespace(disk, "eui.0025385b71b00c70"),),
        model="Amazon EC2 NVMe Instance Storage",
        serial="AWS22",
        attributes=sleep,
    )
    return Described(
        (
            replace(volume, controller=ebs),
            replace(volume, address="0000:05:00.0", controller=local, vectors=(), parameters={}),
        )
    )


def nvme_hdd() -> Described:
    """An NVMe hard disk, and a solid NVMe drive of the same host.

    The kernel takes ``rotational`` from the namespace (drivers/nvme/host/core.c, since 6.13).
    """
    solid = virtual.nvme().functions[0]
    disk = Disk("nvme1n1", rotational=True, scheduler="[none] mq-deadline ", tags=127)
    spinning = Controller(
        "nvme1", (Namespace(disk, "eui.5000c500a1b2c3d4"),), model="ST20000NM", serial="ZX201"
    )
    return Described(
        (
            solid,
            replace(solid, address="0000:05:00.0", controller=spinning, vectors=(), parameters={}),
        )
    )


def areca_passthrough() -> Described:
    """A drive that an Areca passes through: it says nothing that tells SAS from SATA."""
    function = raid.arcmsr().functions[0]
    lun = flat("0:0:1:0", Disk("sda", tags=128), "SEAGATE", "32")
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=(lun,)),)),))


def vsan_iscsi() -> Described:
    """A LUN whose vendor is a hypervisor's, behind iSCSI: an array like any other."""
    described = fabrics.iscsi_tcp()
    [(path, host)] = described.bare
    lun = replace(host.luns[0], vendor="VMware", model="Virtual SAN")
    return replace(described, bare=((path, replace(host, luns=(lun,))),))


def management_controller() -> Described:
    """A server with an SSD, virtual drives of its management controller, and its firmware's flash.

    Three of the drives can be removed, and one of these is mounted. The drive with tools cannot.
    Two drives with sectors of 520 bytes have no capacity, and one of these is mounted.
    """
    luns = []
    for number, (name, model, removable) in enumerate(
        (("sdw", "Virtual Floppy0", "1"), ("sdx", "Virtual HDisk0", "1"), ("sdy", "Tools", "0"))
    ):
        disk = Disk(name, 2880, tags=1, block={"removable": removable})
        address = f"17:0:0:{number}"
        luns.append(Lun(address, disk, vendor="AMI", model=model, wwid="", queue_depth="1"))
    drives = Host(17, "usb-storage", 1, 1, under="usb1/1-3/1-3:1.0", luns=tuple(luns))
    card = Lun(
        "18:0:0:0", Disk("sdz", 2880, tags=1, block={"removable": "1"}), vendor="AMI", wwid=""
    )
    floppy = Host(18, "usb-storage", 1, 1, under="usb1/1-4/1-4:1.0", luns=(card,))
    usb = "pci0000:00/0000:00:14.0"
    function = hbas.mpt3sas().functions[0]
    empty = (sas(0, 8, Disk("sde", 0, tags=9000)), sas(0, 9, Disk("sdf", 0, tags=9000)))
    host = replace(function.hosts[0], luns=(*function.hosts[0].luns, *empty))
    return Described(
        (replace(function, hosts=(host,)),),
        bare=((usb, drives), (usb, floppy)),
        elsewhere=(("pci0000:00/0000:00:1f.5/mtd/mtd0", Disk("mtdblock0", tags=1)),),
        mounts=(("sdx", "/mnt"), ("sdf", "/srv")),
    )


MACHINES: dict[str, Callable[[], Described]] = {
    build.__name__: build
    for build in (
        areca_passthrough,
        bridges,
        msa_sas,
        nvme_cloud,
        nvme_fabric,
        nvme_hdd,
        perc_h755n,
        vmware_lsi,
        vmware_sata,
        vsan_iscsi,
    )
}
"""The machine of each disguise, by its name."""
