"""Sort and shorten names, group items, match globs, and parse lists of CPUs.

Names are sorted as people expect, and runs of names are shortened. Globs, such as those for vendors
and models, are case-sensitive and fast. Lists of CPUs have the kernel's form: ``0-3,8``
(lib/vsprintf.c: bitmap_list_string). The queues' ``cpu_list`` also contains blanks
(block/blk-mq-sysfs.c: blk_mq_hw_sysfs_cpus_show).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TypeVar

# Numbered with letters: sdaa follows sdz (drivers/scsi/sd.c: sd_format_disk_name).
_LETTERED = r"(sd|vd|xvd|hd|dasd|mpath)([a-z]+)([0-9]*)"
_PCI = r"([0-9a-f]{4,}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])"
# The minimum number of consecutive names that are shown as a range.
_MIN_RANGE = 4
# Larger groups are not joined: an event of one disk must not read thousands.
_MAX_JOINED = 256
NaturalKey = list[tuple[int, int, str]]

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")


def group_items(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return the items of each key, with the keys in the order of their first items."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def join_groups(groups: Iterable[Iterable[str]]) -> dict[str, str]:
    """Return, by name, a name that represents all in the same groups, directly or by others."""
    leaders: dict[str, str] = {}

    def find_leader(name: str) -> str:
        while (leader := leaders.setdefault(name, name)) != name:
            leaders[name] = leaders[leader]  # thousands of volumes on a disk make a long chain
            name = leader
        return name

    for group in groups:
        first, *others = map(find_leader, group)
        leaders.update(dict.fromkeys(others, first))
    joined = {name: find_leader(name) for name in leaders}
    counts = Counter(joined.values())
    return {name: leader for name, leader in joined.items() if counts[leader] <= _MAX_JOINED}


def add_siblings(names: Iterable[str], groups: Iterable[Iterable[str]]) -> set[str]:
    """Return the names with all others in the same groups."""
    all_names, leaders = set(names), join_groups(groups)
    chosen = {leaders[name] for name in all_names & leaders.keys()}
    return all_names.union(name for name, leader in leaders.items() if leader in chosen)


def natural_key(name: str) -> NaturalKey:
    """Return a sort key that counts as people do: sd2 before sd10, sdz before sdaa."""
    key: NaturalKey
    if lettered := re.fullmatch(_LETTERED, name):
        prefix, letters, number = lettered.groups()
        key = [(1, 0, prefix), (1, len(letters), letters)]
        key += [(0, int(number), "")] if number else []
    elif address := re.fullmatch(_PCI, name):
        key = [(0, int(part, 16), "") for part in address.groups()]
    else:
        parts = re.findall(r"[0-9]+|[^0-9]+", name)
        key = [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
    # The full name ends the key: it sorts before longer names, and no two names are equal.
    return [*key, (-1, 0, name)]


def shorten_names(names: Iterable[str]) -> Iterator[str]:
    """Yield names in order, four or more consecutive ones as ``sda..sdl``."""
    for run in _group_names(sorted(set(names), key=natural_key)):
        if len(run) < _MIN_RANGE:
            yield from run
        else:
            yield f"{run[0]}..{run[-1]}"


def _group_names(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in runs, in each of which a single number goes up by one."""
    run: list[str] = []
    place, last = None, list[int | str]()
    for name in names:
        counters = _split_counters(name)
        step = _find_step(last, counters) if run else None
        if run and (step is None or place not in (None, step)):
            yield run
            run, place = [], None
        else:
            place = step
        run.append(name)
        last = counters
    if run:
        yield run


def _find_step(first: list[int | str], second: list[int | str]) -> int | None:
    if len(first) != len(second):
        return None
    pairs = enumerate(zip(first, second, strict=True))
    match [(place, *pair) for place, pair in pairs if pair[0] != pair[1]]:
        case [(place, int(before), int(after))] if after == before + 1:
            return place
    return None


