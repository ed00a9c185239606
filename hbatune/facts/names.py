"""Names and lists: their order, runs of them, globs, and lists of CPUs.

The order of names for people, and runs of names that follow each other.

Globs, such as those of vendors and models: case counts, and few of them cost anything.

Lists of CPUs as the kernel writes them: ``0-3,8`` (lib/vsprintf.c: bitmap_list_string).

The queues' ``cpu_list`` has blanks besides (block/blk-mq-sysfs.c: blk_mq_hw_sysfs_cpus_show).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

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
    for run in _name_runs(sorted(set(names), key=natural_key)):
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


def _name_runs(names: Sequence[str]) -> Iterator[list[str]]:
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


_SPECIAL = frozenset("*?[")


def matches_glob(text: str, globs: Iterable[str]) -> bool:
    """Whether one of the globs fits the text."""
    return any(_fits(text, glob) for glob in globs)


def _fits(text: str, glob: str) -> bool:
    """Whether a glob fits; nearly all are a word or its beginning, and not worth a pattern."""
    if not _SPECIAL.isdisjoint(glob[:-1]):
        return fnmatchcase(text, glob)
    match glob[-1:]:
        case "*":
            return text.startswith(glob[:-1])
        case "?" | "[":
            return fnmatchcase(text, glob)
    return text == glob


MAX_CPUS = 8192
"""CPUs at most (arch/x86/Kconfig: NR_CPUS_RANGE_END)."""

_UNSET = "(null)"
"""The text of nohz_full when it is not set (drivers/base/cpu.c: print_cpus_nohz_full)."""


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list, in order and each once; none for an empty or unset one.

    ValueError for any other text.
    """
    stripped = text.strip()
    if stripped in ("", _UNSET):
        return ()
    return tuple(sorted({cpu for part in stripped.split(",") for cpu in _range(part.strip())}))


def parse_given_cpus(text: str, last: int) -> tuple[int, ...]:
    """Return the CPUs of a list as a person gives it to the kernel; ``last`` is the last CPU.

    Beside the forms of ``parse_cpus`` these are ``all``, ``N`` for the last one, and ``0-15:2/4``,
    the first two of each four (Documentation/admin-guide/kernel-parameters.rst). ValueError for any
    other text.
    """
    found: set[int] = set()
    for part in text.strip().split(","):
        cpus, colon, group = part.partition(":")
        words = [str(last) if word == "N" else word for word in cpus.split("-", 1)]
        numbers = _range(f"0-{last}" if cpus == "all" else "-".join(words))
        used, _, size = group.partition("/") if colon else ("1", "/", "1")
        if not (used.isdecimal() and size.isdecimal() and 0 < int(used) <= int(size)):
            raise ValueError(part)
        found.update(cpu for at, cpu in enumerate(numbers) if at % int(size) < int(used))
    return tuple(sorted(found))


def parse_mask(text: str) -> tuple[int, ...]:
    """Return the CPUs of a mask, hexadecimal in groups of 32 bits: ``1,0000000f``.

    lib/bitmap.c: bitmap_parse. ValueError for any other text.
    """
    mask = 0
    for group in text.strip().split(","):
        if not 0 < len(group) <= 8 or not set(group.lower()) <= set("0123456789abcdef"):
            raise ValueError(text)
        mask = mask << 32 | int(group, 16)
    if mask.bit_length() > MAX_CPUS:
        raise ValueError(text)
    return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def _range(part: str) -> range:
    first, dash, last = part.partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else not last)):
        raise ValueError(part)
    # A range takes no memory: 0-4294967295 is refused before anything expands it.
    found = range(int(first), int(last or first) + 1)
    if not found or found[-1] >= MAX_CPUS:
        raise ValueError(part)
    return found


def join_cpus(cpus: Iterable[int]) -> str:
    """Return the CPUs as a list in its shortest form, as the kernel itself prints it."""
    return ",".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in _cpu_runs(sorted(set(cpus)))
    )


def _cpu_runs(cpus: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each unbroken run."""
    if cpus:
        gaps = [pair for pair in pairwise(cpus) if pair[1] != pair[0] + 1]
        firsts = [cpus[0], *(after for _, after in gaps)]
        lasts = [*(before for before, _ in gaps), cpus[-1]]
        yield from zip(firsts, lasts, strict=True)
