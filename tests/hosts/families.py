"""One described machine for every adapter family: what its driver shows when all is well.

Figures that a comment names with their source are read from the kernel's source, or measured
where it says so. Parameters of modules are those of Debian's own (``modules.json``). Everything
else (addresses, serial and version numbers, sizes of hosts, names of drives) is made up, and
nothing rests on it.
"""

from collections.abc import Callable, Mapping

from tests.hosts import fabrics, hbas, parallel, raid, virtual
from tests.hosts.tree import Described

MACHINES: dict[str, Callable[[], Described]] = {
    build.__name__: build
    for build in (
        hbas.mpi3mr,
        hbas.mpt3sas,
        hbas.mptsas,
        hbas.ahci,
        hbas.libsas,
        raid.megaraid_sas,
        raid.smartpqi,
        raid.hpsa,
        raid.aacraid,
        raid.ipr,
        raid.arcmsr,
        fabrics.qla2xxx,
        fabrics.lpfc,
        fabrics.iscsi_tcp,
        parallel.qla1280,
        parallel.aic7xxx,
        parallel.sym53c8xx,
        parallel.mptspi,
        virtual.nvme,
        virtual.virtio_scsi,
        virtual.virtio_blk,
        virtual.vmw_pvscsi,
        virtual.scsi_debug,
        virtual.hv_storvsc,
        virtual.xen_blkfront,
        virtual.ibmvscsi,
    )
}
"""The machine of every family, by its name."""


def describe(name: str, machines: Mapping[str, Callable[[], Described]] = MACHINES) -> Described:
    """Return a described machine. AssertionError if there is none of this name."""
    assert name in machines, (
        f"no machine is described for {name}: write one in tests/hosts, and add it to MACHINES in "
        "tests/hosts/families.py"
    )
    return machines[name]()
