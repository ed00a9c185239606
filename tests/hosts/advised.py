"""The machines of vendors that have advice: arrays, clouds, and what runs on disks.

Vendor and model are those of the vendors' own rules and of multipath-tools' table
(libmultipath/hwtable.c); all else is made up.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.hosts import fabrics, hbas, virtual
from tests.hosts.parts import parameters, sas
from tests.hosts.tree import (
    Controller,
    Described,
    Disk,
    Function,
    Host,
    Lun,
    Mapped,
    Namespace,
    Subsystem,
    Value,
)

_WWID = "naa.6001"


def _fibre(
    vendor: str,
    model: str,
    *,
    base: Callable[[], Described] = fabrics.lpfc,
    option: str | None = None,
    queue: dict[str, Value] | None = None,
    mapped: bool = False,
) -> Described:
    """Return one LUN of an array over a Fibre Channel card, under a map if it is to be.

    Its depth is the driver's own of today, or 32 where that is what its module's ``option`` says.
    """
    described = base()
    function = described.functions[0]
    host = function.hosts[0]
    lun = replace(
        host.luns[0],
        vendor=vendor,
        model=model,
        queue_depth="64" if option is None else "32",
        wwid=_WWID,
        disk=replace(
            host.luns[0].disk, queue=queue or {}, nr_requests=host.luns[0].disk.tags or 256
        ),
    )
    maps = (Mapped(Disk("dm-0", tags=2048), "mpath-36001", ("sda",)),) if mapped else ()
    loaded = parameters(function.driver, **({} if option is None else {option: "32"}))
    hosts = (replace(host, luns=(lun,)),)
    functions = (replace(function, hosts=hosts, parameters=loaded),)
    return replace(described, functions=functions, mapped=maps)


def pure() -> Described:
    """A FlashArray under a map, over Fibre Channel."""
    return _fibre("PURE", "FlashArray", mapped=True, queue={"add_random": "1"})


def nimble() -> Described:
    """A Nimble over an Emulex card, with what its rule would change."""
    queue: dict[str, Value] = {"add_random": "1", "rotational": "1", "read_ahead_kb": "4096"}
    return _fibre("Nimble", "Server", option="lpfc_lun_queue_depth", queue=queue)


def nimble_qla2xxx() -> Described:
    """A Nimble over a QLogic card."""
    return _fibre("Nimble", "Server", base=fabrics.qla2xxx, option="ql2xmaxqdepth")


def nimble_fnic() -> Described:
    """A Nimble over Cisco's card, which hbatune has no family for."""
    lun = Lun("0:0:0:0", Disk("sda"), "Nimble", "Server", queue_depth="32", port="rport-0:0-0")
    host = Host(0, "fnic", 975, 32, luns=(lun,))
    ids = ("0x1137", "0x0045", "0x1137", "0x012c")
    return Described((Function("0000:01:00.0", "fnic", ids, "0x0c0400", hosts=(host,)),))


def compellent() -> Described:
    """An SC Series array over Fibre Channel."""
    return _fibre("COMPELNT", "Compellent Vol")


def compellent_sas() -> Described:
    """An SC Series array that is attached by SAS."""
    function = hbas.mpt3sas().functions[0]
    lun = replace(sas(0, 1, Disk("sda", tags=9000)), vendor="COMPELNT", model="Compellent Vol")
    lun = replace(lun, device={**lun.device, "access_state": "active/optimized"})
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=(lun,)),)),))


def ontap_lun() -> Described:
    """A LUN of ONTAP over Fibre Channel."""
    return _fibre("NETAPP", "LUN C-Mode")


def eseries() -> Described:
    """A volume of an E-Series under a map."""
    return _fibre("NETAPP", "INF-01-00", mapped=True)


def vmware_disk() -> Described:
    """A virtual disk on VMware's own adapter."""
    function = virtual.vmw_pvscsi().functions[0]
    lun = replace(function.hosts[0].luns[0], vendor="VMware", model="Virtual disk")
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=(lun,)),)),))


def google_disk() -> Described:
    """A persistent disk of Google's cloud over virtio-scsi."""
    function = virtual.virtio_scsi().functions[0]
    lun = function.hosts[0].luns[0]
    disk = replace(lun.disk, rotational=True)
    lun = replace(lun, vendor="Google", model="PersistentDisk", disk=disk)
    return Described((replace(function, hosts=(replace(function.hosts[0], luns=(lun,)),)),))


def _local_nvme(model: str) -> Described:
    """Return a controller on PCI Express that calls itself ``model``."""
    function = virtual.nvme().functions[0]
    assert function.controller is not None
    return Described((replace(function, controller=replace(function.controller, model=model)),))


