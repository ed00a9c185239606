"""The types of settings: formats of values, limits of devices and their reasons."""

import re
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import lru_cache, partial

from msgspec import Struct

from hbatune.facts import model, names
from hbatune.facts.attributes import parse_text
from hbatune.loader import LongText
from hbatune.text.limit_text import LimitReason

Value = int | LongText

QUEUE_DEPTH = "queue_depth"
"""The setting that array budgets limit, and that the kernel lowers after full queues."""

Attributes = Mapping[str, model.Attribute | model.Missing]
"""The attributes read from a device, by path below its directory."""


class LegalValue(Struct, frozen=True):
    """The value to set instead of the wanted one, and the reason if they differ."""

    value: Value
    limit: LimitReason | None = None


class FixedSetting(Struct, frozen=True):
    """The reason why a setting cannot be set on this device, from hbatune or its family."""

    limit: LimitReason | str
    unread: bool = False  # whether the only reason is that its limit could not be read


class VectorCpus(Struct, frozen=True):
    """The CPUs for the vectors of all adapters, which do not share a CPU needlessly."""

    placed: Mapping[str, int]  # the CPU of each vector, by id
    narrowed: Mapping[str, Collection[int]]  # masks that an administrator narrowed, by vector's id
    online: Collection[int]
    excluded: Collection[int]  # online CPUs that interrupts may not use
    reasons: tuple[LimitReason, ...]  # why these are excluded
    local: Mapping[str, tuple[int, ...]]  # the CPUs near each adapter


class Device(Struct, frozen=True):
    """The facts about a device that a limit may use, if the caller knows them.

    ``scheduler`` is the planned one, or the current one at the moment of a write. ``switched`` is
    whether they differ, or None if the attributes show it. ``requests`` is the planned nr_requests,
    or None if it is the current one. A plan knows the ``endpoint``, or the ``vector`` and its
    ``room``, a worker only the ``attributes``.
    """

    attributes: Attributes
    scheduler: Value | None = None
    endpoint: model.Endpoint | None = None
    vector: model.Vector | None = None
    room: VectorCpus | None = None
    requests: Value | None = None
    switched: bool | None = None


LimitFunction = Callable[[Value, Value, Device], LegalValue | FixedSetting]
"""Takes the wanted and the current value; returns the value that may be written to the device.

The docstring of each limit is printed in docs/settings.md.
"""


