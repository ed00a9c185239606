"""What can be done about an adapter's interrupts, coalescing and limits: data of its family.

Nothing here reads or writes a machine. ``source`` is the kernel file, and the function in it,
where the fact can be read.
"""

from dataclasses import dataclass
from enum import StrEnum


class Vectors(StrEnum):
    """Who may move an adapter's data vectors while its driver runs with its defaults.

    What a vector on the machine at hand really is, its own file says; this is what to expect.
    """

    FREE = "free"  # anybody may
    MANAGED = "managed"  # the kernel spread them over the CPUs, and keeps them there
    MIXED = "mixed"  # some of one adapter are free (admin, high priority), the data's are managed
    PINNED = "pinned"  # the driver placed them, and forbids moving them as if they were managed
    INTX = "INTx"  # one line, which other devices may share
    NONE = "none"  # no interrupt of its own: behind a network card, or simulated
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Interrupts:
    """The interrupt model of a family.

    ``admin`` is a regular expression that the names of vectors without data match as a whole,
    as ``/proc/irq/N/`` shows them; empty where there are none.
    """

    vectors: Vectors
    source: str = ""
    admin: str = ""


NOT_KNOWN = Interrupts(Vectors.UNKNOWN)


class Mechanism(StrEnum):
    """How coalescing is set."""

    NVME_FEATURE = "NVMe feature"
    HOST_ATTRIBUTE = "host attribute"
    MODULE_OPTION = "module option"
    FIXED = "fixed"  # the driver sets it once, and offers nothing to change it


class Applies(StrEnum):
    """When a value that was written reaches the hardware."""

    AT_ONCE = "at once"
    AT_LINK_UP = "when the link is configured next"
    AT_RESET = "when the adapter is reset next"
    AT_LOAD = "when the module is loaded next"


@dataclass(frozen=True)
class Coalescing:
    """One lever of interrupt coalescing: the name of an attribute, an option or a feature.

    ``low`` and ``high`` bound what it takes, in ``unit``. ``least`` is the value for no or the
    least coalescing, None where there is no such value. ``resets_link`` warns of a write that
    bounces the link.
    """

    mechanism: Mechanism
    name: str
    applies: Applies
    source: str
    low: int | None = None
    high: int | None = None
    unit: str = ""
    least: int | None = None
    resets_link: bool = False


class Purpose(StrEnum):
    """What a module option is good for."""

    HOST_DEPTH = "host depth"
    LUN_DEPTH = "LUN depth"
    VECTORS = "vectors"
    COALESCING = "coalescing"


@dataclass(frozen=True)
class Option:
    """An option of the driver's module, which takes effect when the module is loaded.

    ``own`` is the value outside of ``low`` and ``high``, or beside them, by which the driver takes
    as much as the adapter offers.
    """

    name: str
    purpose: Purpose
    low: int | None = None
    high: int | None = None
    own: int | None = None


@dataclass(frozen=True)
class Trap:
    """What surprises with a family, in one sentence, and where the kernel does it."""

    says: str
    source: str
