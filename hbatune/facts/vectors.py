"""The interrupts of the adapters: the role of each, whether it can be moved, and its CPUs.

Kernels differ in how they show that one is managed. Some give its affinity no write permission
(kernel/irq/proc.c: register_irq_proc); on others every file looks writable, and the driver's name
for the vector has to tell, with the CPUs whose requests it serves.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from hbatune.facts import names
from hbatune.facts.attributes import Attributes, integer, read, word
from hbatune.facts.family import Interrupts, Parameters
from hbatune.facts.ids import escape
from hbatune.facts.model import Attribute, Missing, Role, Vector

AFFINITY = "smp_affinity_list"
_EFFECTIVE = "effective_affinity_list"
_NODE = "node"
_IRQS = "/proc/irq"


def vectors(
    adapter: str,
    model: Interrupts,
    function: str,
    served: Sequence[str],
    parameters: Parameters,
    *,
    hw_queues: int | Missing,
    modes_tell: bool,
) -> tuple[Vector, ...]:
    """Return the interrupts of the adapter whose PCI function has this sysfs directory.

    ``model`` is its family's; ``served`` are, by hardware queue, the CPUs that submit to it;
    ``hw_queues`` is how many of those the adapter has; ``parameters`` are its module's.
    ``modes_tell`` is the answer of the function of that name. There are none if the function
    cannot be read.
    """
    irqs = _message_signalled(function)
    if irqs is None:
        return ()
    if not irqs:  # without MSI and MSI-X a function has one line
        return tuple(_line(adapter, irq) for irq in _legacy(function))
    found = [
        _vector(adapter, model, irq, place, modes_tell=modes_tell) for place, irq in enumerate(irqs)
    ]
    found = _with_lone(found, hw_queues)
    return tuple(_serving(_without_polled(found, model, parameters), served))


def modes_tell() -> bool:
    """Whether the file modes of this kernel tell which interrupts are managed.

    They do if any file has no write permission: the timer's is then among those.
    """
    with suppress(OSError):
        return any(_read_only(f"{entry.path}/{AFFINITY}") for entry in os.scandir(_IRQS))
    return False


def _read_only(path: str) -> bool:
    with suppress(OSError):
        return not os.stat(path).st_mode & 0o222
    return False


def _message_signalled(function: str) -> list[int] | None:
    """Return the numbers of the function's MSI or MSI-X vectors, or None if they cannot be read."""
    try:
        return sorted(int(name) for name in os.listdir(f"{function}/msi_irqs") if name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None


def _legacy(function: str) -> list[int]:
    """Return the function's interrupt line; 0 is none (drivers/pci/pci-sysfs.c: irq_show)."""
    irq = integer(read(function, ("irq",)), "irq")
    return [irq] if isinstance(irq, int) and irq else []


def _vector(adapter: str, model: Interrupts, irq: int, place: int, *, modes_tell: bool) -> Vector:
    """Return one vector; ``place`` is its rank among those of the function, for the id.

    An interrupt number would not do: a boot assigns it.
    """
    names = _handlers(irq)
    role, managed = model.expected(names)
    found = read(f"{_IRQS}/{irq}", (AFFINITY, _EFFECTIVE, _NODE))
    affinity = found[AFFINITY]
    # The file's mode is certain; the driver's name for the vector is only an expectation.
    if modes_tell and isinstance(affinity, Attribute):
        managed = not affinity.writable
    return Vector(
        irq=irq,
        id=f"msix-{place}@{adapter}",
        adapter=adapter,
        names=names,
        role=role,
        managed=managed,
        inferred=not modes_tell,
        affinity=affinity,
        effective=word(found, _EFFECTIVE) or None,
        node=_node(found),
        serves=None,
        unmanaged_by=model.unmanaged_by or None,
    )


def _line(adapter: str, irq: int) -> Vector:
    found = read(f"{_IRQS}/{irq}", (AFFINITY, _EFFECTIVE, _NODE))
    return Vector(
        irq=irq,
        id=f"line@{adapter}",
        adapter=adapter,
        names=_handlers(irq),
        role=Role.LINE,
        managed=False,
        inferred=False,
        affinity=found[AFFINITY],
        effective=word(found, _EFFECTIVE) or None,
        node=_node(found),
        serves=None,
        unmanaged_by=None,
    )


def _handlers(irq: int) -> tuple[str, ...]:
    """Return the handlers' names: each has a folder (kernel/irq/proc.c: register_handler_proc)."""
    with suppress(OSError):
        folders = (each.name for each in os.scandir(f"{_IRQS}/{irq}") if each.is_dir())
        return tuple(sorted(map(escape, folders)))
    return ()


def _node(found: Attributes) -> int | None:
    node = integer(found, _NODE)
    return node if isinstance(node, int) and node >= 0 else None


def _with_lone(found: list[Vector], hw_queues: int | Missing) -> list[Vector]:
    """Return the vectors; one without others serves data, too, whatever its handler's name says.

    Not where there are several queues: while a controller is reset it has a vector for its own
    commands alone at first (drivers/nvme/host/pci.c: nvme_pci_enable, nvme_setup_io_queues).
    """
    several = isinstance(hw_queues, int) and hw_queues > 1
    if len(found) == 1 and found[0].role is Role.ADMIN and not several:
        return [replace(found[0], role=Role.DATA)]
    return found


def _without_polled(
    found: Sequence[Vector], model: Interrupts, parameters: Parameters
) -> Sequence[Vector]:
    """Return the vectors, those of queues that the driver polls with a role of their own."""
    data = sorted((each for each in found if each.role is Role.DATA), key=_in_queue_order)
    count = model.polled(parameters, len(data))
    polled = {each.irq for each in data[len(data) - count :]}
    return [
        replace(each, role=Role.POLLED, managed=False) if each.irq in polled else each
        for each in found
    ]


def _serving(found: Sequence[Vector], served: Sequence[str]) -> Iterator[Vector]:
    """Yield the vectors, data vectors with the CPUs that they serve.

    Those are known if there is one data vector for each hardware queue, or one for each that is not
    polled: the polled ones are the last.

    A managed vector is for the very CPUs that submit to its queue (block/blk-mq-pci.c:
    blk_mq_pci_map_queues); one that was inferred to be managed and is for other CPUs is free.
    """
    data = sorted((each for each in found if each.role is Role.DATA), key=_in_queue_order)
    polled = sum(each.role is Role.POLLED for each in found)
    alike = len(served) in (len(data), len(data) + polled)
    queues = dict(zip((each.irq for each in data), served, strict=False)) if alike else {}
    for vector in found:
        serves = queues.get(vector.irq)
        if serves is None:
            yield vector
        else:
            free = vector.inferred and not _same(vector.affinity, serves)
            yield replace(vector, serves=_shortest(serves), managed=vector.managed and not free)


def _in_queue_order(vector: Vector) -> tuple[list[int], int]:
    """Return a sort key: nvme0q2 before nvme0q10, and equal names by interrupt number."""
    return [int(digits) for digits in re.findall(r"\d+", " ".join(vector.names))], vector.irq


def _shortest(text: str) -> str:
    """Return a list of CPUs as the kernel prints those of an interrupt."""
    try:
        return names.join_cpus(names.parse_cpus(text))
    except ValueError:
        return text


def _same(affinity: Attribute | Missing, serves: str) -> bool:
    """Whether two lists of CPUs are the same, or one is not known."""
    if isinstance(affinity, Missing):
        return True
    try:
        return names.parse_cpus(serves) == names.parse_cpus(affinity.text)
    except ValueError:
        return True
