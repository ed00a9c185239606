"""The order of names for people, and runs of names that follow each other."""

import re
from collections.abc import Iterable, Iterator, Sequence

_LETTERED = r"(sd|vd|xvd|hd|dasd|mpath)([a-z]+)([0-9]*)"
"""Counted in letters: sdz is followed by sdaa (drivers/scsi/sd.c: sd_format_disk_name)."""

_PCI = r"([0-9a-f]{4,}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])"
_SHORTEST = 4
"""Names that follow each other are a range from this number on."""

Key = list[tuple[int, int, str]]


def natural_key(name: str) -> Key:
    """Return a sort key that counts as people do: sd2 before sd10, sdz before sdaa."""
    # The whole name ends the key: before all that is longer, and no two names are equal.
    return [*_key(name), (-1, 0, name)]


def name_ranges(names: Iterable[str]) -> Iterator[str]:
    """Yield names in their order, four and more that follow each other as ``sda..sdl``."""
    for run in _runs(sorted(set(names), key=natural_key)):
        if len(run) < _SHORTEST:
            yield from run
        else:
            yield f"{run[0]}..{run[-1]}"


def _key(name: str) -> Key:
    if lettered := re.fullmatch(_LETTERED, name):
        prefix, letters, number = lettered.groups()
        rest = [(0, int(number), "")] if number else []
        return [(1, 0, prefix), (1, len(letters), letters), *rest]
    if address := re.fullmatch(_PCI, name):
        return [(0, int(part, 16), "") for part in address.groups()]
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.findall(r"[0-9]+|[^0-9]+", name)
    ]


def _runs(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in runs, in each of which one and the same number goes up by one."""
    run: list[str] = []
    place, last = None, list[int | str]()
    for name in names:
        counters = _counters(name)
        step = _step(last, counters) if run else None
        if run and (step is None or place not in (None, step)):
            yield run
            run, place = [], None
        else:
            place = step
        run.append(name)
        last = counters
    if run:
        yield run


def _step(one: list[int | str], other: list[int | str]) -> int | None:
    """Return the place of the number by which alone the second of two names follows the first."""
    if len(one) != len(other):
        return None
    pairs = enumerate(zip(one, other, strict=True))
    match [(place, *pair) for place, pair in pairs if pair[0] != pair[1]]:
        case [(place, int(before), int(after))] if after == before + 1:
            return place
        case _:
            return None


def _counters(name: str) -> list[int | str]:
    """Return the parts of a name, those that count as numbers."""
    if lettered := re.fullmatch(_LETTERED, name):
        counted = 0
        for letter in lettered[2]:
            counted = counted * 26 + ord(letter) - 96
        return [lettered[1], counted, lettered[3]]
    # A number with leading zeros is as wide as the next one, or it is a name like any other.
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [int(part) if part.isdecimal() else part for part in parts]