def accept_any_value(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
    """Every device takes the whole range."""
    return LegalValue(wanted)


class UdevWriter(StrEnum):
    """The comparison that the program of the udev rules makes before it writes."""

    DIFFERENT = "different"  # write if the text differs
    BRACKETED = "bracketed"  # the current value is in brackets
    LOWER = "lower"  # write if the number is lower: it is only ever raised
    SCHEDULED = "scheduled"  # write only if the disk has a scheduler


class Cause(StrEnum):
    """An event at which the kernel or a driver resets values of a device that stays the same."""

    CONNECTED = "connected"  # an NVMe controller was reset and is connected again
    LOADED = "loaded"  # a map got another table
    BOUND = "bound"  # an adapter was bound to its driver
    RESET = "reset"  # an adapter was reset; its family lists the settings that its driver resets


class ValueFormat(Struct, frozen=True):
    """The format of a setting's values.

    ``allowed`` describes the values that a rule may set, and ``accepts`` checks one. ``parse``
    returns the typed value of a file's text, and ``parse_saved`` of a text that udev saved (None:
    the same). Both raise ValueError if the text makes no sense. ``encode`` returns the text to
    write.
    """

    allowed: str
    parse: Callable[[str], Value]
    accepts: Callable[[object], bool]
    encode: Callable[[Value], str] = str
    parse_saved: Callable[[str], Value] | None = None

    def check(self, value: object) -> str | None:
        """Return None for an allowed value, or the description of the allowed values."""
        return None if self.accepts(value) else self.allowed


class Setting(Struct, frozen=True):
    """One named, typed setting for targets of the type that it is ``on``.

    Identity
        ``path`` is below the directory of the block device, NVMe controller or SCSI host, or below
        ``/proc/irq/N``. Its last part is the name, if there is no ``alias``. A device that has a
        file at ``other_path`` is set there instead. ``summary`` and ``source`` (the kernel's
        file and function) are its documentation. ``group`` names settings that are measured and
        reverted together.

    Values
        ``format`` has the kernel's range for any device, and ``step`` is the unit to which it
        rounds down. ``limit`` is the function for a device's limit; in addition to its own file it
        uses the files that the setting ``needs``.

    Writing
        By ascending ``order``, the default first. The effect of a write, and whether it is legal,
        may depend on other settings (``hangs_on``): if one of these could not be set, this one is
        not written. ``udev`` is how a rule at boot writes it. If the kernel shows its maximum in a
        file, ``most_in`` is that file: a rule then writes no value above it. An ``at_load`` setting
        is an option of the driver's module. ``disrupts`` describes the effect of a write on the I/O
        of the entire adapter: it is written only if that was allowed. ``locked`` are the errors of
        a write that the driver does not allow. During a change, the kernel may show another value
        for at most ``settles`` seconds. It raises a setting with ``ramps`` by itself, even when it
        is lowered. For a write to one that ``locks_adapter``, newer kernels lock the disk's
        adapter, and answer EBUSY to a second writer.

    Changes by the kernel
        ``resets`` names the other settings that a write may change. ``reset_by`` are the kernel's
        events after which a different value was not chosen by an administrator. ``lost_by``
        describes other causes of its loss in addition to a reboot. The kernel changes a ``kept``
        setting together with unrelated ones: its old value is written again.
    """

    path: str
    summary: str
    source: str
    format: ValueFormat
    order: int = 10
    needs: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()
    hangs_on: tuple[str, ...] = ()
    kept: bool = False
    on: model.TargetKind = model.TargetKind.ENDPOINT
    lost_by: str = ""
    reset_by: frozenset[Cause] = frozenset()
    locked: frozenset[int] = frozenset()
    at_load: bool = False
    disrupts: str = ""
    settles: float = 0.0
    ramps: bool = False
    locks_adapter: bool = False
    limit: LimitFunction = accept_any_value
    step: int = 1
    group: str = ""
    udev: UdevWriter = UdevWriter.DIFFERENT
    most_in: str = ""
    alias: str = ""
    other_path: str = ""

    @property
    def name(self) -> str:
        """The name in rules and in JSON."""
        return self.alias or self.path.rpartition("/")[2]

    @property
    def paths(self) -> tuple[str, ...]:
        """The files in which kernels show the setting."""
        return (self.path, self.other_path) if self.other_path else (self.path,)

    def find_path(self, attributes: Attributes) -> str:
        """Return the path of the file that this device has."""
        if self.other_path and isinstance(attributes.get(self.other_path), model.Attribute):
            return self.other_path
        return self.path

    def read(self, attributes: Attributes) -> Value | model.Missing:
        """Return the typed current value, or why there is none.

        ``ABSENT`` if the attributes do not have this file, the attribute itself if it could not be
        read, and ``Reason.UNPARSABLE`` with the text if it makes no sense.
        """
        return parse_text(attributes, self.find_path(attributes), self.format.parse)

    def read_number(self, attributes: Attributes) -> int | None:
        """Return the current value if it is a number."""
        value = self.read(attributes)
        return value if isinstance(value, int) else None


@lru_cache(maxsize=64)  # thousands of LUNs have the same text
def parse_selected(text: str, marks: str = "[]") -> str:
    """Return the name between two ``marks``, or the only name if none is marked.

    The order of the names and the blanks around them differ between kernels; a bio-based device
    reads a bare ``none`` (block/elevator.c: elv_iosched_show). ValueError for anything else.
    """
    words = text.split()
    marked = [word[1:-1] for word in words if len(word) > 1 and word[0] + word[-1] == marks]
    if len(marked) == 1 and marked[0]:
        return marked[0]
    if len(words) == 1 and not marked:
        return words[0]
    raise ValueError(text)


# udev has replaced the brackets by ``_``. A name may contain others.
parse_selected_in_udev = partial(parse_selected, marks="__")


def parse_choices(text: str) -> tuple[str, ...]:
    """Return the schedulers that the file offers; none if the device has no scheduler at all."""
    return tuple(name.strip("[]") for name in text.split()) if "[" in text else ()


def _is_in_range(value: object, low: int, high: int | None) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):  # True is an int to Python
        return False
    return value >= low and (high is None or value <= high)


def accept_integers(
    low: int = 0, high: int | None = None, parse: Callable[[str], Value] = int, allowed: str = ""
) -> ValueFormat:
    """Return the format of integers from ``low`` to ``high``, or without a maximum."""
    span = f"of at least {low}" if high is None else f"from {low} to {high}"
    return ValueFormat(
        allowed or f"an integer {span}", parse, partial(_is_in_range, low=low, high=high)
    )


def accept_names(*choices: str) -> ValueFormat:
    """Return the format of one of several names, the selected one in brackets."""
    allowed, accepts = "one of " + ", ".join(choices), choices.__contains__
    return ValueFormat(allowed, parse_selected, accepts, parse_saved=parse_selected_in_udev)


def _can_parse(value: object, parse: Callable[[str], object]) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parse(value)
    except ValueError:
        return False
    return True


LOCAL_CPUS = "local"
"""Spread over the CPUs near the adapter, one for each vector."""


