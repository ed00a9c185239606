"""The modules of a kernel that is installed and does not run, as modinfo(8) reads them."""

import os
from collections.abc import Iterable, Mapping

from msgspec import Struct

from hbatune import children
from hbatune.facts.names import natural_key

_FOLDER = "/lib/modules"
_SECONDS = 10.0  # for each module; it takes milliseconds, unless the disk does not answer


class InstalledModules(Struct, frozen=True):
    """The options of the drivers' modules of an installed kernel, by module.

    A driver that this kernel does not have is not a key.
    """

    release: str
    options: Mapping[str, frozenset[str]]


def find_installed_release(series: str, folder: str = _FOLDER) -> str | None:
    """Return the newest installed kernel of a series such as ``6.12``, or None."""
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    releases = []
    for name in names:
        remainder = name.removeprefix(series)
        if remainder != name and not remainder[:1].isdigit():
            releases.append(name)
    return max(releases, key=natural_key, default=None)


def read_installed_modules(release: str, drivers: Iterable[str]) -> InstalledModules | None:
    """Return the options of these drivers' modules in an installed kernel.

    None if modinfo is not installed or does not end.
    """
    options: dict[str, frozenset[str]] = {}
    for driver in drivers:
        try:
            done = children.run(("modinfo", "-k", release, "-F", "parm", driver), _SECONDS)
        except OSError:
            return None
        if done.returncode == 0:
            lines = done.stdout.decode("utf-8", "replace").splitlines()
            options[driver] = frozenset(line.partition(":")[0] for line in lines)
    return InstalledModules(release, options)
