"""The types of settings: their path, how values are parsed, their range, how udev writes them.

This module has only types. The settings are in ``table``, the limits of devices in ``limits``.
"""

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from hbatune.facts import names
from hbatune.facts.attributes import ABSENT, make_unparsable
from hbatune.facts.family import Family
from hbatune.facts.model import (
    SAVED_PREFIX,
    Attribute,
    Endpoint,
    Missing,
    Processors,
    TargetKind,
    Vector,
)

Value = int | str

Attributes = Mapping[str, Attribute | Missing]
"""The attributes read from a device, by path below its directory."""


class LegalValue(Struct, frozen=True):
    """The value to set instead of the wanted one, and the reason if they differ."""

    value: Value
    limit: str | None = None


class FixedSetting(Struct, frozen=True):
    """The reason why a setting cannot be set on this device.

    ``unread`` is whether the only reason is that its limit could not be read.
    """

    limit: str
    unread: bool = False


class VectorCpus(Struct, frozen=True):
    """The CPUs for the vectors of one adapter: the spread of all vectors, and the CPUs near it.

    The spread covers all adapters, so vectors of different adapters do not share a CPU needlessly.
    """

    placed: Mapping[str, int]
    processors: Processors
    local: Collection[int]


class Device(Struct, frozen=True):
    """The facts about a device that a limit may use, if the caller knows them.

    ``scheduler`` is the planned one, or the current one at the moment of a write. A plan knows the
    ``endpoint``, or the ``vector`` and its ``room``. A worker that is about to write knows only the
    ``attributes`` that it has just read.
    """

    attributes: Attributes
    scheduler: Value | None = None
    endpoint: Endpoint | None = None
    vector: Vector | None = None
    room: VectorCpus | None = None


Limit = Callable[[Value, Value, Device], LegalValue | FixedSetting]
"""Takes the wanted and the current value; returns the value that may be written to the device.

The docstring of each limit is printed in docs/settings.md.
"""


def accept_any_value(wanted: Value, current: Value, device: Device) -> LegalValue | FixedSetting:
    """Every device takes the whole range."""
    return LegalValue(wanted)


def accept_any_family(family: Family) -> str | None:
    """Return None: no family refuses the setting."""
    return None


class UdevWriter(StrEnum):
    """The comparison that a udev rule makes before it writes, since udev(7) has no ``<``."""

    DIFFERENT = "different"  # write if the text differs
    BRACKETED = "bracketed"  # the current value is in brackets
    LOWER = "lower"  # write if the number is lower: it is only ever raised
    SCHEDULED = "scheduled"  # write only if the rules know that there is a scheduler


class Cause(StrEnum):
    """An event at which the kernel or a driver resets values of a device that stays the same."""

    CONNECTED = "connected"  # an NVMe controller was reset and is connected again
    LOADED = "loaded"  # a map got another table
    BOUND = "bound"  # an adapter was bound to its driver
    RESET = "reset"  # an adapter was reset; its family lists the settings that its driver resets


