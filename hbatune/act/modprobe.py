"""Reads and writes hbatune's file in modprobe.d: the module options for the next load."""

import re
from pathlib import Path

from hbatune import loader
from hbatune.act import files
from hbatune.loader import UnusableFileError

# Only lines as the template writes them: an administrator's own lines are not hbatune's to keep.
_OPTION = r"options (\w{1,64}) (\w{1,64})=([A-Za-z0-9_.,:+-]{1,256})"

_MOST = 1 << 20


def read(path: Path) -> dict[tuple[str, str], str]:
    """Return the options in the file, by module and option; none where it cannot be read."""
    try:
        text = loader.read_bytes(path, _MOST).decode("utf-8", "backslashreplace")
    except (OSError, UnusableFileError):
        return {}
    found = (re.fullmatch(_OPTION, line, re.ASCII) for line in text.split("\n"))
    return {(each[1], each[2]): each[3] for each in found if each}


def write(path: Path, text: str) -> int | None:
    """Write the text, durably, and return None, or the errno of the refusal.

    A file with this text is left as it is.
    """
    try:
        if not files.holds(path, text.encode()):
            files.replace(path, text.encode(), mode=0o644, folder_mode=0o755)
    except OSError as error:
        return error.errno
    return None


def remove(path: Path) -> int | None:
    """Remove the file, durably, and return None, or the errno of the refusal."""
    try:
        if path.exists():
            files.remove(path)
    except OSError as error:
        return error.errno
    return None
