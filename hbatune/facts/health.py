"""The health of a machine and the other tools on it: facts for checks, beside those of a plan.

Values only, and the comparison of the errors that were counted at two moments. As in ``model``, a
fact that could not be read is a ``Missing`` with the reason.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.model import Machine, Missing, Reason


class ErrorKind(StrEnum):
    """The kinds of failed I/O that the kernel's log tells apart, and what is no failure: a reset.

    The words are those of block/blk-core.c: blk_errors, made finer by the SCSI layer's own
    messages before them.
    """

    MEDIUM = "medium"  # sectors that the drive cannot read or write
    HARDWARE = "hardware"  # the drive reports a failure of its own
    PROTECTION = "protection"  # data came back other than it was written (T10 PI)
    TRANSPORT = "transport"  # the command did not get through: cable, path, link
    TIMEOUT = "timeout"  # no answer came in time
    SPACE = "space"  # the array has no room left behind a thin volume
    OTHER = "other"  # failed, and the kernel does not say why
    RESET = "reset"  # a unit attention: the device was reset or powered on


class Errors(Struct, frozen=True):
    """The errors that PCI Express error reporting has counted since boot, by severity."""

    correctable: int | Missing
    nonfatal: int | Missing
    fatal: int | Missing


class Port(Struct, frozen=True):
    """The PCI Express port that an adapter is plugged into: its maximum link and its own errors."""

    address: str
    max_speed: float | Missing
    max_width: int | Missing
    errors: Errors


class Root(Struct, frozen=True):
    """The root port above an adapter, with the error messages that came in from below it."""

    address: str
    errors: Errors


class LinkRate(Struct, frozen=True):
    """The speed of a Fibre Channel or SAS link, and the most that its port can do, in Gbit/s."""

    now: float
    most: float


class AdapterHealth(Struct, frozen=True):
    """The health of an adapter, as its bus, interrupts and module report it.

    ``errors`` is None if the adapter has no PCI function; ``vectors`` counts its MSI and MSI-X
    vectors. ``options`` are the parameters that its module was loaded with, by name. ``credits``
    are the commands that the firmware offers, by SCSI host. ``link_errors`` are the counters of
    the hosts of a Fibre Channel adapter and of the phys of a SAS adapter, by name. ``offers_msi``
    is whether the card can do MSI or MSI-X, looked up where neither is in use. ``inspected`` are
    attributes of its SCSI hosts that checks look at, by host and name (``Family.inspected``).
    ``rates`` are the speeds of its Fibre Channel ports and SAS phys that are up, by name.
    """

    errors: Errors | None
    port: Port | None
    root: Root | None
    vectors: int | Missing
    options: dict[str, str | Missing]
    credits: dict[str, int | Missing]
    link_errors: dict[str, int | Missing] = {}
    offers_msi: bool | Missing = Missing(Reason.ABSENT)
    inspected: dict[str, str | Missing] = {}
    rates: dict[str, LinkRate] = {}


class DiskHealth(Struct, frozen=True):
    """The health of an endpoint, as the SCSI layer and the kernel's log report it.

    ``cache`` is the drive's cache type. ``done``, ``errors`` and ``timeouts`` count commands since
    the device appeared, in 32 bits. ``errors`` are all commands that ended with any status other
    than good: failed ones, and also pass-through that succeeded, unit attentions and full queues
    (drivers/scsi/scsi_lib.c: scsi_complete), so that alone they say nothing about the disk.
    ``logged`` counts the failed I/O of this disk in the kernel's log, which leaves pass-through
    out (block/blk-mq.c: blk_update_request) and is limited in its rate: at least so many. Its keys
    are those of ``ErrorKind``; a snapshot of a newer hbatune may have others.
    """

    cache: str | Missing
    done: int | Missing
    errors: int | Missing
    timeouts: int | Missing
    logged: dict[str, int] = {}


class Mount(Struct, frozen=True):
    """A mount point with the options of the mount."""

    point: str
    options: tuple[str, ...]


class UdevRule(Struct, frozen=True):
    """A line of a udev rule that sets an attribute of block or SCSI devices.

    ``value`` is the one that it sets, None if a program that it runs does. ``of`` are the patterns
    of vendors, models, serial numbers and maps that the rule asks for, or that a jump before it in
    the file asks for; empty if there are none.
    """

    file: str
    line: int
    attribute: str
    value: str | None
    of: tuple[str, ...] = ()


class TunedWrite(Struct, frozen=True):
    """An attribute that a profile of tuned sets, and the file that says so."""

    file: str
    attribute: str
    value: str


class TunedProfile(Struct, frozen=True, tag="tuned"):
    """The active profile of tuned, and what it sets; ``names`` are separated by blanks."""

    names: str
    writes: tuple[TunedWrite, ...]


class Health(Struct, frozen=True):
    """The health of a whole machine; adapters and endpoints are by target.

    ``daemons`` has the daemons that change the same settings and whether each runs, ``tools`` the
    programs that hbatune can use and whether each is installed. ``irq_policies`` are the scripts
    that a running irqbalance asks which interrupts to leave alone. ``log`` is True if the
    kernel's log was read. ``msi_off`` is the word of the kernel's command line that switches MSI
    off for all devices, None without one. ``tuned`` is the profile of a tuned that runs.
    """

    adapters: dict[str, AdapterHealth]
    disks: dict[str, DiskHealth]
    mounts: tuple[Mount, ...]
    daemons: dict[str, bool | Missing]
    tools: dict[str, bool]
    udev_rules: tuple[UdevRule, ...]
    irq_policies: tuple[str, ...] = ()
    log: bool | Missing = Missing(Reason.ABSENT)
    msi_off: str | None = None
    tuned: TunedProfile | Missing = Missing(Reason.ABSENT)


LOGGED = "logged "  # before the kind, in the name of a count of the kernel's log
ROOT = "root "  # before the counts of a root port, which are those of everything below it
BUS = ("correctable", "nonfatal", "fatal")  # the counts of PCI Express error reporting
GRAVE = frozenset({"timeouts", "nonfatal", "fatal"})
"""The counters of which a single rise is a failure."""
NOT_GOOD = "errors"
"""The counter of commands that ended with any status other than good (``DiskHealth.errors``)."""
DAY = 24 * 3600  # seconds for which an observation is worth comparing with
PAUSE = 600  # seconds between two observations that are kept


def is_evidence(counter: str) -> bool:
    """Whether a rise of this counter is evidence of a failure on its own target.

    ``NOT_GOOD`` is not, since each poll of smartd raises it, nor are the counts of a root port,
    which may be those of another device below it.
    """
    return counter != NOT_GOOD and not counter.startswith(ROOT)


class Counted(Struct, frozen=True):
    """The counters that are not 0, by the endpoint's id or the adapter's name.

    ``at`` is in seconds since the epoch; a counter starts from 0 with each boot.
    """

    boot_id: str
    at: int
    values: dict[str, dict[str, int]]

    def value(self, target: str, name: str) -> int:
        """Return one counter."""
        return self.values.get(target, {}).get(name, 0)


def counted(machine: Machine, health: Health, at: int) -> Counted:
    """Return the counters of the machine; ``at`` is the time of the observation."""
    values: dict[str, dict[str, int]] = {}
    for target, name, count in _all(machine, health):
        # Zeros are left out: on a healthy machine with thousands of disks they would be the file.
        if isinstance(count, int) and count > 0:
            values.setdefault(target, {})[name] = count
    return Counted(machine.boot_id, at, values)


def earlier(observations: Sequence[Counted], now: Counted) -> Counted | None:
    """Return the observation of this boot to compare with: the oldest of the last 24 hours.

    If there is none, it is the newest of those before.
    """
    before = [
        observation
        for observation in observations
        if observation.boot_id == now.boot_id and observation.at < now.at
    ]
    recent = [each for each in before if each.at >= now.at - DAY]
    if recent:
        return min(recent, key=lambda each: each.at)
    return max(before, key=lambda each: each.at, default=None)


def kept(observations: Sequence[Counted], now: Counted) -> tuple[Counted, ...]:
    """Return the observations to store: those worth comparing with, and this one.

    The newest of those older than a day stays, for a machine that is looked at less than daily;
    one that is looked at often adds none within ``PAUSE``.
    """
    before = sorted(
        (
            observation
            for observation in observations
            if observation.boot_id == now.boot_id and observation.at < now.at
        ),
        key=lambda each: each.at,
    )
    old = [each for each in before if each.at < now.at - DAY]
    recent = [each for each in before if each.at >= now.at - DAY]
    last = (recent or old)[-1:]
    if last and now.at - last[0].at < PAUSE:
        return (*old[-1:], *recent)
    return (*old[-1:], *recent, now)


def _bus_errors(adapter: AdapterHealth) -> Iterator[tuple[str, Errors]]:
    """Yield the errors of the adapter, its port and its root port, with the prefix of each."""
    if adapter.errors:
        yield "", adapter.errors
    if adapter.port:
        yield "port ", adapter.port.errors
    if adapter.root:
        yield ROOT, adapter.root.errors


def _all(machine: Machine, health: Health) -> Iterator[tuple[str, str, object]]:
    for endpoint in machine.endpoints:
        if disk := health.disks.get(endpoint.target):
            yield endpoint.id, NOT_GOOD, disk.errors
            yield endpoint.id, "timeouts", disk.timeouts
            for fault, times in disk.logged.items():
                yield endpoint.id, f"{LOGGED}{fault}", times
    for target, adapter in health.adapters.items():
        for place, errors in _bus_errors(adapter):
            yield target, f"{place}correctable", errors.correctable
            yield target, f"{place}nonfatal", errors.nonfatal
            yield target, f"{place}fatal", errors.fatal
        for name, count in adapter.link_errors.items():
            yield target, name, count