class Setting(Struct, frozen=True):
    """One named, typed setting for targets of the type that it is ``on``.

    Identity
        ``path`` is below the target's directory: a block device's, ``/proc/irq/N``, an NVMe
        controller's or a SCSI host's. ``summary`` and ``source`` (the kernel's file and function)
        are its documentation. ``group`` names settings that are measured and reverted together.

    Values
        ``low``, ``high`` and ``names`` are the kernel's range for any device, and ``step`` the
        unit to which it rounds down. ``limit`` is the function for a device's limit; in addition to
        its own file it uses the files that the setting ``needs``. ``refused_by`` returns why a
        family's driver does not allow it to be set. ``locked`` are the errors of a write that mean
        the same.

    Writing
        By ascending ``order``. The effect of a write, and whether it is legal, may depend on
        other settings (``hangs_on``): if one of these could not be set, this one is not written.
        ``udev`` is how a rule at boot writes it, and ``most_in`` the file with the kernel's
        maximum, if udev can read such a file. An ``at_load`` setting is an option of
        the driver's module, which reads it only when it is loaded. ``disrupts`` describes the
        effect of a write on the I/O of the entire adapter: it is written only if that was allowed.
        During a change, the kernel may show another value for at most ``settles`` seconds. The
        kernel raises a setting with ``ramps`` by itself, even at the moment when it is lowered.

    Changes by the kernel
        ``resets`` names the other settings that a write may change. ``reset_by`` are the kernel's
        events after which a different value was not chosen by an administrator. ``lost_by``
        describes other causes of its loss in addition to a reboot. The kernel changes a ``kept``
        setting together with unrelated ones: its old value is written again.
    """

    name: str
    path: str
    order: int
    summary: str
    source: str
    low: int = 0
    high: int | None = None
    names: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    resets: tuple[str, ...] = ()
    hangs_on: tuple[str, ...] = ()
    kept: bool = False
    on: TargetKind = TargetKind.ENDPOINT
    lost_by: str = ""
    reset_by: frozenset[Cause] = frozenset()
    locked: frozenset[int] = frozenset()
    at_load: bool = False
    disrupts: str = ""
    settles: float = 0.0
    ramps: bool = False
    limit: Limit = accept_any_value
    step: int = 1
    group: str = ""
    udev: UdevWriter = UdevWriter.DIFFERENT
    most_in: str = ""
    refused_by: Callable[[Family], str | None] = accept_any_family

    @property
    def property(self) -> str:
        """The property of udev's database in which a rule saves the original value."""
        return SAVED_PREFIX + self.name.removeprefix("queue/").replace("/", "_").upper()

    def read(self, attributes: Attributes) -> Value | Missing:
        """Return the typed current value, or why there is none.

        ``ABSENT`` if the attributes do not have this file, the attribute itself if it could not be
        read, and ``Reason.UNPARSABLE`` with the text if it makes no sense.
        """
        return read_with(self.parse, attributes, self.path)

    def parse_saved(self, text: str) -> Value:
        """Return the typed value of a text that udev saved; ValueError if it makes no sense.

        udev has replaced the brackets by ``_``.
        """
        return parse_selected_in_udev(text) if self.names else self.parse(text)

    def parse(self, text: str) -> Value:
        """Return the typed value of the file's text; ValueError if it makes no sense."""
        if self.names:
            return parse_selected(text)
        return int(text, 10)

    def text(self, value: Value) -> str:
        """Return the text to write for the value."""
        return str(value)

    def allowed(self) -> str:
        """Describe the allowed values."""
        if self.names:
            return "one of " + ", ".join(self.names)
        if self.high is None:
            return f"an integer of at least {self.low}"
        return f"an integer from {self.low} to {self.high}"

    def check(self, value: object) -> str | None:
        """Return None for an allowed value, or the description of the allowed values."""
        if self.names:
            return None if value in self.names else self.allowed()
        if isinstance(value, bool) or not isinstance(value, int):  # True is an int to Python
            return self.allowed()
        if value < self.low or (self.high is not None and value > self.high):
            return self.allowed()
        return None


def read_with(parse: Callable[[str], Value], attributes: Attributes, path: str) -> Value | Missing:
    """Return the parsed text of the file at ``path``, or why there is no value."""
    attribute = attributes.get(path, ABSENT)
    if isinstance(attribute, Missing):
        return attribute
    try:
        return parse(attribute.text)
    except ValueError:
        return make_unparsable(attribute.text)


@lru_cache(maxsize=64)  # thousands of LUNs have the same text
def parse_selected(text: str) -> str:
    """Return the name in brackets, or the only name if there are no brackets.

    The order of the names and the blanks around them differ between kernels; a bio-based device
    reads a bare ``none`` (block/elevator.c: elv_iosched_show). ValueError for anything else.
    """
    words = text.split()
    marked = [name[1:-1] for name in words if name.startswith("[") and name.endswith("]")]
    if len(marked) == 1 and marked[0]:
        return marked[0]
    if len(words) == 1 and not marked:
        return words[0]
    raise ValueError(text)


