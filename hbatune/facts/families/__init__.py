"""The adapter families, one module each, named as the family. Nothing else lists them.

A machine has adapters of one or two of them, and only their modules are imported where possible.
"""

import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from hbatune.facts.family import Family, Option

# Where no driver is known: believe only what the SCSI midlayer and the transport classes say.
GENERIC = Family(name="scsi", drivers=frozenset())


@cache
def families() -> tuple[Family, ...]:
    """Return all families, by name."""
    return tuple(family_named(name) for name in _names())


@cache
def family_of(*names: str | None) -> Family:
    """Return the family that serves one of these driver names, the first name first."""
    for name in names:
        if name is None:
            continue
        # Most families go by the name of their driver, and no driver has two.
        if name in (named := family_named(name)).drivers:
            return named
        for family in families():
            if name in family.drivers:
                return family
    return GENERIC


@cache
def family_named(name: str) -> Family:
    """Return the family that goes by this name itself."""
    if name not in _names():
        return GENERIC
    found: Family = import_module(f"{__name__}.{name}").FAMILY
    return found


@cache
def _names() -> tuple[str, ...]:
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


def declared(field: str) -> tuple[str, ...]:
    """Return every attribute that any family names in its ``model``, ``firmware``, ``version``."""
    return tuple(sorted({name for family in families() for name in getattr(family, field)}))
