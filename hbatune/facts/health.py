"""The health of a machine and the other tools on it, and its error counts at two moments.

As in ``model``, a fact that could not be read is a ``Missing`` with the reason.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

from msgspec import Struct

from hbatune.facts.attributes import Attributes, get_text, make_unparsable
from hbatune.facts.model import Endpoint, Machine, Missing, Reason
from hbatune.facts.udev import UnsetSetting
from hbatune.loader import LongText, ShortText


class ErrorKind(StrEnum):
    """The types of failed I/O in the kernel's log, and resets, which are not failures.

    The names are from block/blk-core.c: blk_errors, refined by the SCSI layer's preceding messages.
    """

    MEDIUM = "medium"  # sectors that the drive cannot read or write
    HARDWARE = "hardware"  # the drive reports an internal failure
    PROTECTION = "protection"  # the data read differ from the data written (T10 PI)
    TRANSPORT = "transport"  # the command did not get through: cable, path, link
    TIMEOUT = "timeout"  # no answer came in time
    SPACE = "space"  # the array has no free space behind a thin volume
    OTHER = "other"  # failed for a reason that the kernel does not report
    RESET = "reset"  # a unit attention: the device was reset or powered on


class Errors(Struct, frozen=True):
    """The errors that PCI Express error reporting has counted since boot, by severity."""

    correctable: int | Missing
    nonfatal: int | Missing
    fatal: int | Missing


class Port(Struct, frozen=True):
    """The PCI Express port above an adapter: its maximum link and its own errors."""

    address: ShortText
    max_speed: float | Missing
    max_width: int | Missing
    errors: Errors


class Root(Struct, frozen=True):
    """The root port above an adapter, with the error messages received from below it."""

    address: ShortText
    errors: Errors


class LinkRate(Struct, frozen=True):
    """The current speed of a Fibre Channel or SAS link, and its port's maximum, in Gbit/s."""

    now: float
    most: float


class AdapterHealth(Struct, frozen=True):
    """The health of an adapter, as its bus, interrupts and module report it.

    ``errors`` is None if the adapter has no PCI function; ``vectors`` counts its MSI and MSI-X
    vectors. ``options`` are the parameters that its module was loaded with. ``credits`` are the
    commands that the firmware offers, by SCSI host. ``link_errors`` are the counters of Fibre
    Channel hosts and SAS phys, ``rates`` the speeds of the active ones. ``offers_msi`` is whether
    the card supports MSI or MSI-X, read only if neither is in use. ``inspected`` are attributes of
    its SCSI hosts that checks read, by host and name (``Family.inspected``).
    """

    errors: Errors | None
    port: Port | None
    root: Root | None
    vectors: int | Missing
    options: dict[LongText, LongText | Missing]
    credits: dict[ShortText, int | Missing]
    link_errors: dict[ShortText, int | Missing] = {}
    offers_msi: bool | Missing = Missing(Reason.ABSENT)
    inspected: dict[LongText, LongText | Missing] = {}
    rates: dict[ShortText, LinkRate] = {}


class DiskHealth(Struct, frozen=True):
    """The health of an endpoint, as the SCSI layer and the kernel's log report it.

    ``cache`` is the drive's cache type. ``done``, ``errors`` and ``timeouts`` count commands since
    the device appeared, in 32 bits. ``errors`` include successful pass-through, unit attentions and
    full queues (drivers/scsi/scsi_lib.c: scsi_complete), so a count is not evidence about the disk.

    ``logged`` counts this disk's failed I/O in the kernel's log, which omits pass-through
    (block/blk-mq.c: blk_update_request) and is limited in its rate, so each count is a minimum. Its
    keys are values of ``ErrorKind``; a snapshot of a newer hbatune may have others. ``counters``
    has the counters of an NVMe disk and its controller, by the name of the file.
    """

    cache: ShortText | Missing
    done: int | Missing
    errors: int | Missing
    timeouts: int | Missing
    logged: dict[ShortText, int] = {}
    counters: dict[ShortText, int | Missing] = {}


class Mount(Struct, frozen=True):
    """A mount point with the options of the mount."""

    point: ShortText
    options: tuple[ShortText, ...]


class UdevDisks(Struct, frozen=True):
    """The disks of a udev rule: globs of kernel names, and ``rotational`` if it matters."""

    kernels: tuple[ShortText, ...]  # empty if the rule is for no disk that appears
    rotational: bool | None = None

    def include(self, disk: Endpoint) -> bool:
        """Return whether the rule is for this disk."""
        is_type = self.rotational in (None, disk.rotational)
        return is_type and any(fnmatchcase(disk.target, kernel) for kernel in self.kernels)