def parse_selected_in_udev(text: str) -> str:
    """Return the name that was selected: udev has replaced the brackets by ``_``.

    One ``_`` at each end replaces a bracket; a name may contain others. ValueError if no word, or
    more than one, looks marked.
    """
    words = text.split()
    marked = [name[1:-1] for name in words if len(name) > 2 and name[0] == name[-1] == "_"]
    if len(marked) == 1:
        return marked[0]
    if len(words) == 1 and not marked:
        return words[0]
    raise ValueError(text)


def parse_choices(text: str) -> tuple[str, ...]:
    """Return the schedulers that the file offers; none if the device has no scheduler at all."""
    if "[" not in text:
        return ()
    return tuple(name.strip("[]") for name in text.split())


NO_VECTORS = "none"
"""No interrupt vector."""

_TOLERANT = ("any", "auto")
"""Latency tolerances that are names."""

LOCAL_CPUS = "local"
"""Spread over the CPUs near the adapter, one for each vector."""


class Affinity(Setting, frozen=True):
    """A list of CPUs, in the shortest form."""

    def parse(self, text: str) -> Value:
        """Return the list in its shortest form; ValueError for an empty list or any other text."""
        cpus = names.parse_cpus(text)
        if not cpus:
            raise ValueError(text)
        return names.join_cpus(cpus)

    def allowed(self) -> str:
        """Describe the allowed values."""
        return f'"{LOCAL_CPUS}", or a list of CPUs such as "0-3,8"'

    def check(self, value: object) -> str | None:
        """Return None for an allowed value, or the description of the allowed values."""
        return None if value == LOCAL_CPUS or _can_parse(self.parse, value) else self.allowed()


class Aggregation(Setting, frozen=True):
    """Completions that an NVMe controller gathers for one interrupt, and the maximum time.

    0 is off; ``8/200`` is an interrupt after 8 completions, or 200 µs after the first of them. The
    feature has the completions minus one in bits 7:0 and the time in 100 µs in bits 15:8. It is off
    if either is 0 (NVMe base specification, Interrupt Coalescing).
    """

    def parse(self, text: str) -> Value:
        """Return the value of the feature's number."""
        number = int(text, 10)
        threshold, time = number & 0xFF, number >> 8 & 0xFF
        return f"{threshold + 1}/{time * 100}" if threshold and time else 0

    def text(self, value: Value) -> str:
        """Return the feature's number."""
        return str(_encode_aggregation(value))

    def allowed(self) -> str:
        """Describe the allowed values."""
        return '0 for off, or "COMPLETIONS/MICROSECONDS", from "2/100" to "256/25500" in hundreds'

    def check(self, value: object) -> str | None:
        """Return None for an allowed value, or the description of the allowed values."""
        off = value == 0 and not isinstance(value, (bool, str))
        return None if off or _can_parse(_encode_aggregation, value) else self.allowed()


class Timer(Setting, frozen=True):
    """A number that is read with its unit, as in ``200 us``."""

    def parse(self, text: str) -> Value:
        """Return the number."""
        return int(text.removesuffix("us"), 10)


NO_TIMEOUT = (1 << 32) - 1
"""No limit on a request's time: the largest number that the kernel accepts."""

_TICKS = 10
"""Milliseconds: the kernel stores each multiple exactly, since ticks are 1, 3⅓, 4 or 10 ms long."""


