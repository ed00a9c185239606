"""How a machine fares, and what else is at work on it: the facts that checks need beside a plan's.

As in ``model``, a fact that could not be had is a ``Missing`` that says why.
"""

from msgspec import Struct

from hbatune.facts.model import Missing


class Errors(Struct, frozen=True):
    """What PCI Express error reporting has counted since boot, by severity."""

    correctable: int | Missing
    nonfatal: int | Missing
    fatal: int | Missing


class Port(Struct, frozen=True):
    """The PCI Express port that an adapter is plugged into: what it can do, and its own errors."""

    address: str
    max_speed: float | Missing
    max_width: int | Missing
    errors: Errors


class Root(Struct, frozen=True):
    """The root port above an adapter, with the error messages that came in from below it."""

    address: str
    errors: Errors


class AdapterHealth(Struct, frozen=True):
    """What an adapter's bus, interrupts and module say.

    ``errors`` is None where the adapter has no PCI function; ``vectors`` counts its MSI and MSI-X
    vectors. ``options`` are the parameters that its module was loaded with, by name. ``credits``
    are the commands that the firmware offers, by SCSI host. ``link_errors`` are what the hosts of
    a Fibre Channel adapter counted, by name.
    """

    errors: Errors | None
    port: Port | None
    root: Root | None
    vectors: int | Missing
    options: dict[str, str | Missing]
    credits: dict[str, int | Missing]
    link_errors: dict[str, int | Missing] = {}


class DiskHealth(Struct, frozen=True):
    """What the SCSI layer says of an endpoint.

    ``cache`` is the drive's cache type. ``done``, ``errors`` and ``timeouts`` count commands since
    the device came, in 32 bits.
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

    ``value`` is what it sets, None where a program that it runs does.
    """

    file: str
    line: int
    attribute: str
    value: str | None


class Health(Struct, frozen=True):
    """All of it: by target for adapters and endpoints.

    ``daemons`` says of each that sets what hbatune sets whether it runs, ``tools`` of each program
    that hbatune can make use of whether it is installed. ``irq_policies`` are the scripts that a
    running irqbalance asks which interrupts to leave.
    """

    adapters: dict[str, AdapterHealth]
    disks: dict[str, DiskHealth]
    mounts: tuple[Mount, ...]
    daemons: dict[str, bool | Missing]
    tools: dict[str, bool]
    udev_rules: tuple[UdevRule, ...]
    irq_policies: tuple[str, ...] = ()
