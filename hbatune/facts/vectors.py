"""Read the interrupts of the adapters: the role of each, whether it can be moved, and its CPUs.

Kernels differ in how they show that an interrupt is managed. Some give its affinity file no write
permission (kernel/irq/proc.c: register_irq_proc). On others every file looks writable, and the
driver's name for the vector and the CPUs that it serves must show it.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter

from msgspec.structs import replace

from hbatune.facts import ids
from hbatune.facts.attributes import get_word, parse_integer, read_attributes
from hbatune.facts.families import family_named
from hbatune.facts.family import Parameters
from hbatune.facts.model import AFFINITY_FILE, Adapter, Attribute, Role, Vector
from hbatune.facts.names import find_cpus, join_cpus, parse_mask

_EFFECTIVE = "effective_affinity_list"
_HINT = "affinity_hint"
_NODE = "node"
_IRQS = "/proc/irq"


def read_vectors(
    adapter: Adapter, function: str, served: Sequence[str], parameters: Parameters, modes_tell: bool
) -> tuple[Vector, ...]:
    """Return the interrupts of the adapter whose PCI function has this sysfs directory.

    ``served`` are, by hardware queue, the CPUs that submit to it. ``modes_tell`` is the result of
    ``has_read_only_modes``. There are no interrupts if the function cannot be read.
    """
    target, model = adapter.target, family_named(adapter.family).interrupts
    try:
        names = list(filter(str.isdecimal, os.listdir(f"{function}/msi_irqs")))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError:
        return ()
    if not names:  # without MSI and MSI-X a function has one line
        irq = parse_integer(read_attributes(function, ("irq",)), "irq")
        # 0 means no line (drivers/pci/pci-sysfs.c: irq_show).
        if not isinstance(irq, int) or not irq:
            return ()
        return (replace(_read_vector(target, irq, f"line@{target}"), role=Role.LINE),)
    vectors = []
    for position, irq in enumerate(sorted(map(int, names))):
        # An interrupt number is not stable: a boot assigns it.
        vector = _read_vector(target, irq, f"msix-{position}@{target}")
        role, managed = model.expected(vector.names)
        # The file's mode is certain; the driver's name for the vector is only an expectation.
        if modes_tell and isinstance(vector.affinity, Attribute):
            managed = not vector.affinity.writable
        vector = replace(vector, role=role, managed=managed, inferred=not modes_tell)
        vectors.append(replace(vector, unmanaged_by=model.unmanaged_by or None))
    # A single vector serves data too, regardless of its handler's name. This does not apply if
    # there are several queues: while a controller is reset, at first it has only a vector for its
    # own commands (drivers/nvme/host/pci.c: nvme_pci_enable, nvme_setup_io_queues).
    several = isinstance(adapter.hw_queues, int) and adapter.hw_queues > 1
    if len(vectors) == 1 and vectors[0].role is Role.ADMIN and not several:
        vectors = [replace(vectors[0], role=Role.DATA)]
    data = _sort_data(vectors)
    polled = data[len(data) - model.polled(parameters, len(data)) :]
    return tuple(_assign_cpus(vectors, data, polled, served))


def has_read_only_modes() -> bool:
    """Return whether file modes show managed interrupts: the timer's is then read-only, too."""
    with suppress(OSError):
        for entry in os.scandir(_IRQS):
            with suppress(OSError):
                if not os.stat(f"{entry.path}/{AFFINITY_FILE}").st_mode & 0o222:
                    return True
    return False


def _read_vector(adapter: str, irq: int, id: str) -> Vector:
    attributes = read_attributes(f"{_IRQS}/{irq}", (AFFINITY_FILE, _EFFECTIVE, _NODE, _HINT))
    node = parse_integer(attributes, _NODE)
    return Vector(
        irq=irq,
        id=id,
        adapter=adapter,
        names=_list_handlers(irq),
        role=Role.UNKNOWN,
        managed=False,
        inferred=False,
        affinity=attributes[AFFINITY_FILE],
        effective=get_word(attributes, _EFFECTIVE) or None,
        node=node if isinstance(node, int) and node >= 0 else None,
        serves=None,
        unmanaged_by=None,
        # A mask, which is zero without a hint.
        hint=find_cpus(get_word(attributes, _HINT), parse_mask) or (),
    )


def _list_handlers(irq: int) -> tuple[str, ...]:
    """Return the handlers' names: one directory each (kernel/irq/proc.c: register_handler_proc)."""
    with suppress(OSError):
        folders = (entry.name for entry in os.scandir(f"{_IRQS}/{irq}") if entry.is_dir())
        return tuple(sorted(map(ids.escape_text, folders)))
    return ()


def _assign_cpus(
    vectors: Iterable[Vector], data: list[int], polled: list[int], served: Sequence[str]
) -> Iterator[Vector]:
    """Yield the vectors, data vectors with the CPUs that they serve, polled ones with their role.

    The CPUs are known if there is one data vector for each hardware queue, or for each that is not
    polled: the polled queues are the last.

    A managed vector serves exactly the CPUs that submit to its queue (block/blk-mq-pci.c:
    blk_mq_pci_map_queues). A vector that was inferred to be managed but serves other CPUs is free.
    """
    is_known = len(served) in (len(data), len(data) - len(polled))
    queues = dict(zip(data, served, strict=False)) if is_known else {}
    for vector in vectors:
        if vector.irq in polled:
            yield replace(vector, role=Role.POLLED, managed=False)
            continue
        serves = queues.get(vector.irq)
        if serves is None:
            yield vector
            continue
        cpus, affinity = find_cpus(serves), None
        if isinstance(vector.affinity, Attribute):
            affinity = find_cpus(vector.affinity.text)
        is_free = vector.inferred and None not in (cpus, affinity) and cpus != affinity
        # In the form that the kernel prints for an interrupt.
        text = serves if cpus is None else join_cpus(cpus)
        yield replace(vector, serves=text, managed=vector.managed and not is_free)


def _sort_data(vectors: Iterable[Vector]) -> list[int]:
    """Return the data vectors by queue: nvme0q2 before nvme0q10, equal names by interrupt."""
    order = []
    for vector in vectors:
        if vector.role is Role.DATA:
            numbers = re.findall(r"\d+", " ".join(vector.names))
            order.append((list(map(int, numbers)), vector.irq))
    return list(map(itemgetter(1), sorted(order)))
