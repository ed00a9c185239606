"""The place of an adapter on PCI Express, and the bus errors counted there.

Errors may be counted at the adapter, at the port above it, and at the root port, which counts the
messages of everything below it: all three are read (drivers/pci/pcie/aer.c).
"""

import errno
import os
import re
from collections.abc import Mapping

from hbatune.facts.attributes import (
    ABSENT,
    CONFIG,
    Attributes,
    binary,
    integer,
    leading_number,
    text,
    unparsable,
)
from hbatune.facts.health import Errors, Port, Root
from hbatune.facts.model import Missing, Reason
from hbatune.facts.place import name_of

_SEVERITIES = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
_ROOT = {"correctable": "cor", "nonfatal": "nonfatal", "fatal": "fatal"}

FUNCTION = (
    "max_link_speed",
    "max_link_width",
    "msi_irqs/",
    *(f"aer_dev_{name}" for name in _SEVERITIES),
    *(f"aer_rootport_total_err_{name}" for name in _ROOT.values()),
)
"""The attributes read from an adapter's PCI function and from the ports above it."""

_STATUS, _HAS_LIST = 0x06, 1 << 4  # include/uapi/linux/pci_regs.h: PCI_STATUS_CAP_LIST
_FIRST, _HEADER = 0x34, 0x40  # PCI_CAPABILITY_LIST, PCI_STD_HEADER_SIZEOF
_MSI = frozenset({0x05, 0x11})  # PCI_CAP_ID_MSI, PCI_CAP_ID_MSIX
_GONE = 0xFF

_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


def way(address: str) -> tuple[str, ...]:
    """Return the directories of a PCI function and of all ports above it, the root port last."""
    directory = os.path.realpath(f"/sys/bus/pci/devices/{address}")
    found = []
    while _ADDRESS.match(name_of(directory)):
        found.append(directory)
        directory = directory.rpartition("/")[0]
    return tuple(found)


def errors(function: Attributes) -> Errors:
    """Return the totals of ``aer_dev_*``, the last line of each."""
    return Errors(**{name: _total(function, name, word) for name, word in _SEVERITIES.items()})


def port(directory: str, survey: Mapping[str, Attributes]) -> Port:
    """Return the port above an adapter."""
    found = survey.get(directory, {})
    return Port(
        address=name_of(directory),
        max_speed=leading_number(found, "max_link_speed"),
        max_width=_width(found),
        errors=errors(found),
    )


def root(directory: str, survey: Mapping[str, Attributes]) -> Root:
    """Return the root port above an adapter."""
    found = survey.get(directory, {})
    totals = {name: integer(found, f"aer_rootport_total_err_{w}") for name, w in _ROOT.items()}
    return Root(name_of(directory), Errors(**totals))


def vectors(function: Attributes) -> int | Missing:
    """Return the number of MSI or MSI-X vectors; absent if the function has one line instead."""
    names = text(function, "msi_irqs/")
    return names if isinstance(names, Missing) else len(names.split())


def offers_msi(function: Attributes) -> bool | Missing:
    """Whether the function's list of capabilities has MSI or MSI-X (PCI Local Bus 3.0, 6.7, 6.8).

    Only root may read beyond the first 64 bytes (drivers/pci/pci-sysfs.c: pci_read_config).
    """
    found = function.get(CONFIG, ABSENT)
    if isinstance(found, Missing):
        return found
    config = binary(function, CONFIG)
    if len(config) <= _HEADER:
        return Missing(Reason.UNREADABLE, errno.EACCES)
    if config[0] == config[1] == _GONE:  # a card that does not answer reads as ones
        return Missing(Reason.UNREADABLE, errno.EIO)
    place = config[_FIRST] if config[_STATUS] & _HAS_LIST else 0
    seen: set[int] = set()
    while place >= _HEADER and place not in seen and place + 1 < len(config):
        seen.add(place)
        if config[place] in _MSI:
            return True
        place = config[place + 1] & ~3
    return False


def _width(function: Attributes) -> int | Missing:
    """Return lanes; ports without a link report 0 or 255 (drivers/pci/pci-sysfs.c)."""
    width = integer(function, "max_link_width")
    return ABSENT if width in (0, 255) else width


def _total(function: Attributes, name: str, word: str) -> int | Missing:
    found = text(function, f"aer_dev_{name}")
    if isinstance(found, Missing):
        return found
    # The kernel's own total, not the sum of the lines above it: the two may differ.
    for line in found.splitlines():
        label, _, count = line.rpartition(" ")
        if label == f"TOTAL_ERR_{word}" and count.isdecimal():
            return int(count)
    return unparsable(found)
