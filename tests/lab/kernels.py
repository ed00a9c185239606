"""The kernels that the lab boots, and the image of each."""

from tests.lab.image import (
    DEBIAN_12_KERNELS,
    Image,
    debian_12_image,
    debian_13_image,
    list_releases,
)
from tests.lab.newest import (
    NoArchive,
    is_last_good_wanted,
    load_last_good,
    query_newest,
    series_of,
)
from tests.lab.problem import LabError
from tests.lab.progress import note

NEWEST = "newest"
"""What a file of tests, and a person, may call the newest kernel, whatever its series is."""


def kernels() -> tuple[str, ...]:
    """Return the series of all kernels, from the oldest to the newest."""
    return (*DEBIAN_12_KERNELS, series_of(_choose_release()))


def find_series(name: str) -> str:
    """Return the series that ``name`` means: its own, or that of ``newest``.

    Raises LabError if the lab has no such kernel.
    """
    every = kernels()
    series = every[-1] if name == NEWEST else name
    if series not in every:
        raise LabError(f"the lab has no kernel {name}: it has {', '.join(every)}")
    return series


def image(series: str) -> Image:
    """Return the image that boots this kernel. Raises LabError where it cannot be made."""
    if series in DEBIAN_12_KERNELS:
        return debian_12_image()
    return debian_13_image(_choose_release())


def renew() -> Image:
    """Return the image of the kernel that the archive has now; it is made if it is new.

    ``HBATUNE_LAB_NEWEST=last-good`` takes the last good one. An archive that does not answer leaves
    what is there. Raises LabError where the image cannot be made.
    """
    if is_last_good_wanted():
        return debian_13_image(load_last_good())
    try:
        release = query_newest()
    except NoArchive as error:
        release = _choose_release()
        note(f"lab: {error}; the newest kernel is {release} for now")
    if release != load_last_good():
        note(f"lab: the newest kernel is {release}; the last good one is {load_last_good()}")
    return debian_13_image(release)


def _choose_release() -> str:
    """Return the newest of the last good release and those with an image; no archive is asked."""
    if is_last_good_wanted():
        return load_last_good()
    return max([load_last_good(), *list_releases()], key=_number)


def _number(release: str) -> list[int]:
    return [int(part) for part in release.partition("+")[0].split(".")]