def _split_counters(name: str) -> list[int | str]:
    if lettered := re.fullmatch(_LETTERED, name):
        counted = 0
        for letter in lettered[2]:
            counted = counted * 26 + ord(letter) - 96
        return [lettered[1], counted, lettered[3]]
    # A number with leading zeros keeps its width in the next name, or it counts as text.
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return [int(part) if part.isdecimal() else part for part in parts]


_SPECIAL = frozenset("*?[")


def matches_glob(text: str, globs: Iterable[str]) -> bool:
    """Return whether one of the globs matches the text."""
    return any(_matches(text, glob) for glob in globs)


def _matches(text: str, glob: str) -> bool:
    # Most globs are a word or have one star, and need no pattern.
    start, star, end = glob.partition("*")
    if not _SPECIAL.isdisjoint(start + end):
        return fnmatchcase(text, glob)
    if not star:
        return text == glob
    return len(text) >= len(start + end) and text.startswith(start) and text.endswith(end)


# The maximum number of CPUs (arch/x86/Kconfig: NR_CPUS_RANGE_END).
MAX_CPUS = 8192
# The text of nohz_full if it is not set (drivers/base/cpu.c: print_cpus_nohz_full).
_UNSET = "(null)"

CpuParser = Callable[[str], tuple[int, ...]]


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return the sorted CPUs of a list, or none if it is empty or unset. Raises ValueError."""
    stripped = text.strip()
    if stripped in ("", _UNSET):
        return ()
    cpus: set[int] = set()
    for part in stripped.split(","):
        cpus.update(_parse_range(part.strip()))
    return tuple(sorted(cpus))


def parse_given_cpus(text: str, last: int) -> tuple[int, ...]:
    """Return the CPUs of a list as a person writes it for the kernel; ``last`` is the last CPU.

    In addition to the forms of ``parse_cpus``, it accepts ``all``, ``N`` for the last CPU, and
    ``0-15:2/4``, the first two of each four (Documentation/admin-guide/kernel-parameters.rst).
    ValueError for any other text.
    """
    selected: set[int] = set()
    for part in text.strip().split(","):
        cpus, colon, group = part.partition(":")
        words = [str(last) if bound == "N" else bound for bound in cpus.split("-", 1)]
        numbers = _parse_range(f"0-{last}" if cpus == "all" else "-".join(words))
        used, _, size = group.partition("/") if colon else ("1", "/", "1")
        if not (used.isdecimal() and size.isdecimal() and 0 < int(used) <= int(size)):
            raise ValueError(part)
        selected.update(
            cpu for position, cpu in enumerate(numbers) if position % int(size) < int(used)
        )
    return tuple(sorted(selected))


def parse_mask(text: str) -> tuple[int, ...]:
    """Return the CPUs of a mask: ``1,0000000f`` (lib/bitmap.c: bitmap_parse). Raises ValueError."""
    mask = 0
    for group in text.strip().split(","):
        if not 0 < len(group) <= 8 or not set(group.lower()) <= set("0123456789abcdef"):
            raise ValueError(text)
        mask = mask << 32 | int(group, 16)
    if mask.bit_length() > MAX_CPUS:
        raise ValueError(text)
    return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def find_cpus(text: str, parse: CpuParser = parse_cpus) -> tuple[int, ...] | None:
    """Return the CPUs in a text, or None if it makes no sense."""
    with suppress(ValueError):
        return parse(text)
    return None


def _parse_range(part: str) -> range:
    first, dash, last = part.partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else not last)):
        raise ValueError(part)
    # A range takes no memory: 0-4294967295 is rejected before it is expanded.
    cpus = range(int(first), int(last or first) + 1)
    if not cpus or cpus[-1] >= MAX_CPUS:
        raise ValueError(part)
    return cpus


def join_cpus(cpus: Iterable[int]) -> str:
    """Return the CPUs as a list in its shortest form, as the kernel prints it."""
    runs: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