class UdevRule(Struct, frozen=True):
    """A line of a udev rule that sets an attribute of block or SCSI devices.

    ``value`` is None if a program sets it. ``of`` are the patterns of vendors, models, serial
    numbers and maps that the rule, or an earlier jump in the file, requires. ``disks`` is None if
    other conditions decide.
    """

    file: ShortText
    line: int
    attribute: ShortText
    value: LongText | None
    of: tuple[ShortText, ...] = ()
    disks: UdevDisks | None = None


class ModuleOptionLine(Struct, frozen=True):
    """An option of an adapter's module in a file of modprobe.d, which holds from the next load."""

    file: ShortText
    line: int
    module: ShortText
    option: ShortText
    value: ShortText


class TunedWrite(Struct, frozen=True):
    """An attribute that a profile of tuned sets, and the file that sets it."""

    file: ShortText
    attribute: ShortText
    value: LongText


class TunedProfile(Struct, frozen=True, tag="tuned"):
    """The active profile of tuned and its writes; ``names`` are separated by blanks."""

    names: LongText
    writes: tuple[TunedWrite, ...]


class Health(Struct, frozen=True):
    """The health of an entire machine; adapters and endpoints are by target.

    ``daemons`` has the daemons that change the same settings and whether each runs. ``tools`` has
    the programs that hbatune can use and whether each is installed. ``irq_policies`` are the
    scripts that a running irqbalance runs to find the interrupts that it must not move. ``log`` is
    True if the kernel's log was read. ``msi_off`` is the option of the kernel's command line that
    switches MSI off for all devices, ``elevator`` an option without effect. ``tuned`` is the
    profile of a tuned that runs, or that applied it and exited. ``unset`` are the settings that
    hbatune's own udev rules could not set. ``io_shares`` are the units that use I/O weights or
    priorities (``services.find_io_shares``). ``module_options`` of others are in modprobe's order.
    """

    adapters: dict[ShortText, AdapterHealth]
    disks: dict[ShortText, DiskHealth]
    mounts: tuple[Mount, ...]
    daemons: dict[ShortText, bool | Missing]
    tools: dict[ShortText, bool]
    udev_rules: tuple[UdevRule, ...]
    irq_policies: tuple[ShortText, ...] = ()
    log: bool | Missing = Missing(Reason.ABSENT)
    msi_off: ShortText | None = None
    elevator: ShortText | None = None
    tuned: TunedProfile | Missing = Missing(Reason.ABSENT)
    unset: tuple[UnsetSetting, ...] = ()
    io_shares: dict[ShortText, tuple[ShortText, ...]] = {}
    module_options: tuple[ModuleOptionLine, ...] = ()


# The counts of PCI Express error reporting, each with its name in the last line of ``aer_dev_*``.
BUS_COUNTERS = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
BUS_ERROR_ATTRIBUTES = tuple(map("aer_dev_{}".format, BUS_COUNTERS))


def parse_bus_errors(function: Attributes) -> Errors:
    """Return the totals of ``aer_dev_*``, which are in the last line of each."""
    totals = {name: _parse_total(function, name, label) for name, label in BUS_COUNTERS.items()}
    return Errors(**totals)


def _parse_total(function: Attributes, name: str, severity: str) -> int | Missing:
    counters = get_text(function, f"aer_dev_{name}")
    if isinstance(counters, Missing):
        return counters
    # Use the kernel's own total, not the sum of the lines above it: the two may differ.
    for line in counters.splitlines():
        label, _, count = line.rpartition(" ")
        if label == f"TOTAL_ERR_{severity}" and count.isdecimal():
            return int(count)
    return make_unparsable(counters)


LOG_COUNTER_PREFIX = "logged "  # before the type, in the name of a count from the kernel's log
ROOT_COUNTER_PREFIX = "root "  # before a root port's counts, which include all devices below it
# The counters for which a single increase is a failure.
LOST_IO = "io_fail_no_available_path_count"  # I/O of an NVMe head that found no path and failed
SERIOUS_COUNTERS = frozenset({"timeouts", "nonfatal", "fatal", LOST_IO})
# The counters of an NVMe disk, since Linux 7.2. They count from the device's start, and root may
# set them to 0 (drivers/nvme/host/sysfs.c, multipath.c).
NVME_COUNTERS = (
    *("command_retries_count", "multipath_failover_count"),
    *("io_requeue_no_usable_path_count", LOST_IO),
)
# The counter of commands that ended with any status other than good (``DiskHealth.errors``).
COMMAND_ERRORS = "errors"
DAY_S = 24 * 3600  # seconds: the maximum age of an observation to compare with
MIN_INTERVAL_S = 600  # seconds between two stored observations


