"""A described machine with one of each ailment that `check` looks for on the bus and the disks."""

from dataclasses import replace

from hbatune.facts.observe import PHY_ERRORS
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


_TAIL = "flags 0x80700 phys_seg 1 prio class 2"
PHYS: tuple[Values, ...] = (
    dict.fromkeys(PHY_ERRORS, "0"),
    {**dict.fromkeys(PHY_ERRORS, "0"), "invalid_dword_count": "23"},
)
LOG = (
    # An earlier disk of that name, which is gone.
    f"critical medium error, dev sda, sector 4 op 0x0:(READ) {_TAIL}",
    "sd 0:0:1:0: [sda] 2097152 512-byte logical blocks: (1.07 GB/1.00 GiB)",
    "sd 0:0:1:0: [sda] tag#7 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=2s",
    "sd 0:0:1:0: [sda] tag#7 Sense Key : Medium Error [current] ",
    "sd 0:0:1:0: [sda] tag#7 Add. Sense: Unrecovered read error",
    f"critical medium error, dev sda, sector 1024 op 0x0:(READ) {_TAIL}",
    "sd 0:0:1:0: [sda] tag#8 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=2s",
    "sd 0:0:1:0: [sda] tag#8 Sense Key : Hardware Error [current] [descriptor] ",
    f"critical target error, dev sda, sector 1032 op 0x0:(READ) {_TAIL}",
    "sd 0:0:2:0: Power-on or device reset occurred",
    "sd 0:0:2:0: [sdb] tag#9 FAILED Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_OK",
    f"I/O error, dev sdb, sector 8 op 0x1:(WRITE) {_TAIL}",
)
"""The log of a kernel whose disk sda has bad sectors, and that lost the way to sdb."""


def ailing() -> Described:
    """A 9400 at Gen1 in a Gen3 slot behind a switch, limited by its option, with sick disks.

    iotmo_cnt and ioerr_cnt are hexadecimal (scsi_sysfs.c: show_iostat). sdb answers no more, and
    the phy of the adapter that it is on has counted words that made no sense.
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
    lost = replace(host.luns[1], state="offline")
    luns = (first, lost, *host.luns[2:])
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
                hosts=(replace(host, luns=luns, attributes=attributes, phys=PHYS),),
                parameters=parameters,
                ports=ports,
                vectors=function.vectors[:1],
                attributes=counted(5, 1, 0),
            ),
        ),
        mounts=(("sda", "/srv"),),
        log=LOG,
    )


def shared_line() -> Described:
    """A 9400 without MSI-X: `pci=nomsi`, or msix_disable."""
    function = hbas.mpt3sas().functions[0]
    return Described(
        (
            replace(
                function,
                vectors=(),
                irq=16,
                handler="mpt3sas0",
                parameters={"msix_disable": "1"},
                attributes={"config": config(0x01, 0x10, 0x11)},
            ),
        )
    )


def config(*capabilities: int) -> bytes:
    """Return a configuration space with these capabilities (include/uapi/linux/pci_regs.h)."""
    space = bytearray(256)
    space[0:2] = b"\x00\x10"
    space[0x06] = 0x10  # there is a list
    space[0x34] = 0x40
    for place, id in enumerate(capabilities):
        last = place == len(capabilities) - 1
        space[0x40 + 16 * place : 0x42 + 16 * place] = (id, 0 if last else 0x50 + 16 * place)
    return bytes(space)
