"""Read the interrupts of the adapters: the role of each, whether it can be moved, and its CPUs.

Kernels differ in how they show that an interrupt is managed. Some give its affinity file no write
permission (kernel/irq/proc.c: register_irq_proc). On others every file looks writable, and the
driver's name for the vector and the CPUs that it serves must show it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from hbatune.facts import names
from hbatune.facts.attributes import Attributes, get_word, parse_integer, read_attributes
from hbatune.facts.family import Interrupts, Parameters
from hbatune.facts.ids import escape_text
from hbatune.facts.model import Attribute, Missing, Role, Vector

AFFINITY_FILE = "smp_affinity_list"
_EFFECTIVE = "effective_affinity_list"
_NODE = "node"
_IRQS = "/proc/irq"


def read_vectors(
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

    ``model`` is the family's interrupt model. ``served`` are, by hardware queue, the CPUs that
    submit to it. ``hw_queues`` is the adapter's number of hardware queues. ``parameters`` are its
    module's. ``modes_tell`` is the result of ``has_read_only_modes``. There are no interrupts if
    the function cannot be read.
    """
    irqs = _list_message_signalled(function)
    if irqs is None:
        return ()
    if not irqs:  # without MSI and MSI-X a function has one line
        return tuple(_read_line(adapter, irq) for irq in _list_legacy(function))
    vectors_read = [
        _read_vector(adapter, model, irq, place, modes_tell=modes_tell)
        for place, irq in enumerate(irqs)
    ]
    vectors_read = _with_lone(vectors_read, hw_queues)
    return tuple(_assign_cpus(_without_polled(vectors_read, model, parameters), served))


def has_read_only_modes() -> bool:
    """Return whether the file modes of this kernel show which interrupts are managed.

    They do if any file has no write permission: the timer's file is then read-only too.
    """
    with suppress(OSError):
        return any(_read_only(f"{entry.path}/{AFFINITY_FILE}") for entry in os.scandir(_IRQS))
    return False


def _read_only(path: str) -> bool:
    with suppress(OSError):
        return not os.stat(path).st_mode & 0o222
    return False


def _list_message_signalled(function: str) -> list[int] | None:
    """Return the numbers of the function's MSI or MSI-X vectors, or None if they cannot be read."""
    try:
        return sorted(int(name) for name in os.listdir(f"{function}/msi_irqs") if name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None


def _list_legacy(function: str) -> list[int]:
    """Return the function's interrupt line; 0 means none (drivers/pci/pci-sysfs.c: irq_show)."""
    irq = parse_integer(read_attributes(function, ("irq",)), "irq")
    return [irq] if isinstance(irq, int) and irq else []


def _read_vector(
    adapter: str, model: Interrupts, irq: int, place: int, *, modes_tell: bool
) -> Vector:
    """Return one vector; ``place`` is its rank among the function's vectors, for the id.

    An interrupt number is not stable: a boot assigns it.
    """
    names = _list_handlers(irq)
    role, managed = model.expected(names)
    attributes = read_attributes(f"{_IRQS}/{irq}", (AFFINITY_FILE, _EFFECTIVE, _NODE))
    affinity = attributes[AFFINITY_FILE]
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
        effective=get_word(attributes, _EFFECTIVE) or None,
        node=_parse_node(attributes),
        serves=None,
        unmanaged_by=model.unmanaged_by or None,
    )


def _read_line(adapter: str, irq: int) -> Vector:
    attributes = read_attributes(f"{_IRQS}/{irq}", (AFFINITY_FILE, _EFFECTIVE, _NODE))
    return Vector(
        irq=irq,
        id=f"line@{adapter}",
        adapter=adapter,
        names=_list_handlers(irq),
        role=Role.LINE,
        managed=False,
        inferred=False,
        affinity=attributes[AFFINITY_FILE],
        effective=get_word(attributes, _EFFECTIVE) or None,
        node=_parse_node(attributes),
        serves=None,
        unmanaged_by=None,
    )


def _list_handlers(irq: int) -> tuple[str, ...]:
    """Return the handlers' names: one directory each (kernel/irq/proc.c: register_handler_proc)."""
    with suppress(OSError):
        folders = (entry.name for entry in os.scandir(f"{_IRQS}/{irq}") if entry.is_dir())
        return tuple(sorted(map(escape_text, folders)))
    return ()


def _parse_node(attributes: Attributes) -> int | None:
    node = parse_integer(attributes, _NODE)
    return node if isinstance(node, int) and node >= 0 else None


def _with_lone(vectors_read: list[Vector], hw_queues: int | Missing) -> list[Vector]:
    """Return the vectors. A single vector serves data too, regardless of its handler's name.

    This does not apply if there are several queues: while a controller is reset, at first it has
    only a vector for its own commands (drivers/nvme/host/pci.c: nvme_pci_enable,
    nvme_setup_io_queues).
    """
    several = isinstance(hw_queues, int) and hw_queues > 1
    if len(vectors_read) == 1 and vectors_read[0].role is Role.ADMIN and not several:
        return [replace(vectors_read[0], role=Role.DATA)]
    return vectors_read


def _without_polled(
    vectors_read: Sequence[Vector], model: Interrupts, parameters: Parameters
) -> Sequence[Vector]:
    """Return the vectors, with a separate role for the queues that the driver polls."""
    data = sorted(
        (vector for vector in vectors_read if vector.role is Role.DATA), key=_get_queue_order
    )
    count = model.polled(parameters, len(data))
    polled = {vector.irq for vector in data[len(data) - count :]}
    return [
        replace(vector, role=Role.POLLED, managed=False) if vector.irq in polled else vector
        for vector in vectors_read
    ]


def _assign_cpus(vectors_read: Sequence[Vector], served: Sequence[str]) -> Iterator[Vector]:
    """Yield the vectors, data vectors with the CPUs that they serve.

    The CPUs are known if there is one data vector for each hardware queue, or for each that is not
    polled: the polled queues are the last.

    A managed vector serves exactly the CPUs that submit to its queue (block/blk-mq-pci.c:
    blk_mq_pci_map_queues). A vector that was inferred to be managed but serves other CPUs is free.
    """
    data = sorted(
        (candidate for candidate in vectors_read if candidate.role is Role.DATA),
        key=_get_queue_order,
    )
    polled = sum(candidate.role is Role.POLLED for candidate in vectors_read)
    matched = len(served) in (len(data), len(data) + polled)
    queues = (
        dict(zip((candidate.irq for candidate in data), served, strict=False)) if matched else {}
    )
    for vector in vectors_read:
        serves = queues.get(vector.irq)
        if serves is None:
            yield vector
        else:
            free = vector.inferred and not _is_same(vector.affinity, serves)
            yield replace(vector, serves=_shorten(serves), managed=vector.managed and not free)


def _get_queue_order(vector: Vector) -> tuple[list[int], int]:
    """Return a sort key: nvme0q2 before nvme0q10, and equal names by interrupt number."""
    return [int(digits) for digits in re.findall(r"\d+", " ".join(vector.names))], vector.irq


def _shorten(text: str) -> str:
    """Return a list of CPUs in the form that the kernel prints for an interrupt."""
    try:
        return names.join_cpus(names.parse_cpus(text))
    except ValueError:
        return text


def _is_same(affinity: Attribute | Missing, serves: str) -> bool:
    """Return whether two lists of CPUs are the same, or one is unknown."""
    if isinstance(affinity, Missing):
        return True
    try:
        return names.parse_cpus(serves) == names.parse_cpus(affinity.text)
    except ValueError:
        return True