def _parse_cpus(text: str) -> str:
    if cpus := names.parse_cpus(text):
        return names.join_cpus(cpus)
    raise ValueError(text)


CPU_LIST = ValueFormat(
    f'"{LOCAL_CPUS}", or a list of CPUs such as "0-3,8"',
    _parse_cpus,
    lambda value: value == LOCAL_CPUS or _can_parse(value, _parse_cpus),
)
"""A list of CPUs, in the shortest form."""

NO_VECTORS = "none"
"""No interrupt vector."""


def _parse_vectors(text: str) -> str:
    if text == NO_VECTORS:
        return NO_VECTORS
    return names.join_cpus(names.parse_cpus(text)) or NO_VECTORS


VECTOR_LIST = ValueFormat(
    f'"{NO_VECTORS}", or a list of vectors such as "0-3,8"',
    _parse_vectors,
    partial(_can_parse, parse=_parse_vectors),
)
"""A list of the interrupt vectors of an NVMe controller; vector 0 is the admin queue's."""


def _parse_aggregation(text: str) -> Value:
    number = int(text, 10)
    threshold, time = number & 0xFF, number >> 8 & 0xFF
    return f"{threshold + 1}/{time * 100}" if threshold and time else 0


def _encode_aggregation(value: Value) -> str:
    if value == 0:
        return "0"
    completions, microseconds = (int(part) for part in str(value).split("/"))
    time, remainder = divmod(microseconds, 100)
    if not (2 <= completions <= 256 and 1 <= time <= 255 and remainder == 0):
        raise ValueError(value)
    return str((completions - 1) | time << 8)


AGGREGATION = ValueFormat(
    '0 for off, or "COMPLETIONS/MICROSECONDS", from "2/100" to "256/25500" in hundreds',
    _parse_aggregation,
    lambda value: _is_in_range(value, 0, 0) or _can_parse(value, _encode_aggregation),
    _encode_aggregation,
)
"""Completions that an NVMe controller gathers for one interrupt, and the maximum time.

0 is off; ``8/200`` is an interrupt after 8 completions, or 200 µs after the first of them. The
feature has the completions minus one in bits 7:0 and the time in 100 µs in bits 15:8. It is off if
either is 0 (NVMe base specification, Interrupt Coalescing).
"""

_COALESCING = r"([2-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])/([1-9][0-9]{0,2}|1000)"

FIRMWARE_COALESCING = ValueFormat(
    '0 for off, or "DEPTH/TIMEOUT", from "2/1" to "255/1000"',
    lambda text: " ".join(word for word in text.split() if "/" in word or word == "off"),
    lambda value: _is_in_range(value, 0, 0) or re.fullmatch(_COALESCING, str(value)) is not None,
)
"""Replies for one interrupt, and the longest delay in a unit that no header of the drivers names.
The text has further words (``hbatune.mpi``). ``off`` keeps the fields of a page switched off.
"""

NO_TIMEOUT = (1 << 32) - 1
"""No limit on a request's time: the largest number that the kernel accepts."""

_TICKS = 10
"""Milliseconds: the kernel stores each multiple exactly, since ticks are 1, 3⅓, 4 or 10 ms long."""


def _parse_request_timeout(text: str) -> int:
    number = int(text, 10)
    return NO_TIMEOUT if number > NO_TIMEOUT >> 1 else number


def _accept_request_timeout(value: object) -> bool:
    if isinstance(value, int) and _is_in_range(value, _TICKS, NO_TIMEOUT >> 1):
        return value % _TICKS == 0
    return value == NO_TIMEOUT


REQUEST_TIMEOUT = ValueFormat(
    f"an integer from {_TICKS} to {NO_TIMEOUT >> 1}, in tens, or {NO_TIMEOUT} for never",
    _parse_request_timeout,
    _accept_request_timeout,
)
"""Milliseconds, which the kernel converts to ticks; 2^31 or more is ``NO_TIMEOUT``.

A value with the highest bit set is cut to the largest number of ticks, and reads back as a large
number that depends on their length (include/linux/jiffies.h: msecs_to_jiffies).
"""

_TOLERANT = ("any", "auto")  # no limit, and the hardware's choice
_MAX_TOLERANCE = 2_147_483_646  # the kernel treats one more as `any` (include/linux/pm_qos.h)

LATENCY_TOLERANCE = ValueFormat(
    f"an integer from 0 to {_MAX_TOLERANCE}, or one of {', '.join(_TOLERANT)}",
    lambda text: text if text in _TOLERANT else int(text, 10),
    lambda value: value in _TOLERANT or _is_in_range(value, 0, _MAX_TOLERANCE),
)
"""Microseconds, or a name (drivers/base/power/sysfs.c: pm_qos_latency_tolerance_us_store)."""
