"""Lists of CPUs as the kernel writes them: ``0-3,8`` (lib/vsprintf.c: bitmap_list_string).

The queues' ``cpu_list`` has blanks besides (block/blk-mq-sysfs.c: blk_mq_hw_sysfs_cpus_show).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

MOST = 8192
"""CPUs at most (arch/x86/Kconfig: NR_CPUS_RANGE_END)."""

_UNSET = "(null)"
"""What nohz_full prints where there is none (drivers/base/cpu.c: print_cpus_nohz_full)."""


def parse(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list, in order and each once; none for an empty or unset one.

    ValueError for what is no such list.
    """
    stripped = text.strip()
    if stripped in ("", _UNSET):
        return ()
    return tuple(sorted({cpu for part in stripped.split(",") for cpu in _range(part.strip())}))


def _range(part: str) -> range:
    first, dash, last = part.partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else not last)):
        raise ValueError(part)
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
