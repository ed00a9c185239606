"""Generate the table of each adapter family's readable and settable properties."""

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from hbatune.facts.family import Depth, Family, Option, Purpose, Vectors


class Access(StrEnum):
    """The possible access to one property of a family."""

    READ = "read"  # a fact that can only be read
    SET = "set"  # a value that can be set immediately or by a module option
    FIXED = "fixed"  # a value that cannot be set with this driver
    ABSENT = "absent"  # the family has no such property


class Cell(Struct, frozen=True):
    """One cell: the access, and the attributes, options or types that provide it."""

    access: Access
    by: tuple[str, ...] = ()


def _identity(family: Family) -> Cell:
    by = ("PCI ids",) if family.products else ()
    by = (*family.model, *by)
    return Cell(Access.READ if by else Access.ABSENT, by)


def _depth(family: Family) -> Cell:
    access = {Depth.SET: Access.SET, Depth.FIXED: Access.FIXED, Depth.ABSENT: Access.ABSENT}
    return Cell(access[family.depth], _options(family, Purpose.LUN_DEPTH))


def _host_depth(family: Family) -> Cell:
    options = _options(family, Purpose.HOST_DEPTH)
    return Cell(Access.SET if options else Access.FIXED, options)


def _vectors(family: Family) -> Cell:
    """Return the cell of the data vectors. Options only set their number."""
    vectors = family.interrupts.vectors
    if vectors in (Vectors.NONE, Vectors.UNKNOWN):
        return Cell(Access.ABSENT)
    return Cell(Access.SET if vectors is Vectors.FREE else Access.FIXED, (vectors.value,))


def _coalescing(family: Family) -> Cell:
    if family.coalescing:
        return Cell(Access.SET, family.coalescing)
    if family.fixed_coalescing:
        return Cell(Access.FIXED, (family.fixed_coalescing,))
    return Cell(Access.ABSENT)


def _firmware(family: Family) -> Cell:
    return Cell(Access.READ if family.firmware else Access.ABSENT, family.firmware)


def _options(family: Family, purpose: Purpose) -> tuple[str, ...]:
    return tuple(named(option) for option in family.options if option.purpose is purpose)


def named(option: Option) -> str:
    """Return the option's name with the word ``option`` before it."""
    return f"option {option.name}"


COLUMNS: dict[str, Callable[[Family], Cell]] = {
    "identity": _identity,
    "depth": _depth,
    "host depth": _host_depth,
    "vectors": _vectors,
    "coalescing": _coalescing,
    "firmware": _firmware,
}
"""The columns of the table of families, by heading."""


def capabilities(family: Family) -> dict[str, Cell]:
    """Return the family's row of the table."""
    return {heading: cell(family) for heading, cell in COLUMNS.items()}
