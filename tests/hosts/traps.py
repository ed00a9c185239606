"""Described machines for what goes wrong with one family or another, one for each trap.

As in ``families``: figures with a source are read there, all others are made up.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.hosts import fabrics, hbas, raid
from tests.hosts.machines import ATA_PAGE, HDD_PAGE, SAS_PORTS, SERIAL_PAGE, SSD_PAGE, lab
from tests.hosts.parts import GEN1, GEN3, flat, sas, sata, vectors
from tests.hosts.tree import (
    Controller,
    Cpus,
    Described,
    Disk,
    Function,
    Host,
    Lun,
    Mapped,
    Namespace,
    Odd,
    Subsystem,
    Value,
    Values,
)


def mpi3mr_flat() -> Described:
    """Firmware that offers multipath: everything on channel 0, and no SAS class anywhere.

    That is how a 9600-24i was reported to look. SAS is told by the target port of page 83h.
    """
    luns = (
        flat("0:0:8:0", Disk("sda", tags=8000), "SEAGATE", "32", vpd_pg83=SAS_PORTS),
        flat("0:0:9:0", Disk("sdb", tags=8000), "ATA", "32", vpd_pg89=ATA_PAGE),
        flat("0:0:10:0", Disk("sdc", tags=8000), "NVMe", "32"),
        flat("0:0:11:0", Disk("sdd", tags=8000), "BROADCOM", "32"),
        flat("0:0:12:0", Disk("sde", tags=8000), "SEAGATE", "32"),
    )
    function = hbas.mpi3mr().functions[0]
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=luns),)),))


def mpi3mr_megaraid() -> Described:
    """The same chip as MegaRAID: no product that is known, a volume with a maker's own name."""
    function = hbas.mpi3mr().functions[0]
    luns = (flat("0:1:0:0", Disk("sda", tags=8000), "DELL", "256", vpd_pgb1=SSD_PAGE),)
    return Described(
        (
            replace(
                function,
                ids=("0x1000", "0x00a5", "0x1028", "0x2114"),
                hosts=(replace(function.hosts[0], luns=luns),),
            ),
        )
    )


def mpt3sas_9300() -> Described:
    """A chip before SAS3.5: SATA depths above 32 are clamped in silence (mpt3sas_scsih.c)."""
    luns = (sata(0, 1, Disk("sda", tags=9664)), sas(0, 2, Disk("sdb", tags=9664), depth="32"))
    attributes: dict[str, Value] = {"version_fw": "16.00.12.00"}
    host = Host(0, "mpt3sas", 9664, 7, luns=luns, attributes=attributes)
    ids = ("0x1000", "0x0097", "0x1000", "0x3090")
    return Described(
        (Function("0000:01:00.0", "mpt3sas", ids, "0x010700", link=GEN3, hosts=(host,)),)
    )


def mpt2sas() -> Described:
    """A SAS2 chip, bound to no driver that udev shows: proc_name still says mpt2sas."""
    host = Host(0, "mpt2sas", 3072, 7, luns=(sas(0, 1, Disk("sda"), solid=False),))
    ids = ("0x1000", "0x0072", "0x1000", "0x3020")
    return Described((Function("0000:01:00.0", "mpt2sas", ids, "0x010700", hosts=(host,)),))


def serial_file() -> Described:
    """A drive without a world-wide name, whose serial number only the SCSI layer's file has.

    Newer kernels have the file (drivers/scsi/scsi_sysfs.c: serial_show), here without page 80h.
    """
    function = raid.megaraid_sas().functions[0]
    luns = (
        flat("0:1:3:0", Disk("sda"), "SEAGATE", "256", serial="  ZX 42", vpd_pg83=SAS_PORTS),
        flat("0:1:4:0", Disk("sdb"), "SEAGATE", "256", serial="OTHER", vpd_pg83=SAS_PORTS),
    )
    file_only, both = (replace(lun, wwid="") for lun in luns)
    luns = (file_only, replace(both, device={**both.device, "vpd_pg80": SERIAL_PAGE}))
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=luns),)),))


def reserved_tags() -> Described:
    """A driver that reserves commands: the tag set is one larger than can_queue.

    7.3 reports both so (drivers/scsi/scsi_lib.c: scsi_mq_setup_tags); measured with scsi_debug.
    """
    function = raid.megaraid_sas().functions[0]
    block: Values = {"mq/0/nr_reserved_tags": "1"}
    solid = Disk("sda", tags=976, nr_requests=976, scheduler="[none] mq-deadline", block=block)
    luns = (
        flat("0:1:3:0", solid, "NVMe", "64", vpd_pgb1=SSD_PAGE),
        flat("0:1:4:0", Disk("sdb", tags=976, block=block), "SEAGATE", "488", vpd_pg83=SAS_PORTS),
    )
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=luns),)),))


