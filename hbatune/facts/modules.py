"""What the options of the loaded modules are, and how this system rebuilds its initramfs."""

import os
import shutil
from collections.abc import Iterable

from hbatune.facts.attributes import read
from hbatune.facts.family import Family
from hbatune.facts.model import Module

# In the order in which they are looked for: who has the first of them uses it.
_REBUILD = {
    "update-initramfs": "update-initramfs -u",
    "dracut": "dracut --force",
    "mkinitcpio": "mkinitcpio -P",
}


def modules(families: Iterable[Family]) -> tuple[Module, ...]:
    """Return the loaded modules of these families, with the options that each declares.

    A module without an option that can be seen in sysfs (kernel/params.c) has no directory there.
    """
    found = []
    for family in families:
        directory = f"/sys/module/{family.name}"
        names = tuple(option.name for option in family.options)
        if names and os.path.isdir(directory):
            wanted = tuple(f"parameters/{name}" for name in names)
            values = read(directory, wanted)
            found.append(
                Module(
                    family.name,
                    {name: values[path] for name, path in zip(names, wanted, strict=True)},
                )
            )
    return tuple(found)


def rebuild_initramfs() -> str | None:
    """Return the command that rebuilds the initramfs here, None where no known one is there."""
    return next((command for tool, command in _REBUILD.items() if shutil.which(tool)), None)
