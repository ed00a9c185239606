"""The machines of the families of parallel SCSI: D1's three cards, and LSI's later one.

Figures with a source are read there; all others are made up (``families`` says more).
"""

from dataclasses import replace

from tests.hosts.parts import parameters
from tests.hosts.tree import Described, Disk, Function, Host, Lun, Value


def _parallel(driver: str, ids: tuple[str, str], can_queue: int, depth: str) -> Described:
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
        parameters=parameters(driver),
    )
    return Described((function,))


def qla1280() -> Described:
    """D1's QLA1040: 31 is its NVRAM's 32 less one, 512 is fixed (qla1280.c)."""
    return _parallel("qla1280", ("0x1077", "0x1020"), 512, "31")


def aic7xxx() -> Described:
    """D1's 2940UW: 8 is AIC7XXX_CMDS_PER_DEVICE of Debian's build, 253 is AHC_MAX_QUEUE."""
    return _parallel("aic7xxx", ("0x9004", "0x8178"), 253, "8")


def sym53c8xx() -> Described:
    """D1's SYM8751SP: 16 is cmd_per_lun's default; can_queue 446 was measured on QEMU."""
    return _parallel("sym53c8xx", ("0x1000", "0x000f"), 446, "16")


def mptspi() -> Described:
    """LSI's Ultra320: its depth, unlike that of the other three, can be written."""
    described = _parallel("mptspi", ("0x1000", "0x0030"), 127, "64")
    function = described.functions[0]
    attributes: dict[str, Value] = {"version_fw": "01.03.41.00", "board_name": "LSI22320"}
    [lun] = function.hosts[0].luns
    host = replace(
        function.hosts[0],
        cmd_per_lun=7,
        luns=(replace(lun, depth_writable=True),),
        attributes=attributes,
    )
    return Described((replace(function, hosts=(host,), handler="ioc0"),))
