"""Lists of CPUs as the kernel writes them: ``0-3,8`` (lib/vsprintf.c: bitmap_list_string).

The queues' ``cpu_list`` has blanks besides (block/blk-mq-sysfs.c: blk_mq_hw_sysfs_cpus_show).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

MOST = 8192
"""CPUs at most (arch/x86/Kconfig: NR_CPUS_RANGE_END)."""

_UNSET = "(null)"
"""The text of nohz_full when it is not set (drivers/base/cpu.c: print_cpus_nohz_full)."""


def parse(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list, in order and each once; none for an empty or unset one.

    ValueError for any other text.
    """
    stripped = text.strip()
    if stripped in ("", _UNSET):
        return ()
    return tuple(sorted({cpu for part in stripped.split(",") for cpu in _range(part.strip())}))


def parse_given(text: str, last: int) -> tuple[int, ...]:
    """Return the CPUs of a list as a person gives it to the kernel; ``last`` is the last CPU.

    Beside the forms of ``parse`` these are ``all``, ``N`` for the last one, and ``0-15:2/4``, the
    first two of each four (Documentation/admin-guide/kernel-parameters.rst). ValueError for any
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
    if mask.bit_length() > MOST:
        raise ValueError(text)
    return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def _range(part: str) -> range:
    first, dash, last = part.partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else not last)):
        raise ValueError(part)
    # A range takes no memory: 0-4294967295 is refused before anything expands it.
    found = range(int(first), int(last or first) + 1)
    if not found or found[-1] >= MOST:
        raise ValueError(part)
    return found


def join(cpus: Iterable[int]) -> str:
    """Return the CPUs as a list in its shortest form, as the kernel itself prints it."""
    return ",".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in _runs(sorted(set(cpus)))
    )


def _runs(cpus: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each unbroken run."""
    if cpus:
        gaps = [pair for pair in pairwise(cpus) if pair[1] != pair[0] + 1]
        firsts = [cpus[0], *(after for _, after in gaps)]
        lasts = [*(before for before, _ in gaps), cpus[-1]]
        yield from zip(firsts, lasts, strict=True)
