"""The described machines of all families as they are where all is well and smartd polls the drives.

Each drive has a name of its own, links are as fast as they can be, vectors are spread, and every
command counted so far was a poll that ended without good status: of captured drives that smartd
asks, some have equal counts of commands and of errors, 9078 and 9078.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from tests.hosts.families import MACHINES
from tests.hosts.tree import Cpus, Described, Function, Host, Link, Lun, Values, Vector

POLLED: Values = {
    "iorequest_cnt": "0x2376",
    "iodone_cnt": "0x2376",
    "ioerr_cnt": "0x2376",
    "iotmo_cnt": "0x0",
}
CPUS = Cpus(online=2, cores=2)

BOOTED = (
    "sd 0:0:0:0: Power-on or device reset occurred",
    "sd 0:0:0:0: [sda] 2097152 512-byte logical blocks: (1.07 GB/1.00 GiB)",
    "sd 0:0:0:0: [sda] Attached SCSI disk",
    # A drive that does not know WRITE SAME: the kernel asks no more (sd.c: sd_done).
    "critical target error, dev sda, sector 2048 op 0x9:(WRITE_ZEROES) flags 0x0 phys_seg 0 prio "
    "class 0",
)
"""What the log of a healthy machine says of a disk."""


def healthy(family: str) -> Described:
    """Return the machine of the family, polled and well."""
    described = MACHINES[family]()
    numbers = count(1)
    return replace(
        described,
        functions=tuple(_function(function, numbers) for function in described.functions),
        bare=tuple((path, _host(host, numbers)) for path, host in described.bare),
        cpus=CPUS,
        log=BOOTED,
    )


def _function(function: Function, numbers: "count[int]") -> Function:
    return replace(
        function,
        link=_full_speed(function.link),
        hosts=tuple(_host(host, numbers) for host in function.hosts),
        vectors=tuple(_spread(function)),
        local_cpus="0-1",
    )


def _full_speed(link: Link | None) -> Link | None:
    return link and replace(link, speed=link.max_speed, width=link.max_width)


def _spread(function: Function) -> Iterator[Vector]:
    """Yield the vectors on both CPUs; a virtio host has one for each of its queues."""
    spread_vectors = list(function.vectors)
    if function.virtio is not None and function.hosts:
        more = range(1, function.hosts[0].hw_queues)
        spread_vectors += [
            replace(spread_vectors[-1], number=spread_vectors[-1].number + number)
            for number in more
        ]
    for place, vector in enumerate(spread_vectors):
        yield replace(vector, affinity=str(place % CPUS.online))


def _host(host: Host, numbers: "count[int]") -> Host:
    return replace(host, luns=tuple(_lun(lun, next(numbers)) for lun in host.luns))


def _lun(lun: Lun, number: int) -> Lun:
    wwid = f"naa.5000c500{number:08x}" if lun.wwid.startswith("naa.") else lun.wwid
    return replace(lun, wwid=wwid, device={**lun.device, **POLLED})