def megaraid_throttled() -> Described:
    """After timeouts can_queue is 16 (MEGASAS_THROTTLE_QUEUE_DEPTH), and depths stay at 256."""
    function = raid.megaraid_sas().functions[0]
    host = replace(function.hosts[0], can_queue=16)
    return Described((replace(function, hosts=(host,)),))


def ipr_gen1() -> Described:
    """A 57B4 in a Gen1 slot, where each array needs a depth of 64 (D4-1)."""
    return raid.ipr(GEN1, ("0x034a", "0x033b"))


def ipr_57b5() -> Described:
    """One of the two older cards of D4, on the other chip."""
    return raid.ipr(GEN1, ("0x033d", "0x033c"))


def ipr_57c4() -> Described:
    """The other of them."""
    return raid.ipr(GEN1, ("0x033d", "0x0354"))


def lpfc_lp10000() -> Described:
    """D2's card: Thor on PCI-X without a link, SLI-3, two vectors that anybody may move.

    lpfc_fcp_imax is there and takes nothing but EINVAL (lpfc_attr.c).
    """
    function = fabrics.lpfc().functions[0]
    host = function.hosts[0]
    attributes: dict[str, Value] = {
        **host.attributes,
        "modelname": "LP10000",
        "fwrev": "1.92a1 (T3D1.92A1), sli-3",
    }
    return Described(
        (
            replace(
                function,
                ids=("0x10df", "0xfa00", "0x10df", "0xfa00"),
                link=None,
                hosts=(replace(host, attributes=attributes, hw_queues=1),),
                vectors=vectors(("lpfc:sp", "lpfc:fp")),
            ),
        )
    )


def fc_multipath() -> Described:
    """One LUN of an array over two FC adapters, joined by device-mapper."""
    first, second = fabrics.qla2xxx().functions[0], fabrics.lpfc().functions[0]
    first_host = replace(first.hosts[0], luns=(replace(first.hosts[0].luns[0], wwid="naa.6006"),))
    lun = replace(
        second.hosts[0].luns[0],
        address="1:0:0:0",
        disk=Disk("sdb", scheduler="[none] mq-deadline", tags=8000),
        vendor="DGC",
        model="VRAID",
        wwid="naa.6006",
        port="rport-1:0-0",
    )
    two = replace(second.hosts[0], number=1, luns=(lun,))
    return Described(
        (
            replace(first, hosts=(first_host,)),
            replace(second, address="0000:02:00.0", hosts=(two,), vectors=()),
        ),
        mapped=(Mapped(Disk("dm-0", tags=2048), "mpath-36006", ("sda", "sdb")),),
    )


def fc_arrays() -> Described:
    """Two arrays: a CLARiiON behind a qla2xxx, by two paths to one port, a Hitachi behind an lpfc.

    What LUNs and ports are called is what such arrays call them; both depths are the driver's 64.
    """
    first, second = fabrics.qla2xxx().functions[0], fabrics.lpfc().functions[0]
    clariion = tuple(
        replace(
            lun,
            model="RAID 5",
            wwid=f"naa.6006016{number}",
            device={
                "access_state": ("active/optimized", "active/non-optimized")[number],
                "preferred_path": str(1 - number),
                "../fc_transport/target0:0:0/port_name": "0x500601613b240f3a",
            },
        )
        for number, lun in enumerate(first.hosts[0].luns)
    )
    hitachi = replace(
        second.hosts[0].luns[0],
        address="1:0:0:0",
        disk=Disk("sdc", scheduler="[none] mq-deadline", tags=8000),
        vendor="HITACHI",
        model="OPEN-V",
        wwid="naa.60060e80",
        port="rport-1:0-0",
        device={"access_state": Odd.EIO, "preferred_path": Odd.EIO},
    )
    first_host = replace(first.hosts[0], luns=clariion)
    two = replace(second.hosts[0], number=1, luns=(hitachi,))
    return Described(
        (
            replace(first, hosts=(first_host,)),
            replace(second, address="0000:02:00.0", hosts=(two,), vectors=()),
        )
    )


def one_name() -> Described:
    """Three LUNs of an array: two with one name, behind ports that have one name as well."""
    function = fabrics.qla2xxx().functions[0]
    luns = tuple(
        replace(
            function.hosts[0].luns[0],
            address=f"0:0:{number}:0",
            disk=Disk(f"sd{'abc'[number]}"),
            wwid="naa.6006016c" if number == 2 else "naa.6006016a",
            port=f"rport-0:0-{number}",
            device={f"../fc_transport/target0:0:{number}/port_name": f"0x50060160{number // 2}"},
        )
        for number in range(3)
    )
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=luns),)),))


def mixed_multipath() -> Described:
    """One drive over two adapters, of which the second takes 48 commands in all."""
    functions = tuple(
        Function(
            f"0000:0{number + 1}:00.0",
            driver,
            ("0x1000", device, "0x1000", "0x3090"),
            "0x010700",
            link=GEN3,
            hosts=(
                Host(
                    number,
                    driver,
                    most,
                    7,
                    luns=(sas(number, 1, Disk(f"sd{'ab'[number]}", tags=most), depth="32"),),
                ),
            ),
        )
        for number, (driver, device, most) in enumerate(
            (("mpt3sas", "0x0097", 9664), ("mpi3mr", "0x00a5", 48))
        )
    )
    maps = (Mapped(Disk("dm-0", tags=2048), "mpath-35000", ("sda", "sdb")),)
    return Described(functions, mapped=maps)