class RequestTimeout(Setting, frozen=True):
    """Milliseconds, which the kernel converts to ticks; 2^31 or more is ``NO_TIMEOUT``.

    A value with the highest bit set is cut to the largest number of ticks, and reads back as a
    large number that depends on their length (include/linux/jiffies.h: msecs_to_jiffies).
    """

    def parse(self, text: str) -> Value:
        """Return the milliseconds, or ``NO_TIMEOUT`` for the kernel's equivalents."""
        number = int(text, 10)
        return NO_TIMEOUT if number > NO_TIMEOUT >> 1 else number

    def allowed(self) -> str:
        """Describe the allowed values."""
        return f"an integer from {_TICKS} to {NO_TIMEOUT >> 1}, in tens, or {NO_TIMEOUT} for never"

    def check(self, value: object) -> str | None:
        """Return None for an allowed value, or the description of the allowed values."""
        if isinstance(value, bool) or not isinstance(value, int):
            return self.allowed()
        finite = _TICKS <= value <= NO_TIMEOUT >> 1 and value % _TICKS == 0
        return None if finite or value == NO_TIMEOUT else self.allowed()


class LossTimeout(Setting, frozen=True):
    """Seconds; -1 means no limit, which reads as ``off``."""

    def parse(self, text: str) -> Value:
        """Return the seconds."""
        return -1 if text == "off" else int(text, 10)

    def allowed(self) -> str:
        """Describe the allowed values."""
        return f"an integer from 0 to {self.high}, or -1 for ever"


class LatencyTolerance(Setting, frozen=True):
    """Microseconds; ``any`` means no limit, and ``auto`` is the hardware's choice.

    drivers/base/power/sysfs.c: pm_qos_latency_tolerance_us_store reads and writes this form.
    """

    def parse(self, text: str) -> Value:
        """Return the microseconds, or the name."""
        return text if text in _TOLERANT else int(text, 10)

    def allowed(self) -> str:
        """Describe the allowed values."""
        return f"{super().allowed()}, or one of {', '.join(_TOLERANT)}"

    def check(self, value: object) -> str | None:
        """Return None for an allowed value, or the description of the allowed values."""
        return None if value in _TOLERANT or super().check(value) is None else self.allowed()


class ExemptVectors(Setting, frozen=True):
    """The interrupt vectors of an NVMe controller that are exempt from coalescing, as a list.

    ``none`` means no vector; vector 0 is the admin queue's.
    """

    def parse(self, text: str) -> Value:
        """Return the vectors in ranges, in order."""
        if text == NO_VECTORS:
            return NO_VECTORS
        return names.join_cpus(names.parse_cpus(text)) or NO_VECTORS

    def allowed(self) -> str:
        """Describe the allowed values."""
        return f'"{NO_VECTORS}", or a list of vectors such as "0-3,8"'

    def check(self, value: object) -> str | None:
        """Return None for an allowed value, or the description of the allowed values."""
        return None if _can_parse(self.parse, value) else self.allowed()


class Switch(Setting, frozen=True):
    """A switch: it reads as one of the two ``names``, off and on, and is written as 0 or 1."""

    def parse(self, text: str) -> Value:
        """Return 0 for the first name and 1 for the second; ValueError for any other."""
        return self.names.index(text)

    def allowed(self) -> str:
        """Describe the allowed values."""
        return "0 or 1"

    def check(self, value: object) -> str | None:
        """Return None for an allowed value, or the description of the allowed values."""
        number = isinstance(value, int) and not isinstance(value, bool)
        return None if number and value in (0, 1) else self.allowed()


def _encode_aggregation(value: Value) -> int:
    """Return the number of the feature; ValueError for any other value."""
    if value == 0:
        return 0
    completions, microseconds = (int(part) for part in str(value).split("/"))
    time, remainder = divmod(microseconds, 100)
    if not (2 <= completions <= 256 and 1 <= time <= 255 and remainder == 0):
        raise ValueError(value)
    return (completions - 1) | time << 8


def _can_parse(parse: Callable[[str], object], value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parse(value)
    except ValueError:
        return False
    return True
