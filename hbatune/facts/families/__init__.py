"""The adapter families, one module each. A new family is a new module; nothing lists them."""

import pkgutil
from functools import cache
from importlib import import_module

from hbatune.facts.family import Family

# Where no driver is known: believe only what the SCSI midlayer and the transport classes say.
GENERIC = Family(name="scsi", drivers=frozenset())


@cache
def families() -> tuple[Family, ...]:
    """Return all families, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(import_module(f"{__name__}.{name}").FAMILY for name in names)


@cache
def family_of(*names: str | None) -> Family:
    """Return the family that serves one of these driver names, the first name first."""
    for name in names:
        for family in families():
            if name in family.drivers:
                return family
    return GENERIC


@cache
def family_named(name: str) -> Family:
    """Return the family that goes by this name itself."""
    return next((family for family in families() if family.name == name), GENERIC)


def declared(field: str) -> tuple[str, ...]:
    """Return every attribute that any family names in its ``model``, ``firmware``, ``version``."""
    return tuple(sorted({name for family in families() for name in getattr(family, field)}))
