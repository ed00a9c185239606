"""The health of a machine and the other tools on it: facts for checks, beside those of a plan.

Values only, and the comparison of the errors that were counted at two moments. As in ``model``, a
fact that could not be read is a ``Missing`` with the reason.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hbatune.facts.model import Machine, Missing


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


class AdapterHealth(Struct, frozen=True):
    """The health of an adapter, as its bus, interrupts and module report it.

    ``errors`` is None if the adapter has no PCI function; ``vectors`` counts its MSI and MSI-X
    vectors. ``options`` are the parameters that its module was loaded with, by name. ``credits``
    are the commands that the firmware offers, by SCSI host. ``link_errors`` are the counters of
    the hosts of a Fibre Channel adapter, by name.
    """

    errors: Errors | None
    port: Port | None
    root: Root | None
    vectors: int | Missing
    options: dict[str, str | Missing]
    credits: dict[str, int | Missing]
    link_errors: dict[str, int | Missing] = {}


class DiskHealth(Struct, frozen=True):
    """The health of an endpoint, as the SCSI layer reports it.

    ``cache`` is the drive's cache type. ``done``, ``errors`` and ``timeouts`` count commands since
    the device appeared, in 32 bits.
    """

    cache: str | Missing
    done: int | Missing
    errors: int | Missing
    timeouts: int | Missing


class Mount(Struct, frozen=True):
    """A mount point with the options of the mount."""

    point: str
    options: tuple[str, ...]


class UdevRule(Struct, frozen=True):
    """A line of a udev rule that sets an attribute of block or SCSI devices.

    ``value`` is the one that it sets, None if a program that it runs does.
    """

    file: str
    line: int
    attribute: str
    value: str | None


class Health(Struct, frozen=True):
    """The health of a whole machine; adapters and endpoints are by target.

    ``daemons`` has the daemons that change the same settings and whether each runs, ``tools`` the
    programs that hbatune can use and whether each is installed. ``irq_policies`` are the scripts
    that a running irqbalance asks which interrupts to leave alone.
    """

    adapters: dict[str, AdapterHealth]
    disks: dict[str, DiskHealth]
    mounts: tuple[Mount, ...]
    daemons: dict[str, bool | Missing]
    tools: dict[str, bool]
    udev_rules: tuple[UdevRule, ...]
    irq_policies: tuple[str, ...] = ()


DAY = 24 * 3600  # seconds for which an observation is worth comparing with
PAUSE = 600  # seconds between two observations that are kept


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
    before = [each for each in observations if each.boot_id == now.boot_id and each.at < now.at]
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
        (each for each in observations if each.boot_id == now.boot_id and each.at < now.at),
        key=lambda each: each.at,
    )
    old = [each for each in before if each.at < now.at - DAY]
    recent = [each for each in before if each.at >= now.at - DAY]
    last = (recent or old)[-1:]
    if last and now.at - last[0].at < PAUSE:
        return (*old[-1:], *recent)
    return (*old[-1:], *recent, now)


def _all(machine: Machine, health: Health) -> Iterator[tuple[str, str, object]]:
    for endpoint in machine.endpoints:
        if disk := health.disks.get(endpoint.target):
            yield endpoint.id, "errors", disk.errors
            yield endpoint.id, "timeouts", disk.timeouts
    for target, adapter in health.adapters.items():
        if adapter.errors:
            yield target, "correctable", adapter.errors.correctable
            yield target, "nonfatal", adapter.errors.nonfatal
            yield target, "fatal", adapter.errors.fatal
        for name, count in adapter.link_errors.items():
            yield target, name, count
