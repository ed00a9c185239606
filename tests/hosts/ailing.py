"""A described machine with one of each ailment that `check` looks for on the bus and the disks."""

from dataclasses import replace

from tests.hosts import hbas
from tests.hosts.parts import GEN3, GEN4
from tests.hosts.tree import Described, Link, Port, Value, Values


def counted(correctable: int, nonfatal: int, fatal: int) -> dict[str, Value]:
    """Return the counters of a function, laid out as by aer.c: aer_stats_dev_attr."""
    return {
        "aer_dev_correctable": f"RxErr {correctable}\nBadTLP 0\nTOTAL_ERR_COR {correctable}",
        "aer_dev_nonfatal": f"Undefined 0\nCmpltTO {nonfatal}\nTOTAL_ERR_NONFATAL {nonfatal}",
        "aer_dev_fatal": f"Undefined 0\nDLP {fatal}\nTOTAL_ERR_FATAL {fatal}",
    }


def received(correctable: int, nonfatal: int, fatal: int) -> Values:
    """Return a root port's own totals (aer.c: aer_stats_rootport_attr)."""
    return {
        "aer_rootport_total_err_cor": str(correctable),
        "aer_rootport_total_err_nonfatal": str(nonfatal),
        "aer_rootport_total_err_fatal": str(fatal),
    }


def speed(link: Link) -> Values:
    """Return what a port says that it can do."""
    return {"max_link_speed": link.max_speed, "max_link_width": link.max_width}


def ailing() -> Described:
    """A 9400 at Gen1 in a Gen3 slot behind a switch, limited by its option, with sick disks.

    iotmo_cnt and ioerr_cnt are hexadecimal (scsi_sysfs.c: show_iostat).
    """
    function = hbas.mpt3sas().functions[0]
    host = function.hosts[0]
    sick: Values = {
        "iodone_cnt": "0x1000",
        "ioerr_cnt": "0x40",
        "iotmo_cnt": "0x10",
        "scsi_disk/0:0:1:0/cache_type": "write back",
    }
    first = replace(host.luns[0], device={**host.luns[0].device, **sick})
    luns = (first, *host.luns[1:])
    attributes = {**host.attributes, "fw_queue_depth": "9680"}
    parameters = {**function.parameters, "max_queue_depth": "1000", "max_msix_vectors": "1"}
    ports = (
        Port("0000:00:01.0", {**speed(GEN4), **counted(0, 0, 0), **received(7, 2, 0)}),
        Port("0000:02:00.0", {**speed(GEN3), **counted(2, 0, 0)}),
    )
    return Described(
        (
            replace(
                function,
                link=Link("2.5 GT/s PCIe", "8", "16.0 GT/s PCIe", "16"),
                hosts=(replace(host, luns=luns, attributes=attributes),),
                parameters=parameters,
                ports=ports,
                vectors=function.vectors[:1],
                attributes=counted(5, 1, 0),
            ),
        ),
        mounts=(("sda", "/srv"),),
    )


def shared_line() -> Described:
    """A 9400 without MSI-X: `pci=nomsi`, or msix_disable."""
    function = hbas.mpt3sas().functions[0]
    return Described((replace(function, vectors=(), irq=16, parameters={"msix_disable": "1"}),))
