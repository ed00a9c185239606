"""One server in two boots: the same drives in the same bays under other numbers of the kernel."""

from dataclasses import replace

from tests.hosts.machines import SSD_PAGE
from tests.hosts.tree import (
    Controller,
    Described,
    Disk,
    Function,
    Host,
    Lun,
    Namespace,
    Vector,
)

NAMES = ("sda", "sdb", "sdc", "sdd", "sde")


def server(first: int = 0, *, names: tuple[str, ...] = NAMES, swapped: bool = False) -> Described:
    """Return it with host numbers and NVMe instances from ``first`` on, its disks as ``names``.

    In a boot in which a drive has been ``swapped``, another SAS SSD is in the bay of the second.
    """
    return Described(
        (
            _sas(first, names, swapped),
            _flat(first + 1, names[2]),
            _sata(first + 2, names[3]),
            _nvme(first),
        ),
        bare=(("platform", _iscsi(first + 5, names[4])),),
    )


def _sas(host: int, names: tuple[str, ...], swapped: bool) -> Function:
    def drive(bay: int, wwn: str) -> Lun:
        # The transport class numbers end devices and targets as it finds them.
        number = bay + 3 * host
        return Lun(
            f"{host}:0:{number}:0",
            Disk(names[bay]),
            wwid=f"naa.5000c500{wwn}0",
            port=f"port-{host}:{number}/end_device-{host}:{number}",
            protocols="ssp",
            device={"vpd_pgb1": SSD_PAGE},
            said={
                f"sas_device/end_device-{host}:{number}/sas_address": f"0x5000c500{wwn}1",
            },
        )

    second = "bbbbbbb" if swapped else "a1b2c3d"
    luns = (drive(0, "a1b2c3e"), drive(1, second))
    vectors = tuple(Vector(40 + 9 * host + n, f"mpt3sas{host}-msix{n}") for n in range(2))
    host_adapter = Host(host, "mpt3sas", can_queue=9664, luns=luns)
    return Function("0000:01:00.0", "mpt3sas", hosts=(host_adapter,), vectors=vectors)


def _flat(host: int, name: str) -> Function:
    """A driver without a transport class: what it calls target and LUN is the drive's place."""
    lun = Lun(f"{host}:0:4:0", Disk(name), wwid="naa.6000", device={"vpd_pgb1": SSD_PAGE})
    host_adapter = Host(host, "mpi3mr", can_queue=4000, luns=(lun,))
    return Function("0000:02:00.0", "mpi3mr", hosts=(host_adapter,))


def _sata(host: int, name: str) -> Function:
    """One function with two ports, of which the second has a disk."""
    lun = Lun(f"{host + 1}:0:0:0", Disk(name, tags=32), vendor="ATA", wwid="naa.5002")
    ports = tuple(f"ata{host + 1 + n}" for n in range(2))
    empty, used = (
        Host(
            host + n,
            "ahci",
            can_queue=32,
            under=port,
            said={f"ata_port/{port}/port_no": str(n + 1)},
        )
        for n, port in enumerate(ports)
    )
    return Function("0000:00:1f.2", "ahci", hosts=(empty, replace(used, luns=(lun,))))


def _nvme(instance: int) -> Function:
    disk = Disk(f"nvme{instance}n1", scheduler="[none] mq-deadline ", tags=1023, nr_requests=1023)
    controller = Controller(f"nvme{instance}", (Namespace(disk),))
    vectors = tuple(Vector(70 + 9 * instance + n, f"nvme{instance}q{n}") for n in range(3))
    return Function("0000:04:00.0", "nvme", controller=controller, vectors=vectors)


def _iscsi(host: int, name: str) -> Host:
    session = f"session{host}"
    connection = f"connection{host}:0"
    lun = Lun(
        f"{host}:0:0:1",
        Disk(name, tags=113),
        "LIO-ORG",
        wwid="naa.6001405",
        port=session,
        said={
            f"iscsi_session/{session}/targetname": "iqn.2003-01.org.linux-iscsi:disk",
            f"{connection}/iscsi_connection/{connection}/persistent_address": "10.0.0.1",
            f"{connection}/iscsi_connection/{connection}/persistent_port": "3260",
        },
    )
    return Host(host, "iscsi_tcp", 113, 32, luns=(lun,))
