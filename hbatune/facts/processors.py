"""The machine's CPUs: which are online, which are kept free of interrupts, which share a core."""

from contextlib import suppress

from hbatune import cpulist
from hbatune.facts.model import Processors

_CPU = "/sys/devices/system/cpu"


def processors() -> Processors:
    """Return the CPUs as sysfs has them.

    Documentation/ABI/testing/sysfs-devices-system-cpu tells the files.
    """
    online = read_list(f"{_CPU}/online")
    cores = {_siblings(cpu) for cpu in online}
    return Processors(
        online=online,
        isolated=read_list(f"{_CPU}/isolated"),
        nohz_full=read_list(f"{_CPU}/nohz_full"),
        cores=tuple(sorted(cores)),
    )


def read_list(path: str) -> tuple[int, ...]:
    """Return the CPUs that a file lists; none where it cannot be read or makes no sense."""
    with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
        return cpulist.parse(file.read())
    return ()


def _siblings(cpu: int) -> tuple[int, ...]:
    return read_list(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list") or (cpu,)