def is_evidence(counter: str) -> bool:
    """Return whether an increase of this counter is evidence of a failure on its own target.

    ``COMMAND_ERRORS`` is not, since each poll of smartd raises it. A root port's counts are not,
    since they may come from another device below it.
    """
    return counter != COMMAND_ERRORS and not counter.startswith(ROOT_COUNTER_PREFIX)


class ErrorCounters(Struct, frozen=True):
    """The counters that are not 0, by the endpoint's id or the adapter's name."""

    boot_id: ShortText  # a counter starts at 0 with each boot
    at: int  # seconds since the epoch
    values: dict[ShortText, dict[ShortText, int]]
    paths: dict[ShortText, int] = {}  # numbers of paths of maps, by id

    def value(self, target: str, name: str) -> int:
        """Return one counter."""
        return self.values.get(target, {}).get(name, 0)


def collect_counters(machine: Machine, health: Health, time: int) -> ErrorCounters:
    """Return the counters of the machine; ``time`` is the time of the observation."""
    values: dict[str, dict[str, int]] = {}
    for target, name, count in _iterate_counters(machine, health):
        # Zeros are omitted: with thousands of healthy disks they would fill the file.
        if isinstance(count, int) and count > 0:
            values.setdefault(target, {})[name] = count
    paths = {endpoint.id: len(endpoint.paths) for endpoint in machine.endpoints if endpoint.paths}
    return ErrorCounters(machine.boot_id, time, values, paths)


def find_earlier_counters(
    observations: Sequence[ErrorCounters], current: ErrorCounters
) -> ErrorCounters | None:
    """Return this boot's oldest observation of the last 24 hours, or else the latest older one."""
    old, recent = _split_by_age(observations, current)
    return next(iter((*recent[:1], *old[-1:])), None)


def retain_observations(
    observations: Sequence[ErrorCounters], current: ErrorCounters
) -> tuple[ErrorCounters, ...]:
    """Return the observations to store: the ones worth comparing with, and the current one.

    The latest observation older than a day is kept, for machines that are checked less than daily.
    On machines that are checked often, none is added within ``MIN_INTERVAL_S``.
    """
    old, recent = _split_by_age(observations, current)
    last = (recent or old)[-1:]
    is_early = bool(last) and current.at - last[0].at < MIN_INTERVAL_S
    return (*old[-1:], *recent) if is_early else (*old[-1:], *recent, current)


def _split_by_age(
    observations: Sequence[ErrorCounters], current: ErrorCounters
) -> tuple[list[ErrorCounters], list[ErrorCounters]]:
    """Return this boot's earlier observations by time: older than a day, and more recent ones."""
    earlier = []
    for observation in sorted(observations, key=lambda observation: observation.at):
        if observation.boot_id == current.boot_id and observation.at < current.at:
            earlier.append(observation)
    old = [observation for observation in earlier if observation.at < current.at - DAY_S]
    return old, earlier[len(old) :]


def _iterate_counters(machine: Machine, health: Health) -> Iterator[tuple[str, str, object]]:
    for endpoint in machine.endpoints:
        if disk := health.disks.get(endpoint.target):
            yield endpoint.id, COMMAND_ERRORS, disk.errors
            yield endpoint.id, "timeouts", disk.timeouts
            for fault, times in disk.logged.items():
                yield endpoint.id, f"{LOG_COUNTER_PREFIX}{fault}", times
            for name, count in disk.counters.items():
                yield endpoint.id, name, count
    for target, adapter in health.adapters.items():
        port = adapter.port.errors if adapter.port else None
        root = adapter.root.errors if adapter.root else None
        ends = {"": adapter.errors, "port ": port, ROOT_COUNTER_PREFIX: root}
        for prefix, errors in ends.items():
            for name in BUS_COUNTERS if errors else ():
                yield target, f"{prefix}{name}", getattr(errors, name)
        for name, count in adapter.link_errors.items():
            yield target, name, count
