"""The adapter families, one module each with the family's name. There is no other list of them.

A machine has adapters of one or two families, and if possible only their modules are imported.
"""

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from hbatune.facts.family import Family, Option

# For an unknown driver: use only the evidence of the SCSI midlayer and the transport classes.
GENERIC = Family(name="scsi")


@cache
def families() -> tuple[Family, ...]:
    """Return all families, by name."""
    return tuple(family_named(name) for name in _list_names())


@cache
def family_of(*names: str | None) -> Family:
    """Return the family that serves one of these driver names, the first name first."""
    for name in names:
        if name is None:
            continue
        # Most families have the name of their driver, and no driver has two families.
        if name in (candidate := family_named(name)).drivers:
            return candidate
        for family in families():
            if name in family.drivers:
                return family
    return GENERIC


@cache
def family_named(name: str) -> Family:
    """Return the family with this name."""
    if name not in _list_names():
        return GENERIC
    family: Family = import_module(f"{__name__}.{name}").FAMILY
    return family


@cache
def _list_names() -> tuple[str, ...]:
    files = sorted(name for folder in __path__ for name in os.listdir(folder))
    return tuple(name[:-3] for name in files if name.endswith(".py") and name[0] != "_")


@cache
def known_options() -> Mapping[str, Mapping[str, Option]]:
    """Return the options that the families declare, by module and name."""
    return {
        family.name: {option.name: option for option in family.options}
        for family in families()
        if family.options
    }
