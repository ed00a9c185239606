"""Described machines for interrupts. Which vectors are managed is the kernel's source; the rest,
numbers and names of CPUs among it, is made up.
"""

from dataclasses import replace

from tests.hosts.parts import flat, vectors
from tests.hosts.tree import (
    Controller,
    Cpus,
    Described,
    Disk,
    Function,
    Host,
    Lun,
    Namespace,
    Vector,
)


def _nvme(*vectors: Vector, served: tuple[str, ...]) -> Function:
    disk = Disk("nvme0n1", scheduler="[none] mq-deadline ", tags=1023, served=served, hw_queues=2)
    controller = Controller("nvme0", (Namespace(disk),), queue_count=3)
    ids = ("0x1b36", "0x0010", "0x1af4", "0x1100")
    return Function("0000:04:00.0", "nvme", ids, "0x010802", controller=controller, vectors=vectors)


def silent() -> Described:
    """A kernel whose files say nothing of managed vectors: names and queues have to tell."""
    admin = Vector(40, "nvme0q0", affinity="0-3")
    data = (Vector(41, "nvme0q1", affinity="0-1"), Vector(42, "nvme0q2", affinity="2-3"))
    return Described((_nvme(admin, *data, served=("0, 1", "2, 3")),))


def in_reset() -> Described:
    """A controller between the two steps of its reset: its queues have no vectors yet."""
    return Described((_nvme(Vector(40, "nvme0q0", affinity="0-3"), served=("0, 1", "2, 3")),))


def set_free() -> Described:
    """As above, but the vectors are not where their queues' CPUs are: nobody placed them."""
    admin = Vector(40, "nvme0q0", affinity="0-3")
    data = (Vector(41, "nvme0q1", affinity="0-3"), Vector(42, "nvme0q2", affinity="0-3"))
    return Described((_nvme(admin, *data, served=("0, 1", "2, 3")),))


def two_nodes() -> Described:
    """Two adapters with free vectors, each near four of eight CPUs, of which two are kept free."""
    functions = []
    for number, local in ((0, "0-3"), (1, "4-7")):
        names = tuple(f"aacraid{vector}" for vector in range(3))
        functions.append(
            Function(
                f"0000:0{number + 1}:00.0",
                "aacraid",
                ("0x9005", "0x028d", "0x9005", "0x0200"),
                numa_node=str(number),
                local_cpus=local,
                hosts=(
                    Host(
                        number,
                        "aacraid",
                        luns=(flat(f"{number}:0:0:0", Disk(f"sd{'ab'[number]}"), "Adaptec", "64"),),
                    ),
                ),
                vectors=tuple(
                    Vector(50 + 10 * number + index, name, affinity="5")
                    for index, name in enumerate(names)
                ),
            )
        )
    return Described(tuple(functions), cpus=Cpus(8, 8, isolated="1", nohz_full="1,5"))


def partitioned(*, listed: bool) -> Described:
    """The same on a kernel that lists the CPUs of a partition, or shows them in its cgroup only.

    The root group has the first file since Linux 6.8 (kernel/cgroup/cpuset.c: cpuset_files).
    """
    groups = {
        "cgroup.subtree_control": "cpuset cpu io memory pids",
        "system.slice/cpuset.cpus.partition": "member",
        "system.slice/cpuset.cpus.effective": "0-1,4-7",
        "trading.slice/cpuset.cpus.partition": "isolated",
        "trading.slice/cpuset.cpus.effective": "2-3",
    }
    if listed:
        groups["cpuset.cpus.isolated"] = "2-3"
    return replace(two_nodes(), cpus=Cpus(8, 8, cgroups=groups))


def pinned() -> Described:
    """An adapter near all CPUs, whose vectors have masks of an administrator and of others."""
    masks = {50: "2-3", 51: "6", 52: "0-7", 53: "1", 54: "7"}
    lun = flat("0:0:0:0", Disk("sda"), "Adaptec", "64")
    placed = []
    for number, mask in masks.items():
        hint = "02" if number == 53 else "00"
        placed.append(Vector(number, f"aacraid{number}", affinity=mask, hint=hint))
    function = Function(
        "0000:01:00.0",
        "aacraid",
        ("0x9005", "0x028d", "0x9005", "0x0200"),
        local_cpus="0-7",
        hosts=(Host(0, "aacraid", luns=(lun,)),),
        vectors=tuple(placed),
    )
    return Described((function,), cpus=Cpus(8, 8, isolated="6", default="7f"))


def line() -> Described:
    """A card with one legacy line, which others may share."""
    lun = Lun("0:0:0:0", Disk("sda", tags=446), depth_writable=False, parallel=True)
    host = Host(0, "sym53c8xx", can_queue=446, luns=(lun,))
    ids = ("0x1000", "0x000f", "0x1000", "0x1000")
    return Described((Function("0000:03:01.0", "sym53c8xx", ids, hosts=(host,), irq=11),))


def mixed() -> Described:
    """One adapter with an admin vector, a free and a managed one, and one that nobody asked for."""
    lun = flat("0:0:0:0", Disk("sda"), "SEAGATE", "64")
    function = Function(
        "0000:05:00.0",
        "qla2xxx",
        ("0x1077", "0x2532", "0x1077", "0x015d"),
        "0x0c0400",
        hosts=(Host(0, "qla2xxx", luns=(lun,)),),
        vectors=(
            *vectors(("qla2xxx0_default", "qla2xxx0_rsp_q"), ("qla2xxx0_qpair_multiq_0",)),
            Vector(49, "."),
        ),
    )
    return Described((function,))


def lone() -> Described:
    """A 57B4 loaded with ``number_of_msix=1``, as the real driver shows it (tests/lab/ipr)."""
    lun = flat("0:2:0:0", Disk("sda", tags=1000), "IBM", "6")
    function = Function(
        "0000:01:00.0",
        "ipr",
        ("0x1014", "0x034a", "0x1014", "0x033b"),
        hosts=(Host(0, "ipr", 1000, 6, luns=(lun,)),),
        vectors=vectors(("host0-0",)),
    )
    return Described((function,))


def polled(option: str) -> Described:
    """A 9600 on two CPUs, loaded with ``poll_queues``; the last vectors are not managed.

    Seen with the real driver on Linux 6.12 (tests/lab/guest/test_tri_mode_driver.py).
    """
    disk = Disk("sda", tags=8000, served=("0", "1", "0, 1"), hw_queues=3)
    host = Host(0, "mpi3mr", 8000, 128, hw_queues=3, luns=(flat("0:1:3:0", disk, "NVMe", "32"),))
    function = Function(
        "0000:01:00.0",
        "mpi3mr",
        ("0x1000", "0x00a5", "0x1000", "0x4660"),
        "0x010700",
        hosts=(host,),
        vectors=(
            Vector(40, "mpi3mr0-msix0", affinity="0-1"),
            Vector(41, "mpi3mr0-msix1", locked=True, affinity="0"),
            Vector(42, "mpi3mr0-msix2", locked=True, affinity="1"),
            Vector(43, "mpi3mr0-msix3", affinity="0-1"),
        ),
        parameters={"poll_queues": option},
    )
    return Described((function,), cpus=Cpus(2, 2))