def ahci_noncq() -> Described:
    """libata was told to queue nothing: its answer to any depth but 1 is EINVAL, each time."""
    function = hbas.ahci().functions[0]
    host = function.hosts[0]
    lun = replace(host.luns[0], queue_depth="1")
    without_ncq = replace(function, hosts=(replace(host, luns=(lun,)),))
    return Described((without_ncq,), cpus=Cpus(command_line="ro libata.force=1:noncq quiet"))


def nvme_shared() -> Described:
    """One namespace over two controllers: two hidden paths below a head without a queue."""
    machine = lab()
    functions = tuple(
        function
        for function in machine.functions
        if function.controller and function.controller.namespaces[0].hidden
    )
    return Described(functions, subsystems=machine.subsystems)


def pcie_switch() -> Described:
    """A 9400, and the management ports of PCIe switches that mpt3sas drives as well.

    The ids are MPI26_ATLAS_PCIe_SWITCH_DEVID (mpt3sas_base.h) and MPI2_MFGPAGE_DEVID_SWITCH_MPI_EP
    (mpi/mpi2_cnfg.h); the subsystem ids are made up.
    """
    functions = [hbas.mpt3sas().functions[0]]
    for number, device in enumerate(("0x00b2", "0x02b0", "0x02b1"), start=1):
        host = Host(number, "mpt3sas", 128, 7, attributes={"version_fw": "01.00.00.00"})
        ids = ("0x1000", device, "0x1000", "0x0001")
        function = Function(f"0000:0{number + 4}:00.0", "mpt3sas", ids, "0x010700", hosts=(host,))
        functions.append(function)
    return Described(tuple(functions))


def dual_port_nvme(drives: int = 10, *, always_on: bool = False) -> Described:
    """NVMe drives below a head each, over one of their two ports.

    Without ``always_on``, which Linux 6.16 has, only a drive with several ports has a head
    (drivers/nvme/host/multipath.c: nvme_mpath_alloc_disk).
    """
    functions, subsystems = [], []
    for number in range(drives):
        hidden = Disk(f"nvme{number}c{number}n1", scheduler="[none] mq-deadline ", tags=1023)
        path = Namespace(hidden, f"eui.{number:016x}", hidden=True)
        controller = Controller(f"nvme{number}", (path,), "MZWLR3T8", f"S5X{number}")
        ids = ("0x144d", "0xa824", "0x144d", "0xa801")
        functions.append(
            Function(f"0000:{number + 4:02x}:00.0", "nvme", ids, "0x010802", controller=controller)
        )
        head = Namespace(Disk(f"nvme{number}n1", scheduler="none", tags=None), path.wwid)
        subsystems.append(Subsystem(f"nvme-subsys{number}", (head,), "MZWLR3T8", f"S5X{number}"))
    modules = {"nvme_core": {"multipath_always_on": "Y" if always_on else "N"}}
    return Described(tuple(functions), subsystems=tuple(subsystems), modules=modules)


def zoned(scheduler: str = "[mq-deadline] none", **queue: str) -> Described:
    """A host-managed drive, which no scheduler but mq-deadline may serve: left alone.

    Kernels before 6.10 offer it only these two schedulers (block/elevator.c: elv_support_features).
    """
    disk = Disk(
        "sda", rotational=True, scheduler=scheduler, queue={"zoned": "host-managed", **queue}
    )
    lun = replace(sas(0, 1, disk, solid=False), device={"type": "20", "vpd_pgb1": HDD_PAGE})
    host = Host(0, "mpt3sas", 9000, 7, luns=(lun,))
    return Described((Function("0000:01:00.0", "mpt3sas", hosts=(host,)),))


def stranger() -> Described:
    """A driver that is no family's: a drive that says nothing of itself stays unknown."""
    lun = Lun("0:0:0:0", Disk("sda"), "ACME")
    function = Function("0000:01:00.0", "mvumi", hosts=(Host(0, "mvumi", luns=(lun,)),))
    return Described((function,))


MACHINES: dict[str, Callable[[], Described]] = {
    build.__name__: build
    for build in (
        ahci_noncq,
        fc_arrays,
        fc_multipath,
        ipr_57b5,
        ipr_57c4,
        ipr_gen1,
        lpfc_lp10000,
        megaraid_throttled,
        reserved_tags,
        serial_file,
        mixed_multipath,
        mpi3mr_flat,
        mpi3mr_megaraid,
        mpt2sas,
        mpt3sas_9300,
        nvme_shared,
        stranger,
        zoned,
    )
}
"""The machine of every trap, by its name."""