def google_nvme() -> Described:
    """A persistent disk of Google's cloud over NVMe."""
    return _local_nvme("nvme_card-pd")


def azure_nvme() -> Described:
    """A remote disk of Azure over NVMe."""
    return _local_nvme("MSFT NVMe Accelerator v1.0")


def ebs() -> Described:
    """A volume of EBS."""
    return _local_nvme("Amazon Elastic Block Store")


def ec2_instance() -> Described:
    """A local drive of an instance in Amazon's cloud."""
    return _local_nvme("Amazon EC2 NVMe Instance Storage")


def azure_disk() -> Described:
    """A managed disk of Azure on an SSD, which Hyper-V reports as rotational."""
    return _rotational(virtual.hv_storvsc())


def iscsi_hdd() -> Described:
    """An iSCSI LUN on HDDs."""
    return _rotational(fabrics.iscsi_tcp())


def nimble_iscsi() -> Described:
    """A Nimble over iSCSI, whose session has the default cmds_max."""
    return _iscsi("Nimble", "Server", fabrics.iscsi_tcp().bare[0][1].can_queue)


def threepar_iscsi() -> Described:
    """A 3PAR over iSCSI, whose session has the cmds_max that HPE recommends."""
    return _iscsi("3PARdata", "VV", 497)


def _iscsi(vendor: str, model: str, can_queue: int) -> Described:
    described = fabrics.iscsi_tcp()
    ((bus, host),) = described.bare
    luns = (replace(host.luns[0], vendor=vendor, model=model),)
    return replace(described, bare=((bus, replace(host, can_queue=can_queue, luns=luns)),))


def _rotational(described: Described) -> Described:
    """Return a machine without PCI functions whose only disk is rotational for the kernel."""
    ((bus, host),) = described.bare
    disk = replace(host.luns[0].disk, rotational=True)
    host = replace(host, luns=(replace(host.luns[0], disk=disk),))
    return replace(described, bare=((bus, host),))


def nvme_array(model: str, transport: str = "tcp") -> Described:
    """Return an array over NVMe: one controller, a hidden path, a head."""
    path = Namespace(Disk("nvme0c0n1", scheduler="[none] mq-deadline ", tags=127), "uuid.1", True)
    controller = Controller(
        "nvme0",
        (path,),
        model=model,
        serial="ARRAY",
        transport=transport,
        attributes={"ctrl_loss_tmo": "600", "reconnect_delay": "10"},
    )
    head = Namespace(Disk("nvme0n1", scheduler="none", tags=None), "uuid.1")
    system = Subsystem("nvme-subsys0", (head,), model=model, serial="ARRAY")
    return Described(fabrics=(controller,), subsystems=(system,))


def ontap_nvme() -> Described:
    """ONTAP over NVMe/TCP."""
    return nvme_array("NetApp ONTAP Controller")


def ontap_nvme_fc() -> Described:
    """ONTAP over NVMe/FC, for which no ctrl_loss_tmo is advised."""
    return nvme_array("NetApp ONTAP Controller", "fc")


def eseries_nvme() -> Described:
    """An E-Series over NVMe."""
    return nvme_array("NetApp E-Series")


def alletra_nvme() -> Described:
    """An Alletra Storage MP over NVMe/TCP."""
    return nvme_array("HPE Alletra")


def vast_nvme() -> Described:
    """VAST over NVMe/RDMA, for which its rule holds as well."""
    return nvme_array("VASTData", "rdma")


def database() -> Described:
    """A disk that turns, an SSD and an NVMe drive, which may be used for anything."""
    function = hbas.mpt3sas().functions[0]
    luns = (
        sas(0, 1, Disk("sda", tags=9000, rotational=True), solid=False),
        sas(0, 2, Disk("sdb", tags=9000)),
    )
    host = replace(function.hosts[0], luns=luns)
    return Described((replace(function, hosts=(host,)), virtual.nvme().functions[0]))


MACHINES: dict[str, Callable[[], Described]] = {
    build.__name__: build
    for build in (
        alletra_nvme,
        azure_disk,
        azure_nvme,
        compellent,
        compellent_sas,
        database,
        ebs,
        ec2_instance,
        eseries,
        eseries_nvme,
        google_disk,
        google_nvme,
        iscsi_hdd,
        nimble,
        nimble_fnic,
        nimble_iscsi,
        nimble_qla2xxx,
        ontap_lun,
        ontap_nvme,
        ontap_nvme_fc,
        pure,
        threepar_iscsi,
        vast_nvme,
        vmware_disk,
    )
}
"""The machine of each vendor, by its name."""
