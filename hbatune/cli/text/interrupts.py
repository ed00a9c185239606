"""Interrupts for people: what an adapter's vectors are for, and who may move them."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from hbatune.cli.text.fold import names, shown
from hbatune.cli.text.output import Table
from hbatune.facts import cpulist
from hbatune.facts.model import Role, Vector

_HEADINGS = ["INTERRUPTS", "FOR", "PLACED BY", "NOW ON CPUS"]


class _Group(NamedTuple):
    role: Role
    placed_by: str


def interrupts(vectors: Iterable[Vector]) -> Table:
    """Return a table of one adapter's interrupts, those that are alike on one line."""
    groups: dict[_Group, list[Vector]] = {}
    for vector in vectors:
        groups.setdefault(_group(vector), []).append(vector)
    table = Table(_HEADINGS)
    table.rows = [
        [
            names([vector.target for vector in alike]),
            str(group.role),
            group.placed_by,
            shown(_cpus(alike) or None),
        ]
        for group, alike in groups.items()
    ]
    return table


def _group(vector: Vector) -> _Group:
    if vector.role is not Role.DATA:
        return _Group(vector.role, "anybody, left alone")
    if not vector.managed:
        return _Group(vector.role, "anybody")
    said = "kernel, by its name" if vector.inferred else "kernel"
    return _Group(vector.role, said)


def _cpus(vectors: Sequence[Vector]) -> str:
    found: set[int] = set()
    for vector in vectors:
        with suppress(ValueError):
            found.update(cpulist.parse(vector.effective or ""))
    return cpulist.join(found)
