"""The way from an adapter to the root of PCI Express, and the errors that its links count."""

import os
import re

from hbatune.facts.attributes import Attributes, text, unparsable
from hbatune.facts.health import Errors
from hbatune.facts.model import Missing
from hbatune.facts.routes import name_of

SEVERITIES = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}
"""The severities of errors, with the word for each in the last line of ``aer_dev_*``."""

_ADDRESS = r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"


def way_to_root(address: str) -> tuple[str, ...]:
    """Return the directories of a PCI function and of all ports above it, the root port last."""
    directory = os.path.realpath(f"/sys/bus/pci/devices/{address}")
    found = []
    while re.match(_ADDRESS, name_of(directory)):
        found.append(directory)
        directory = directory.rpartition("/")[0]
    return tuple(found)


def bus_errors(function: Attributes) -> Errors:
    """Return the totals of ``aer_dev_*``, the last line of each."""
    return Errors(**{name: _total(function, name, word) for name, word in SEVERITIES.items()})


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
