"""Read the limits that cgroups (version 2) put on the I/O of a disk."""

import os
from collections.abc import Iterable, Mapping

from msgspec import Struct

from hbatune.facts.attributes import read_text

_CGROUPS = "/sys/fs/cgroup"
IO_MAX = "io.max"
_FILES = {IO_MAX, "io.latency", "io.cost.qos"}
# Documentation/admin-guide/cgroup-v2.rst: the limits per second of the counters in io.stat.
_COUNTERS = {"rbps": "rbytes", "wbps": "wbytes", "riops": "rios", "wiops": "wios"}
_REACHED = 0.9


class IoLimit(Struct, frozen=True):
    """The limits in a ``file`` of a cgroup for one disk, with the cgroup's counters so far."""

    cgroup: str
    file: str
    values: Mapping[str, int]
    counters: Mapping[str, int]


def read_io_limits(device: str) -> tuple[IoLimit, ...]:
    """Return all limits of the disk with this number, ``8:0``; an empty tuple without cgroups."""
    limits = []
    for directory, _, names in os.walk(_CGROUPS):
        for file in sorted(_FILES.intersection(names)):
            values = _read_values(f"{directory}/{file}", device)
            # io.cost prints a line for each disk that it ever limited.
            if values and values.get("enable") != 0:
                counters = _read_values(f"{directory}/io.stat", device)
                cgroup = directory.removeprefix(_CGROUPS) or "/"
                limits.append(IoLimit(cgroup, file, values, counters))
    return tuple(limits)


def find_limited_cgroup(
    earlier: Iterable[IoLimit], later: Iterable[IoLimit], seconds: float
) -> str | None:
    """Return the first cgroup that used up a limit in io.max between two readings."""
    before = {limit.cgroup: limit.counters for limit in earlier}
    for limit in later:
        for name, counter in _COUNTERS.items():
            if limit.file == IO_MAX and limit.cgroup in before and limit.values.get(name):
                moved = limit.counters.get(counter, 0) - before[limit.cgroup].get(counter, 0)
                if moved / seconds >= _REACHED * limit.values[name]:
                    return limit.cgroup
    return None


def _read_values(path: str, device: str) -> dict[str, int]:
    """Return the numbers in the line of this device, without the values ``max``."""
    for line in read_text(path).splitlines():
        name, *fields = line.split()
        if name == device:
            pairs = (field.split("=", 1) for field in fields if "=" in field)
            return {key: int(text) for key, text in pairs if text.isdecimal()}
    return {}
