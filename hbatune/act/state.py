"""hbatune's own folders, taken away as a whole."""

import shutil
from pathlib import Path

from hbatune.errors import HbatuneError


class StateError(HbatuneError):
    """A folder of hbatune's own cannot be removed."""


def remove(folder: Path) -> None:
    """Remove the folder and all that is in it; it may be gone already. ``StateError``."""
    if folder.is_symlink():
        raise StateError(f"{folder} is a link, which hbatune did not make")
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StateError(f"{error.filename} cannot be removed: {error.strerror}") from error
