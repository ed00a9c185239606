"""What can be done about an adapter's interrupts, coalescing and limits: data of its family.

Nothing here reads or writes a machine. ``source`` is the kernel file, and the function in it,
where the fact can be read.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.model import Role


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


class Handler(Struct, frozen=True):
    """What vectors are for whose handlers' names ``pattern`` matches as a whole.

    The names are those that ``/proc/irq/N/`` shows. A ``managed`` vector was placed by the kernel,
    or by a driver that forbids moving it, while the driver runs with its defaults.
    """

    pattern: str
    role: Role = Role.DATA
    managed: bool = False


class Interrupts(Struct, frozen=True):
    """The interrupt model of a family.

    The first of ``handlers`` that fits decides; what none fits is nobody's to move.
    ``unmanaged_by`` is the module option, if any, that leaves the vectors free, at what price.
    """

    vectors: Vectors
    source: str = ""
    handlers: tuple[Handler, ...] = ()
    unmanaged_by: str = ""

    def expected(self, names: Iterable[str]) -> tuple[Role, bool]:
        """Return what a vector with these handlers is for, and whether it is to be managed.

        One that serves data beside something else serves data, and is managed only where the
        vectors of all of its handlers are: a lone NVMe vector, which serves the admin queue as
        well, is free.
        """
        kinds = [kind for name in names if (kind := self._kind(name)) is not None]
        if any(kind.role is Role.DATA for kind in kinds):
            return Role.DATA, all(kind.managed for kind in kinds)
        return (Role.ADMIN if kinds else Role.UNKNOWN), False

    def _kind(self, name: str) -> Handler | None:
        fits = (each for each in self.handlers if re.fullmatch(each.pattern, name))
        return next(fits, None)


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


class Coalescing(Struct, frozen=True):
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


class Option(Struct, frozen=True):
    """An option of the driver's module, which takes effect when the module is loaded.

    ``own`` is the value outside of ``low`` and ``high``, or beside them, by which the driver takes
    as much as the adapter offers.
    """

    name: str
    purpose: Purpose
    low: int | None = None
    high: int | None = None
    own: int | None = None


class Trap(Struct, frozen=True):
    """What surprises with a family, in one sentence, and where the kernel does it."""

    says: str
    source: str
